"""veckm encode: the local geometry of every point of a cloud file, as a vector."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from veckm import VecKM, scan, suggest_radius
from veckm.cli import text
from veckm.cli.text import labeled, number
from veckm.cli.tiles import CloudVerb
from veckm.cli.verb import OutputFile, coordinates, finite_rows, option, read_all, save_array
from veckm.cloud import PointCloud
from veckm.components import principal_components
from veckm.engines.phasors import as_real
from veckm.io import WRITABLE, write
from veckm.io.output import check_writable
from veckm.planning import EngineName, Plan
from veckm.progress import begin, passes
from veckm.scan.encode import field_names, with_encoding, working_dtype
from veckm.scan.spool import scatter
from veckm.sizes import DEFAULT_DETAIL, WindowName

#: Neighbors within the suggested radius, for half of the points.
_NEIGHBORS = 64


@dataclass(frozen=True)
class Encode(CloudVerb):
    """Encode every point of a cloud.

    Without a file it encodes a sample scan.

    veckm encode scan.ply -o features.npy --dim 64 --radius 0.1

    veckm encode scan.laz -o features.laz --components 8

    veckm encode scans/ --out-dir features --radius 0.1

    An interrupted run in tiles is resumed by the same command.
    """

    contents, suffixes = "encodings", WRITABLE

    output: OutputFile = None
    """An array .npy, one row per point, or the cloud with the encodings as fields, extra fields in
    LAS: veckm_re0, veckm_im0 and so on, or veckm_0 to veckm_7 with --components 8."""
    dtype: Literal["complex64", "float16"] = "complex64"
    """Of the output; float16 stores interleaved real and imaginary parts, in half of the space."""
    components: Annotated[int | None, option("K", "none")] = None
    """Write K principal components of the encodings instead, as float32."""
    dim: int = 256
    """Complex numbers per point."""
    radius: Annotated[float | None, option("R", "suggested")] = None
    """Radius of the neighborhood, in the units of the cloud."""
    detail: Annotated[float | None, option("X", "6")] = None
    """How fine a shape is resolved within the radius: alpha = detail / radius."""
    alpha: Annotated[float | None, option("X")] = None
    """The paper's parameter, instead of detail."""
    beta: Annotated[float | None, option("X")] = None
    """The paper's parameter, instead of radius: beta = 1.8 / radius."""
    window: WindowName = "gaussian"
    """Window function, the weight of neighbors by their distance."""
    engine: EngineName = "auto"
    """How the encodings are computed; auto takes the fastest engine that meets eps."""
    eps: float = 1e-2
    """Mean relative error that is allowed."""
    seed: int = 0
    """Seed of the random frequencies."""

    def run_in_tiles(self, cloud: Path) -> dict[str, object]:
        if self.radius is None and self.beta is None:
            raise ValueError(
                f"{cloud}: is encoded in tiles: give --radius; `veckm info {cloud}` suggests one"
            )
        encoder = self._encoder(self.radius)
        names = ("window", "eps", "seed", "dtype", "components")
        operation = scan.Encode(
            self.dim,
            encoder.radius,
            detail=encoder.alpha[0] * encoder.radius[0],
            engine="neighbors" if self.engine == "auto" else self.engine,  # type: ignore[arg-type]
            **{name: getattr(self, name) for name in names},
        )
        self.title("encode")
        self.show(*self._settings(encoder), labeled("engine", f"{operation.engine}, in tiles"))
        return self.scan(cloud, operation)

    def run_in_memory(self) -> dict[str, object]:
        with passes(("read", "encode", "write"), not self.silent):
            return self._run_in_memory()

    def _run_in_memory(self) -> dict[str, object]:
        begin("read")
        cloud = read_all(self.cloud, self.columns)
        rows, radius = finite_rows(cloud, self.cloud), self.radius
        pos = coordinates(cloud)[torch.from_numpy(rows)]
        suggested = radius is None and self.beta is None
        if suggested:
            if len(pos) < 2:
                raise ValueError("a single point has no density to suggest a radius: give --radius")
            radius = suggest_radius(pos, neighbors=_NEIGHBORS)
        encoder = self._encoder(radius)
        x = pos.double()
        x = x - (x.amin(0) + x.amax(0)) / 2
        x = x.to(working_dtype(x, encoder.alpha[0], self.eps))
        if self._names is not None and self.output is not None:
            blank = dict.fromkeys(self._names, np.zeros(0, np.float32))
            check_writable(self.output, cloud[:0].with_fields(**blank))
        about = self.show_cloud(pos)
        note, computed_in = _rounding(pos, encoder.radius[0]), str(x.numpy().dtype)
        self.show(*([] if note is None else [labeled("note", note)]))
        self.show(*self._settings(encoder, min(_NEIGHBORS, len(pos) - 1) if suggested else 0))
        start = time.perf_counter()
        begin("encode")
        (plan,) = encoder.plans(x, progress=False if self.silent else None)
        expected = self._show_engine(plan, computed_in)
        G = plan.encode(encoder.A[0]).to(torch.complex64)
        spent = time.perf_counter() - start
        begin("write")
        sizes = {"radius": encoder.radius[0], "alpha": encoder.alpha[0], "beta": encoder.beta[0]}
        return self.report(
            points=len(cloud),
            cloud={**about, "computed_in": computed_in, "note": note},
            setting={**sizes, "suggested": suggested, "dim": self.dim, "seed": self.seed},
            engine={"engine": plan.engine, "eps": self.eps, "expected": expected},
            result=self._write(G, rows, cloud, spent),
        )

    def _write(
        self,
        G: Tensor,  # (M, D) complex64
        rows: np.ndarray,  # (M,)
        cloud: PointCloud,
        spent: float,
    ) -> dict[str, object]:
        """Write the encodings of some rows in the requested form; returns what is reported."""
        if self.components is not None:
            G = principal_components([G], self.components).project(G)
        elif self.dtype == "float16":
            G = as_real(G).half()
        stored = G.numpy() if len(rows) == len(cloud) else scatter(G.numpy(), rows, len(cloud))
        names = self._names
        if self.output is not None and names is not None:
            write(self.output, with_encoding(cloud, names, stored))
        elif self.output is not None:
            save_array(self.output, stored)
        self.show(
            labeled("time", text.pace(len(G), spent)),
            labeled("result", f"{stored.shape} {stored.dtype}, {text.bytes_of(stored.nbytes)}"),
            *([labeled("written", str(self.output))] if self.output and names is None else []),
        )
        if names is not None:
            self.written()
        about = {"shape": stored.shape, "dtype": str(stored.dtype), "bytes": stored.nbytes}
        threads = torch.get_num_threads()
        return {**about, "seconds": spent, "threads": threads, "output": self.output}

    @property
    def _names(self) -> list[str] | None:
        """Names of the new fields; None if the encodings are written as an array."""
        if self.output is None or self.output.suffix.lower() == ".npy":
            return None
        width, kind = self.dim, "<c8"
        if self.components is not None:
            width, kind = self.components, "<f4"
        elif self.dtype == "float16":
            width, kind = 2 * self.dim, "<f2"
        return field_names(self.output, width, kind)

    def _suffix(self, path: Path) -> str:
        return super()._suffix(path) if self.batch.suffix is not None else ".npy"

    def _encoder(self, radius: float | None) -> VecKM:
        default = None if self.alpha is not None else DEFAULT_DETAIL
        names = ("alpha", "beta", "window", "engine", "eps", "seed")
        return VecKM(
            self.dim,
            radius=radius,
            detail=default if self.detail is None else self.detail,
            **{name: getattr(self, name) for name in names},
        )

    def _settings(self, encoder: VecKM, neighbors: int = 0) -> list[str]:
        why = f" (suggested: half of the points have {neighbors} others or more within it)"
        radius, alpha, beta = encoder.radius[0], encoder.alpha[0], encoder.beta[0]
        scale = f"detail {number(alpha * radius)}: alpha {number(alpha)}, beta {number(beta)}"
        return [
            labeled("window", f"{self.window}, radius {number(radius)}{why if neighbors else ''}"),
            labeled("encoding", f"{self.dim} complex numbers per point, seed {self.seed}; {scale}"),
        ]

    def _show_engine(self, plan: Plan, computed_in: str) -> dict[str, float | None]:
        """Show the engine and the expected seconds of each; returns those, None if it cannot."""
        auto = f"chosen by auto: the least expected time within eps = {self.eps:g}"
        why = auto if self.engine == "auto" else "as requested"
        self.show(labeled("engine", f"{plan.engine} in {computed_in}, {why}"))
        costs = {name: s if math.isfinite(s) else None for name, s in plan.costs.items()}
        for cost, name in sorted((s, name) for name, s in costs.items() if s is not None):
            mark = " <-" if name == plan.engine else ""
            noisy = "   noisy, ignores eps: only on request" if name == "random" else ""
            self.show(labeled("", f"  {name:<10} {text.seconds(cost):>9} expected{mark}{noisy}"))
        return costs


def _rounding(pos: Tensor, radius: float) -> str | None:
    """A warning about coordinates that were rounded before they were saved."""
    step, dtype = float(pos.abs().amax()) * torch.finfo(pos.dtype).eps, pos.numpy().dtype
    if step < radius / 50:
        return None
    return f"{dtype} coordinates of this size are {step:.2g} apart; save them as float64"
