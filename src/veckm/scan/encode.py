"""The encoding of every point of a cloud larger than memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from veckm.components import principal_components
from veckm.encoder import VecKM
from veckm.engines import Norm
from veckm.engines.lattice import Lattice
from veckm.inputs import SMALLEST_EPS
from veckm.io.atomic import writing
from veckm.io.errors import FileError
from veckm.io.source import Source
from veckm.scan.operation import Advance, Arrays, Operation, Phase
from veckm.scan.spool import CHUNK, SLOTS, Field, Spool
from veckm.scan.tiles import Region, halo_cells
from veckm.sizes import WindowName, make_window


@dataclass(frozen=True)
class Encode(Operation):
    """The encoding of every point, as by ``VecKM(dim, radius=..., engine="neighbors")``.

    With ``engine="neighbors"`` a Gaussian is cut at the distance beyond which a share `eps` of its
    mass lies. The halo is that distance, and the result is that of the whole cloud in memory with
    the same engine and `eps`, up to rounding, which also decides on pairs exactly at the cut.
    Phases are computed about the middle of each tile, so a cloud so large that float32 would lose
    digits is encoded more accurately in tiles.

    With ``engine="grid"``, faster where a window holds thousands of points, the halo is that of its
    nodes. The error of both results is at most `eps`.

    A worker holds, by the sizes of its arrays, about ``(8 dim + 200) (tile + halo)`` and
    ``16 dim scales tile`` bytes; twice that where it computes in float64.

    Attributes:
        dim: complex numbers for each scale.
        radius: size of the window in the units of the cloud, one per scale.
        detail: alpha * radius.
        window, norm, eps, seed: as for :class:`veckm.VecKM`.
        engine: ``"neighbors"`` or ``"grid"``.
        dtype: of the output: ``"complex64"``, (N, scales dim), or ``"float16"``,
            (N, 2 scales dim), real and imaginary parts in turn.
        components: write so many principal components instead, (N, components) float32.
    """

    dim: int
    radius: tuple[float, ...]
    detail: float = 6.0
    window: WindowName = "gaussian"
    engine: Literal["neighbors", "grid"] = "neighbors"
    norm: Norm = "unit"
    eps: float = 1e-2
    seed: int = 0
    dtype: Literal["complex64", "float16"] = "complex64"
    components: int | None = None

    def __post_init__(self) -> None:
        if self.engine not in ("neighbors", "grid"):
            raise ValueError(
                f"engine must be 'neighbors' or 'grid' in tiles, got {self.engine!r}: one engine "
                "for all tiles, so that they fit"
            )
        if self.dtype not in ("complex64", "float16"):
            raise ValueError(f"dtype must be 'complex64' or 'float16', got {self.dtype!r}")
        most = 2 * self.dim * len(self.radius)
        if self.components is not None and not 1 <= self.components <= most:
            raise ValueError(f"components must be from 1 to {most}, got {self.components!r}")
        self.encoder()  # raises if anything else is wrong

    def encoder(self) -> VecKM:
        """The encoder of every tile."""
        return VecKM(
            self.dim,
            radius=self.radius,
            detail=self.detail,
            window=self.window,
            engine=self.engine,
            norm=self.norm,
            eps=self.eps,
            seed=self.seed,
        )

    @property
    def phases(self) -> tuple[Phase, ...]:
        """A single pass."""
        return (Phase("encode", (self.field,)),)

    @property
    def field(self) -> Field:
        """The encoding as it is stored."""
        width = self.dim * len(self.radius)
        if self.dtype == "complex64":
            return Field("encoding", "c8", width)
        return Field("encoding", "f2", 2 * width)

    @property
    def reach(self) -> float:
        """How far from a tile its halo goes."""
        windows = [make_window(self.window, None, radius) for radius in self.radius]
        reach = max(window.reach(self.eps, 3) for window in windows)
        if self.engine == "grid":
            betas = self.encoder().beta
            reach = max(reach, *(3 * Lattice.for_accuracy(b, self.eps, 3).reach for b in betas))
        return reach * (1 + 1e-6)

    def check(self, output: Path) -> None:
        """Encodings are written as an array."""
        if output.suffix.lower() != ".npy":
            raise FileError(output, "encodings are written as .npy; choose a name that ends so")

    def tile(self, phase: Phase, spool: Spool, tile: int, stats: dict[str, Any]) -> Arrays:
        """Encode the points of a tile among those around it."""
        del stats
        cells, (start, stop) = spool.cells(tile), spool.range(tile)
        own = np.arange(cells.start, cells.stop)
        region = Region(spool, halo_cells(spool, own, np.full(len(own), self.reach))[0])
        first = int(region.rows_at(np.array([start]))[0])
        here = slice(first, first + stop - start)
        low, high = region.xyz[here].min(0), region.xyz[here].max(0)
        x = region.xyz - (low + high) / 2
        kept = (np.abs(x) <= (high - low) / 2 + self.reach).all(1)  # cells are whole, halos not
        queries, pos = self._working(x[here]), self._working(x[kept])
        if queries.dtype != pos.dtype:
            queries, pos = queries.double(), pos.double()
        encoded = self.encoder()(pos, queries=queries, progress=False).to(torch.complex64)
        if self.dtype == "float16":
            encoded = torch.view_as_real(encoded).flatten(1).half()
        return {phase.fields[0].name: encoded.numpy()}

    def _working(self, x: np.ndarray) -> torch.Tensor:
        """In float32 where that is exact enough for eps."""
        alpha = self.detail / min(self.radius)
        rounding = float(np.abs(x).max(initial=0.0)) * torch.finfo(torch.float32).eps / 2
        single = self.eps >= SMALLEST_EPS[torch.float32] and rounding * alpha <= self.eps / 10
        return torch.from_numpy(x).float() if single else torch.from_numpy(x)

    def write(self, source: Source, spool: Spool, path: Path, advance: Advance) -> None:
        """A .npy file in the order of the points of the input."""
        field, width, reduce = self.field, self.field.width, None
        step = max(1, CHUNK * 16 // field.row)  # encodings in memory at a time
        parts = [(i, min(i + step, source.count)) for i in range(0, source.count, step)]
        if self.components is not None:
            chunks = (torch.from_numpy(spool.read(field, [part])) for part in parts)
            width, reduce = self.components, principal_components(chunks, self.components)
        kind = np.dtype(f"<{field.dtype}" if reduce is None else "<f4")
        with writing(path) as file:
            header = {"descr": kind.str, "fortran_order": False, "shape": (source.count, width)}
            np.lib.format.write_array_header_2_0(file, header)
            for part in parts:
                rows = spool.gather(field, spool.read(SLOTS, [part]))
                if reduce is not None:
                    rows = reduce.project(torch.from_numpy(rows)).numpy()
                file.write(np.ascontiguousarray(rows, kind).data)
                advance(len(rows))
