"""veckm encode: the local geometry of every point of a cloud file, as a vector."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor
from tyro.conf import FlagCreatePairsOff, Positional, arg
from tyro.constructors import PrimitiveConstructorSpec

from veckm import VecKM, __version__, encode, radius_from_beta, scan, suggest_radius
from veckm.cli import files, report
from veckm.cli.compare import Sample
from veckm.cli.text import entry, number
from veckm.cli.tiles import Tiled, scanned
from veckm.components import as_real, principal_components
from veckm.data import shapes
from veckm.inputs import SMALLEST_EPS
from veckm.planning import EngineName, Plan
from veckm.sizes import WindowName

_SAMPLE_POINTS = 20_000
_NEIGHBORS = 64
#: Above this the paper's engine takes too long for a comparison nobody asked for.
_MOST_FOR_RANDOM = 50_000
_PAPER_P = 4096


def _number(default: str, metavar: str = "X") -> tuple[PrimitiveConstructorSpec[float], object]:
    """A float that may be left out, without tyro's "{None}|FLOAT"."""
    spec = PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda args: float(args[0]),
        is_instance=lambda value: value is None or isinstance(value, float),
        str_from_instance=lambda value: [str(value)],
    )
    return spec, arg(help_behavior_hint=default)


_File = Annotated[Path | None, arg(metavar="[FILE]", help_behavior_hint="(default: a sample scan)")]
_Output = Annotated[
    Path | None, arg(aliases=["-o"], metavar="FILE", help_behavior_hint="(default: not written)")
]
_Radius = Annotated[float | None, *_number("(default: suggested)", "R")]
_Detail = Annotated[float | None, *_number("(default: 6)")]
_Paper = Annotated[float | None, *_number("")]
_Components = Annotated[int | None, arg(metavar="K", help_behavior_hint="(default: none)")]
_Flag = Annotated[bool, arg(help_behavior_hint=""), FlagCreatePairsOff]


@dataclass(frozen=True)
class Encode(Tiled):
    """Encode every point of a cloud, and compare the result with the definition.

    Without a file it takes a sample scan, to show what it does.

    Your own cloud: veckm encode scan.ply -o features.npy --dim 64 --radius 0.1

    Killed and run again, a cloud in tiles goes on where it was.
    """

    cloud: Positional[_File] = None
    """Points: LAS, LAZ, PLY, PCD, E57, XYZ, CSV, PTS, NPY, NPZ, KITTI .bin."""
    output: _Output = None
    """Where the encodings go: .npy, one row a point."""
    dtype: Literal["complex64", "float16"] = "complex64"
    """Of the output: float16 has real and imaginary parts in turn, in half of the space."""
    components: _Components = None
    """Write K principal components of the encodings instead, float32."""
    dim: int = 256
    """Complex numbers a point."""
    radius: _Radius = None
    """How far an encoding looks, in the units of the cloud."""
    detail: _Detail = None
    """How fine a shape it tells apart within the radius: alpha = detail / radius."""
    alpha: _Paper = None
    """The paper's parameter, instead of detail."""
    beta: _Paper = None
    """The paper's parameter, instead of radius: beta = 1.8 / radius."""
    window: WindowName = "gaussian"
    """How neighbors are weighed."""
    engine: EngineName = "auto"
    """How to compute it; auto takes the fastest within eps."""
    eps: float = 1e-2
    """Mean relative error that the encodings may have."""
    seed: int = 0
    """Of the random frequencies."""
    check: int = 200
    """Rows to compare with the definition; 0 for no comparison."""
    quiet: _Flag = False
    """Say nothing unless it fails; compares nothing."""
    json: _Flag = False
    """Print a report for programs instead of one for people."""
    debug: _Flag = False
    """Show the traceback of an error."""

    def run(self) -> None:
        """Read, encode, write, compare; say so as it goes."""
        if self.output is not None:
            files.check_output(self.output, self.cloud)
        if self.cloud is not None and self.in_tiles(self.cloud):
            self._tiles(self.cloud)
        else:
            self._whole()

    def _tiles(self, cloud: Path) -> None:
        """Tile by tile, from the file to the output."""
        operation = self._operation(cloud)
        size = f"{self.dim} complex numbers a point, detail {number(operation.detail)}"
        self._say(f"veckm {__version__} encode", "")
        self._say(*entry("window", f"{self.window}, radius {number(operation.radius[0])}"))
        self._say(*entry("encoding", f"{size}, engine {operation.engine}, in tiles"))
        done = self.scan(cloud, self.output, operation, self.quiet or self.json)
        self._say(*scanned(cloud, self.output, done))
        if self.json:
            about = {"veckm": __version__, "cloud": str(cloud), **asdict(done)}
            print(json.dumps({**about, "output": str(self.output)}))

    def _operation(self, cloud: Path) -> scan.Encode:
        """The same encoding in tiles; one engine for all of them."""
        radius = radius_from_beta(self.beta) if self.beta is not None else self.radius
        if radius is None:
            raise ValueError(
                f"{cloud}: is encoded in tiles: give --radius; `veckm info {cloud}` suggests one"
            )
        if self.engine not in ("auto", "neighbors", "grid"):
            raise ValueError(f"--engine {self.engine}: tiles are for neighbors and grid")
        detail = 6.0 if self.detail is None else self.detail
        return scan.Encode(
            self.dim,
            (radius,),
            detail=detail if self.alpha is None else self.alpha * radius,
            window=self.window,
            engine="grid" if self.engine == "grid" else "neighbors",
            eps=self.eps,
            seed=self.seed,
            dtype=self.dtype,
            components=self.components,
        )

    def _whole(self) -> None:
        """All points at once, in memory."""
        if self.cloud is None:
            pos = shapes.scan(_SAMPLE_POINTS).pos
        else:
            pos = files.points_of(files.read_cloud(self.cloud))
        suggested = self.radius is None and self.beta is None
        if suggested and len(pos) < 2:
            raise ValueError(
                "a single point has no density to suggest a radius from: give --radius"
            )
        radius = suggest_radius(pos, neighbors=_NEIGHBORS) if suggested else self.radius
        encoder = self._encoder(radius)
        x = _working(pos, encoder.alpha[0], self.eps)
        cloud = self._cloud(pos, x, encoder.radius[0])
        setting = self._setting(encoder, suggested, len(pos))
        self._say(f"veckm {__version__} encode", "", *cloud.lines(), *setting.lines())
        start = time.perf_counter()
        (plan,) = encoder.plans(x, progress=False if self.quiet else None)
        planning = time.perf_counter() - start
        choice = self._choice(plan)
        self._say(*choice.lines())
        G, result = self._encode(plan, encoder.A[0], planning)
        self._say(*result.lines())
        check = self._check(pos, x, G, encoder, choice.engine, result.seconds)
        self._say(*(check.lines() if check else []))
        if self.json:
            print(report.Report(__version__, cloud, setting, choice, result, check).json())

    def _say(self, *lines: str) -> None:
        if not (self.quiet or self.json):
            print(*lines, sep="\n", end="\n" if lines else "", flush=True)

    def _encoder(self, radius: float | None) -> VecKM:
        detail = self.detail
        if detail is None and self.alpha is None:
            detail = 6.0
        return VecKM(
            self.dim,
            alpha=self.alpha,
            beta=self.beta,
            radius=radius,
            detail=detail,
            window=self.window,
            engine=self.engine,
            eps=self.eps,
            p=_PAPER_P,
            seed=self.seed,
        )

    def _cloud(self, pos: Tensor, x: Tensor, radius: float) -> report.Cloud:
        source = "sample scan" if self.cloud is None else str(self.cloud)
        box = tuple((pos.amax(0) - pos.amin(0)).tolist())
        return report.Cloud(
            source, len(pos), box, _name(pos.dtype), _name(x.dtype), _rounding(pos, radius)
        )

    def _setting(self, encoder: VecKM, suggested: bool, points: int) -> report.Setting:
        return report.Setting(
            window=self.window,
            radius=encoder.radius[0],
            suggested=suggested,
            neighbors=min(_NEIGHBORS, points - 1),
            dim=self.dim,
            alpha=encoder.alpha[0],
            beta=encoder.beta[0],
            eps=self.eps,
            seed=self.seed,
        )

    def _choice(self, plan: Plan) -> report.Choice:
        expected = {name: report.finite(seconds) for name, seconds in plan.costs.items()}
        return report.Choice(plan.engine, self.engine, self.eps, expected)

    def _encode(self, plan: Plan, A: Tensor, planning: float) -> tuple[Tensor, report.Result]:
        """The encodings, and how long they took with their plan."""
        start = time.perf_counter()
        G = plan.encode(A)
        spent = planning + time.perf_counter() - start
        stored = G.to(torch.complex64)
        if self.output is not None:
            files.write_array(self.output, self._written(stored).numpy())
        result = report.Result(
            shape=tuple(stored.shape),
            dtype=_name(stored.dtype),
            bytes=stored.numel() * stored.element_size(),
            seconds=spent,
            points_per_second=len(G) / spent,
            threads=torch.get_num_threads(),
            output=None if self.output is None else str(self.output),
        )
        return stored, result

    def _written(self, G: Tensor) -> Tensor:  # (N, D) complex64
        """As it was asked for: components, half precision, or as it is."""
        if self.components is not None:
            return principal_components([G], self.components).project(G)
        return as_real(G).half() if self.dtype == "float16" else G

    def _check(
        self,
        pos: Tensor,
        x: Tensor,
        G: Tensor,
        encoder: VecKM,
        engine: str,
        took: float,
    ) -> report.Check | None:
        if self.check <= 0 or self.quiet:
            return None
        A, radius = encoder.A[0], encoder.radius[0]
        sample = Sample.draw(pos, A, self.window, radius, self.check, self.seed)
        measured = [report.Measured(engine, took, *sample.errors(G))]
        if self.window == "gaussian" and engine != "random" and len(x) <= _MOST_FOR_RANDOM:
            start = time.perf_counter()
            paper = encode(x, A, radius=radius, engine="random", B=encoder.B[0])
            spent = time.perf_counter() - start
            name = f"random, p = {_PAPER_P} (paper)"
            measured.append(report.Measured(name, spent, *sample.errors(paper)))
        return report.Check(len(sample.rows), self.eps, tuple(measured))


def _working(pos: Tensor, alpha: float, eps: float) -> Tensor:
    """The points about the middle of their box, in float32 where that is exact enough for eps."""
    low, high = pos.double().amin(0), pos.double().amax(0)
    x = pos.double() - (low + high) / 2
    rounding = float(x.abs().amax()) * torch.finfo(torch.float32).eps / 2
    if eps >= SMALLEST_EPS[torch.float32] and rounding * alpha <= eps / 10:
        return x.float()
    return x


def _rounding(pos: Tensor, radius: float) -> str | None:
    """A word about coordinates that were rounded before they came here."""
    step = float(pos.abs().amax()) * torch.finfo(pos.dtype).eps
    if step < radius / 50:
        return None
    return f"{_name(pos.dtype)} coordinates of this size are {step:.2g} apart; save them as float64"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
