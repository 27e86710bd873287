"""veckm encode: the local geometry of every point of a cloud file, as a vector."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor
from tyro.conf import FlagCreatePairsOff, Positional, arg
from tyro.constructors import PrimitiveConstructorSpec

from veckm import VecKM, __version__, encode, suggest_radius
from veckm.cli import files, report
from veckm.cli.compare import Sample
from veckm.data import shapes
from veckm.engines import ENGINES, Engine, Problem, choose
from veckm.functional import EngineName, WindowName, make_problem, make_window
from veckm.inputs import SMALLEST_EPS

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
_Flag = Annotated[bool, arg(help_behavior_hint=""), FlagCreatePairsOff]


@dataclass(frozen=True)
class Encode:
    """Encode every point of a cloud, and compare the result with the definition.

    Without a file it takes a sample scan, to show what it does.

    Your own cloud: veckm encode cloud.npy -o features.npy
    """

    cloud: Positional[_File] = None
    """Points: LAS, LAZ, PLY, PCD, E57, XYZ, CSV, PTS, KITTI .bin, .npy with (N, 3), .npz with xyz."""
    output: _Output = None
    """Where the encodings go: .npy, complex64, one row a point."""
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
    """How neighbours are weighed."""
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
        pos = (
            shapes.scan(_SAMPLE_POINTS).pos if self.cloud is None else files.read_cloud(self.cloud)
        )
        suggested = self.radius is None and self.beta is None
        if suggested and len(pos) < 2:
            raise ValueError(
                "a single point has no density to suggest a radius from: give --radius"
            )
        radius = suggest_radius(pos, neighbors=_NEIGHBORS) if suggested else self.radius
        encoder = self._encoder(radius)
        x = _working(pos, encoder.alpha[0], self.eps)
        problem = self._problem(encoder, x)
        cloud = self._cloud(pos, x, encoder.radius[0])
        setting = self._setting(encoder, suggested, len(pos))
        self._say(f"veckm {__version__} encode", "", *cloud.lines(), *setting.lines())
        choice = self._choice(problem)
        self._say(*choice.lines())
        G, result = self._encode(encoder, x)
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

    def _problem(self, encoder: VecKM, x: Tensor) -> Problem:
        window = make_window(self.window, encoder.beta[0], None)
        A, B = encoder.A[0], encoder.B[0]
        return make_problem(x, A, window=window, norm="unit", eps=self.eps, B=B)[0]

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

    def _choice(self, problem: Problem) -> report.Choice:
        expected = {
            engine.name: _cost(engine, problem)
            for engine in ENGINES
            if isinstance(problem.window, engine.windows)
        }
        return report.Choice(choose(problem, self.engine).name, self.engine, self.eps, expected)

    def _encode(self, encoder: VecKM, x: Tensor) -> tuple[Tensor, report.Result]:
        start = time.perf_counter()
        G = encoder(x, progress=False if self.quiet else None)
        seconds = time.perf_counter() - start
        stored = G.to(torch.complex64)
        if self.output is not None:
            files.write_array(self.output, stored.numpy())
        result = report.Result(
            shape=tuple(stored.shape),
            dtype=_name(stored.dtype),
            bytes=stored.numel() * stored.element_size(),
            seconds=seconds,
            points_per_second=len(x) / seconds,
            threads=torch.get_num_threads(),
            output=None if self.output is None else str(self.output),
        )
        return stored, result

    def _check(
        self,
        pos: Tensor,
        x: Tensor,
        G: Tensor,
        encoder: VecKM,
        engine: str,
        seconds: float,
    ) -> report.Check | None:
        if self.check <= 0 or self.quiet:
            return None
        A, B, radius = encoder.A[0], encoder.B[0], encoder.radius[0]
        sample = Sample.draw(pos, A, self.window, radius, self.check, self.seed)
        measured = [report.Measured(engine, seconds, *sample.errors(G))]
        if self.window == "gaussian" and engine != "random" and len(x) <= _MOST_FOR_RANDOM:
            start = time.perf_counter()
            paper = encode(x, A, radius=radius, engine="random", B=B)
            spent = time.perf_counter() - start
            name = f"random, p = {_PAPER_P} (paper)"
            measured.append(report.Measured(name, spent, *sample.errors(paper)))
        return report.Check(len(sample.rows), self.eps, tuple(measured))


def _cost(engine: Engine, problem: Problem) -> float | None:
    try:
        return report.finite(engine.cost(problem))
    except ValueError:  # its grid would not fit in memory: not an error unless it is asked for
        return None


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
