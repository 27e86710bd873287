"""veckm encode: the local geometry of every point of a cloud file, as a vector."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor
from tyro.conf import arg

from veckm import VecKM, scan, suggest_radius
from veckm.cli import text
from veckm.cli.text import labeled, number
from veckm.cli.tiles import CloudVerb
from veckm.cli.verb import OutputFile, coordinates, save_array
from veckm.components import principal_components
from veckm.engines.phasors import as_real
from veckm.inputs import SMALLEST_EPS
from veckm.planning import EngineName, Plan
from veckm.sizes import DEFAULT_DETAIL, WindowName

#: Neighbors within the suggested radius, for half of the points.
_NEIGHBORS = 64


def _optional(default: str, metavar: str = "X") -> object:
    return arg(metavar=metavar, help_behavior_hint=default)


@dataclass(frozen=True)
class Encode(CloudVerb):
    """Encode every point of a cloud.

    Without a file it encodes a sample scan.

    veckm encode scan.ply -o features.npy --dim 64 --radius 0.1

    An interrupted run in tiles is resumed by the same command.
    """

    contents, suffixes = "encodings", (".npy",)

    output: OutputFile = None
    """Where the encodings are written: .npy, one row per point."""
    dtype: Literal["complex64", "float16"] = "complex64"
    """Of the output; float16 stores interleaved real and imaginary parts, in half of the space."""
    components: Annotated[int | None, _optional("(default: none)", "K")] = None
    """Write K principal components of the encodings instead, as float32."""
    dim: int = 256
    """Complex numbers per point."""
    radius: Annotated[float | None, _optional("(default: suggested)", "R")] = None
    """Radius of the neighborhood, in the units of the cloud."""
    detail: Annotated[float | None, _optional("(default: 6)")] = None
    """How fine a shape is resolved within the radius: alpha = detail / radius."""
    alpha: Annotated[float | None, _optional("")] = None
    """The paper's parameter, instead of detail."""
    beta: Annotated[float | None, _optional("")] = None
    """The paper's parameter, instead of radius: beta = 1.8 / radius."""
    window: WindowName = "gaussian"
    """Window function, the weight of neighbors by their distance."""
    engine: EngineName = "auto"
    """How the encodings are computed; auto takes the fastest engine that meets eps."""
    eps: float = 1e-2
    """Mean relative error that is allowed."""
    seed: int = 0
    """Seed of the random frequencies."""

    def run_in_tiles(self, cloud: Path) -> None:
        if self.radius is None and self.beta is None:
            raise ValueError(
                f"{cloud}: is encoded in tiles: give --radius; `veckm info {cloud}` suggests one"
            )
        if self.engine not in ("auto", "neighbors", "grid"):
            raise ValueError(f"--engine {self.engine}: tiles support neighbors and grid only")
        encoder = self._encoder(self.radius)
        operation = scan.Encode(
            self.dim,
            encoder.radius,
            detail=encoder.alpha[0] * encoder.radius[0],
            window=self.window,
            engine="grid" if self.engine == "grid" else "neighbors",  # one for all tiles
            eps=self.eps,
            seed=self.seed,
            dtype=self.dtype,
            components=self.components,
        )
        self.title("encode")
        self.show(*self._settings(encoder), labeled("engine", f"{operation.engine}, in tiles"))
        self.scan(cloud, operation)

    def run_in_memory(self) -> None:
        source, points, _ = self.read_input()
        pos, radius = coordinates(points), self.radius
        suggested = radius is None and self.beta is None
        if suggested:
            if len(pos) < 2:
                raise ValueError(
                    "a single point has no density to suggest a radius from: give --radius"
                )
            radius = suggest_radius(pos, neighbors=_NEIGHBORS)
        encoder = self._encoder(radius)
        x = _centered(pos, encoder.alpha[0], self.eps)
        dtype, computed_in = _name(pos.dtype), _name(x.dtype)
        box = (pos.amax(0) - pos.amin(0)).tolist()
        self.title("encode")
        self.show(
            labeled("cloud", f"{source}: {text.counted(len(pos), 'point')}, {dtype}"),
            labeled(
                "", f"box {text.box(box)}, in the cloud's own units, computed in {computed_in}"
            ),
        )
        if note := _rounding(pos, encoder.radius[0]):
            self.show(labeled("note", note))
        neighbors = min(_NEIGHBORS, len(pos) - 1) if suggested else None
        self.show(*self._settings(encoder, neighbors))
        start = time.perf_counter()
        (plan,) = encoder.plans(x, progress=False if self.silent else None)
        expected = self._show_engine(plan)
        G = plan.encode(encoder.A[0]).to(torch.complex64)
        spent = time.perf_counter() - start
        about = {"source": source, "points": len(pos), "box": box, "dtype": dtype}
        sizes = {"radius": encoder.radius[0], "alpha": encoder.alpha[0], "beta": encoder.beta[0]}
        self.report(
            cloud={**about, "computed_in": computed_in, "note": note},
            setting={**sizes, "suggested": suggested, "dim": self.dim, "seed": self.seed},
            engine={"engine": plan.engine, "eps": self.eps, "expected": expected},
            result=self._write(self._stored(G), spent),
        )

    def _write(self, stored: Tensor, spent: float) -> dict[str, object]:  # (N, columns)
        """Write the output, show the result, and return what is reported of it."""
        if self.output is not None:
            save_array(self.output, stored.numpy())
        size, threads = stored.numel() * stored.element_size(), torch.get_num_threads()
        shape, dtype = tuple(stored.shape), _name(stored.dtype)
        pace = f"{len(stored) / spent:,.0f} points/s on {text.counted(threads, 'thread')}"
        self.show(
            labeled("time", f"{text.seconds(spent)}, {pace}"),
            labeled("result", f"{shape} {dtype}, {text.bytes_of(size)}"),
            *([] if self.output is None else [labeled("written", str(self.output))]),
        )
        about = {"shape": shape, "dtype": dtype, "bytes": size, "seconds": spent}
        return {**about, "threads": threads, "output": self.output}

    def _encoder(self, radius: float | None) -> VecKM:
        default = None if self.alpha is not None else DEFAULT_DETAIL
        return VecKM(
            self.dim,
            alpha=self.alpha,
            beta=self.beta,
            radius=radius,
            detail=default if self.detail is None else self.detail,
            window=self.window,
            engine=self.engine,
            eps=self.eps,
            seed=self.seed,
        )

    def _settings(self, encoder: VecKM, neighbors: int | None = None) -> list[str]:
        why = f" (suggested: half of the points have {neighbors} others or more within it)"
        radius, alpha, beta = encoder.radius[0], encoder.alpha[0], encoder.beta[0]
        scale = f"detail {number(alpha * radius)}: alpha {number(alpha)}, beta {number(beta)}"
        return [
            labeled("window", f"{self.window}, radius {number(radius)}{why if neighbors else ''}"),
            labeled("encoding", f"{self.dim} complex numbers per point, seed {self.seed}; {scale}"),
        ]

    def _show_engine(self, plan: Plan) -> dict[str, float | None]:
        """Show the engine and the expected seconds of each; returns those, None if it cannot."""
        auto = f"chosen by auto: the least expected time within eps = {self.eps:g}"
        why = auto if self.engine == "auto" else "as requested"
        self.show(labeled("engine", f"{plan.engine}, {why}"))
        costs = {name: s if math.isfinite(s) else None for name, s in plan.costs.items()}
        for cost, name in sorted((s, name) for name, s in costs.items() if s is not None):
            mark = " <-" if name == plan.engine else ""
            noisy = "   noisy, ignores eps: only on request" if name == "random" else ""
            self.show(labeled("", f"  {name:<10} {text.seconds(cost):>9} expected{mark}{noisy}"))
        return costs

    def _stored(self, G: Tensor) -> Tensor:  # (N, D) complex64
        """The requested form of the output: components, half precision, or unchanged."""
        if self.components is not None:
            return principal_components([G], self.components).project(G)
        return as_real(G).half() if self.dtype == "float16" else G


def _centered(pos: Tensor, alpha: float, eps: float) -> Tensor:
    """The points relative to the center of their box, in float32 where that is exact enough."""
    low, high = pos.double().amin(0), pos.double().amax(0)
    x = pos.double() - (low + high) / 2
    rounding = float(x.abs().amax()) * torch.finfo(torch.float32).eps / 2
    if eps >= SMALLEST_EPS[torch.float32] and rounding * alpha <= eps / 10:
        return x.float()
    return x


def _rounding(pos: Tensor, radius: float) -> str | None:
    """A warning about coordinates that were rounded before they were saved."""
    step = float(pos.abs().amax()) * torch.finfo(pos.dtype).eps
    if step < radius / 50:
        return None
    return f"{_name(pos.dtype)} coordinates of this size are {step:.2g} apart; save them as float64"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
