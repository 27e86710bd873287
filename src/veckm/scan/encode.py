"""The encoding of every point of a cloud larger than memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from veckm.cloud import PointCloud
from veckm.components import principal_components
from veckm.encoder import VecKM
from veckm.engines import Norm
from veckm.engines.lattice import Lattice
from veckm.inputs import SMALLEST_EPS
from veckm.io.atomic import writing
from veckm.io.errors import FileError
from veckm.io.formats import find, streams
from veckm.io.output import create_sink
from veckm.io.source import Source
from veckm.scan.operation import Advance, Operation
from veckm.scan.spool import Arrays, Spool, chunks_of
from veckm.scan.tiles import neighborhood
from veckm.sizes import WindowName, make_window

#: Fields that encodings may become: the records of LAS have room for 341.
_MOST_FIELDS = 256
#: Bytes of the output that are in memory at a time.
_BLOCK = 1 << 23


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
        names = ("radius", "detail", "window", "engine", "norm", "eps", "seed")
        return VecKM(self.dim, **{name: getattr(self, name) for name in names})

    @property
    def phases(self) -> tuple[str, ...]:
        """A single pass."""
        return ("encode",)

    @property
    def reach(self) -> float:
        """How far from a tile its halo goes."""
        windows = [make_window(self.window, None, radius) for radius in self.radius]
        reach = max(window.reach(self.eps, 3) for window in windows)
        if self.engine == "grid":
            betas = self.encoder().beta
            reach = max(reach, *(3 * Lattice.for_accuracy(b, self.eps, 3).reach for b in betas))
        return reach * (1 + 1e-6)

    @property
    def form(self) -> tuple[int, str]:
        """Numbers of each point, and their dtype."""
        width = self.dim * len(self.radius)
        if self.components is not None:
            return self.components, "<f4"
        return (2 * width, "<f2") if self.dtype == "float16" else (width, "<c8")

    def check(self, output: Path) -> None:
        """An array, or a cloud with as many further fields, in a format written by range."""
        if output.suffix.lower() != ".npy":
            field_names(output, *self.form)
            if find(output, write=True).writer is None:
                raise FileError(output, f"cannot be written by range; {streams()} can")

    def tile(self, phase: str, spool: Spool, tile: int, stats: Any) -> Arrays:
        """Encode the points of a tile among those around it."""
        del phase, stats
        own = spool.points(spool.range(tile))
        middle = (own.min(0) + own.max(0)) / 2
        pos = torch.from_numpy(neighborhood(spool, tile, self.reach) - middle)
        queries = torch.from_numpy(own - middle)
        dtype = working_dtype(pos, self.detail / min(self.radius), self.eps)
        queries, pos = queries.to(dtype), pos.to(dtype)
        encoded = self.encoder()(pos, queries=queries, progress=False).to(torch.complex64)
        if self.dtype == "float16":
            encoded = torch.view_as_real(encoded).flatten(1).half()
        return {"encoding": encoded.numpy()}

    def write(self, source: Source, spool: Spool, path: Path, advance: Advance) -> None:
        """A .npy file in the order of the points of the input, or the input with new fields."""

        def load(tile: int) -> torch.Tensor:
            return torch.from_numpy(spool.load("encode", tile, "encoding"))

        def results(tile: int) -> Arrays:
            found = load(tile) if reduce is None else reduce.project(load(tile))
            return {"encoding": found.numpy()}

        (width, kind), reduce = self.form, None
        if self.components is not None:
            reduce = principal_components(map(load, range(spool.tiles)), self.components)
        if path.suffix.lower() != ".npy":
            names = field_names(path, width, kind)
            with create_sink(path, source, dict.fromkeys(names, np.dtype("f4"))) as append:
                columns = spool.in_input_order(results, path.parent)
                for part, found in zip(chunks_of(source.count), columns, strict=True):
                    append(
                        with_encoding(source.read(part.start, part.stop), names, found["encoding"])
                    )
                    advance(part.stop - part.start)
            return
        step = max(1, _BLOCK // (width * np.dtype(kind).itemsize))
        with writing(path) as file:
            shape = (source.count, width)
            about = {"descr": kind, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_2_0(file, about)
            for found in spool.in_input_order(results, path.parent, step):
                file.write(found["encoding"].data)
                advance(len(found["encoding"]))


def field_names(path: Path, width: int, kind: str) -> list[str]:
    """Names of the fields that encodings become in a cloud."""
    count = width * (2 if kind == "<c8" else 1)
    if count > _MOST_FIELDS:
        raise FileError(
            path,
            f"{count} numbers per point are too many fields, at most {_MOST_FIELDS}: give "
            "--components 16 (components=16 in Python), a smaller dim, or a name that ends in .npy",
        )
    pair = ("re", "im") if kind in ("<c8", "<f2") else ("",)
    return [f"veckm_{part}{k}" for k in range(count // len(pair)) for part in pair]


def with_encoding(cloud: PointCloud, names: list[str], found: np.ndarray) -> PointCloud:
    """A cloud with its encodings, (N, width), as fields in float32."""
    numbers = found.view(np.float32) if found.dtype.kind == "c" else found.astype(np.float32)
    return cloud.with_fields(**dict(zip(names, numbers.T.copy(), strict=True)))


def working_dtype(x: torch.Tensor, alpha: float, eps: float) -> torch.dtype:  # (N, 3)
    """float32 if it is exact enough for phases of such coordinates, which are about their center,
    else float64."""
    rounding = float(x.abs().amax()) * torch.finfo(torch.float32).eps / 2
    single = eps >= SMALLEST_EPS[torch.float32] and rounding * alpha <= eps / 10
    return torch.float32 if single else torch.float64
