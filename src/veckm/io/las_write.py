"""LAS and LAZ written: as they came, or new in version 1.4."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import IO

import lazrs
import numpy as np

from veckm.cloud import PointCloud
from veckm.io import copc, las_header
from veckm.io.errors import FileError
from veckm.io.las import bit_field, field_names, get_field, record_dtype, safely
from veckm.io.las_header import EXTRA_KINDS, Extra, LasTemplate
from veckm.io.names import renamed

_NORMALS = ("NormalX", "NormalY", "NormalZ")


class LasWriter:
    """Writes LAS or LAZ piece by piece; the header is completed at the end."""

    def __init__(
        self,
        file: IO[bytes],
        path: Path,
        like: PointCloud,
        count: int,
        *,
        scale: float | tuple[float, float, float] | None = None,
        offset: tuple[float, float, float] | None = None,
    ) -> None:
        self._file, self._path, self._expected = file, path, count
        old = like.source if isinstance(like.source, LasTemplate) else None
        template = old if old is not None else _fresh(like, scale, offset)
        if old is not None and (scale is not None or offset is not None):
            template = _rescaled(old, scale, offset)
        if like.crs is not None and like.crs != template.crs():
            template = template.with_crs(like.crs)
        had = set(field_names(template))
        self._names = renamed(like.fields, _NORMALS, had if old is not None else ())
        self._columns = _columns(like, self._names, template)
        new = [
            extra for extra, source in self._columns if source is not None and extra.name not in had
        ]
        self._octree = _octree(path, template, count)
        kept = template if self._octree is not None else _without_copc(template)
        self._template = kept.with_extras(new)
        self._dtype = record_dtype(self._template)
        self._low, self._high = np.full(3, np.inf), np.full(3, -np.inf)
        self._returns, self._count = np.zeros(16, np.int64), 0
        self._begin()

    def _begin(self) -> None:
        """Header and records, so that the points start where they will."""
        template, records = self._template, list(self._template.records)
        self._compressor = None
        packed = self._path.suffix.lower() == ".laz"
        vlr = None
        if packed:
            base = las_header.base_dtype(template.format).itemsize
            variable = self._octree is not None
            vlr = safely(
                lambda: lazrs.LazVlr.new_for_compression(
                    template.format, template.size - base, use_variable_size_chunks=variable
                )
            )
            record = las_header.make_record(
                ("laszip encoded", 22204), "by laz-rs", bytes(vlr.record_data())
            )
            records.insert(len(records) if template.packed is None else template.packed, record)
        body = b"".join(record.encode() for record in records) + template.gap
        head = bytearray(template.head)
        struct.pack_into("<II", head, 96, len(head) + len(body), len(records))
        head[104] = template.format | (128 if packed else 0)
        self._head, self._vlr = head, vlr
        self._start = len(head) + len(body)
        self._waiting = np.zeros(0, self._dtype)  # points of a node that is not complete
        self._nodes = 0  # that are written
        self._file.write(bytes(head) + body)
        if packed:
            self._file.flush()
            self._compressor = lazrs.ParLasZipCompressor(self._file, vlr)

    def append(self, cloud: PointCloud) -> None:
        """The next points."""
        if not len(cloud):
            return
        records = np.zeros(len(cloud), self._dtype)
        steps = self._steps(cloud)
        for column, axis in enumerate("XYZ"):
            records[axis] = steps[:, column]
        for extra, name in self._columns:
            if name is not None:
                values = _color(cloud.fields[name], extra.name, self._dtype)
                _set(records, extra.name, values, self._template)
        self._low, self._high = (
            np.minimum(self._low, steps.min(0)),
            np.maximum(self._high, steps.max(0)),
        )
        self._returns += np.bincount(
            get_field(records, "return_number", self._template), minlength=16
        )
        self._count += len(cloud)
        raw = records.view(np.uint8)
        if self._compressor is None:
            self._file.write(raw.data)
        elif self._octree is None:
            safely(partial(self._compressor.compress_many, raw))
        else:
            self._add_nodes(records, self._octree)

    def _add_nodes(self, records: np.ndarray, octree: copc.Octree) -> None:
        """The nodes that are complete, each a chunk of its own."""
        assert self._compressor is not None
        held = np.concatenate([self._waiting, records])
        ends = np.cumsum(octree.points[self._nodes :])
        number = int(np.searchsorted(ends, len(held), "right"))
        cuts = np.concatenate([[0], ends[:number]])
        raw = held.view(np.uint8).reshape(len(held), -1)
        chunks = [raw[a:b].reshape(-1) for a, b in pairwise(cuts.tolist())]
        if chunks:
            safely(partial(self._compressor.compress_chunks, chunks))
        self._waiting, self._nodes = held[int(cuts[-1]) :], self._nodes + number

    def _steps(self, cloud: PointCloud) -> np.ndarray:  # (N, 3) whole numbers
        """Coordinates in steps of the scale from the offset."""
        scale, offset = self._template.scale, self._template.offset
        moved = cloud.pos if np.array_equal(cloud.origin, offset) else cloud.xyz - offset
        with np.errstate(all="ignore"):
            steps = np.rint(moved / np.where(scale == 0, 1, scale))
        good = (steps >= -(2.0**31)) & (steps < 2.0**31)  # false for NaN too
        if not good.all():
            row = int(np.flatnonzero(~good.all(1))[0])
            raise ValueError(
                f"point {row} at {cloud.xyz[row].tolist()} cannot be written in steps of "
                f"{scale.tolist()} from {offset.tolist()}; drop points that are not finite, or "
                "give write() a coarser scale or a nearer offset"
            )
        return steps

    def finish(self) -> None:
        """Extended records, and the numbers of the header that only the points tell."""
        if self._count != self._expected:
            raise ValueError(f"{self._path}: got {self._count} points, not {self._expected}")
        if self._compressor is not None:
            safely(self._compressor.done)
        end = self._file.seek(0, 2)
        if self._octree is not None:
            self._move_octree(self._octree, end)
        late = self._template.late
        starts = end + np.cumsum([0] + [60 + len(record.data) for record in late])
        for record in late:
            self._file.write(record.encode())
        self._complete(end, starts.tolist())
        self._file.seek(0)
        self._file.write(bytes(self._head))
        self._file.seek(0, 2)

    def _move_octree(self, octree: copc.Octree, end: int) -> None:
        """Where the nodes are now, in the pages after the points and in the record before them."""
        self._file.seek(self._start)
        table = safely(lambda: lazrs.read_chunk_table(self._file, self._vlr))
        sizes = np.array([size for _, size in table], dtype=np.int64)
        starts = self._start + 8 + np.concatenate([[0], np.cumsum(sizes)[:-1]])
        self._template, info = copc.moved(self._template, octree, starts, sizes, end)
        self._file.seek(len(self._head))
        self._file.write(info.encode())
        self._file.seek(0, 2)

    def _complete(self, end: int, starts: list[int]) -> None:
        head, template = self._head, self._template
        by_return = self._returns[1:16].tolist()
        # Old readers look here; a file of 1.4 whose writer did not care stays without.
        careless = any(template.head[247:255]) and not any(template.head[107:111])
        fits = (
            self._count < 2**32 and template.format < 6 and not (template.minor >= 4 and careless)
        )
        legacy = self._count if fits else 0
        few = by_return[:5] if legacy else [0] * 5
        struct.pack_into("<I5I", head, 107, legacy, *few)
        low, high = (
            (edge if self._count else np.zeros(3)) * template.scale + template.offset
            for edge in (self._low, self._high)
        )
        pairs = np.stack([high, low], axis=-1) if self._count else np.zeros((3, 2))
        said = template.bounds[::-1].T  # others may round them otherwise
        near = np.abs(said - pairs) <= np.abs(template.scale)[:, None] / 2
        pairs = np.where(near, said, pairs)
        struct.pack_into("<6d", head, 179, *pairs.reshape(-1))
        if template.minor >= 3:
            wave = 0 if template.wave is None else starts[template.wave]
            struct.pack_into("<Q", head, 227, wave)
        if template.minor >= 4:
            late = len(template.late)
            struct.pack_into("<QI", head, 235, end if late else 0, late)
            struct.pack_into("<Q15Q", head, 247, self._count, *by_return)
        elif self._count >= 2**32:
            raise ValueError(f"{self._path}: LAS before 1.4 has room for 2^32 points")


def _columns(
    like: PointCloud, names: dict[str, str], template: LasTemplate
) -> list[tuple[Extra, str | None]]:
    """For every field of the file the field of the cloud that fills it, if any."""
    standard = set(las_header.standard_names(template.format))
    known = standard | {extra.name for extra in template.extras}
    columns: list[tuple[Extra, str | None]] = []
    for name, values in like.fields.items():
        shown = names[name]
        width = values.shape[1] if values.ndim == 2 else 1
        if shown in standard and values.dtype.kind == "f" and not _is_float(template, shown):
            shown = f"{shown}_{values.dtype.name}"  # what is not whole has no place there
        if shown in known:
            columns.append((Extra(shown, "u1", width), name))
            continue
        kind = {"b1": "u1", "f2": "f4"}.get(
            f"{values.dtype.kind}{values.dtype.itemsize}", values.dtype.newbyteorder("=").str[1:]
        )
        if shown in _NORMALS and kind == "f8":
            kind = "f4"  # as PDAL and CloudCompare have them
        if kind not in EXTRA_KINDS:
            raise ValueError(f"LAS has no numbers like field {name!r}, {values.dtype}")
        if width <= 3:
            columns.append((Extra(shown, kind, width), name))
            continue
        raise ValueError(f"LAS fields have at most three columns, {name!r} has {width}")
    return columns


def _is_float(template: LasTemplate, name: str) -> bool:
    base = las_header.base_dtype(template.format)
    return name in (base.names or ()) and base[name].kind == "f"


def _color(values: np.ndarray, name: str, dtype: np.dtype) -> np.ndarray:
    """LAS colors have 16 bits; those of 8 bits are spread over them."""
    if name in ("red", "green", "blue") and values.dtype == np.uint8 and dtype[name].base == "u2":
        return values.astype(np.uint16) * 257
    return values


def _fresh(
    like: PointCloud,
    scale: float | tuple[float, float, float] | None,
    offset: tuple[float, float, float] | None,
) -> LasTemplate:
    """A new header: format 6, or 7 with colors; steps so fine that a cloud has 1e8 of them."""
    xyz = like.xyz[np.isfinite(like.pos).all(1)]
    low, high = (xyz.min(0), xyz.max(0)) if len(xyz) else (like.origin, like.origin)
    if scale is None:
        extent = float((high - low).max())
        scale = 10.0 ** (np.floor(np.log10(extent)) - 8) if extent > 0 else 1e-3
    steps = np.broadcast_to(np.asarray(scale, dtype=np.float64), 3)
    if offset is None:
        middle = np.floor((low + high) / 2)
        offset = tuple(middle.tolist())
    colors = {"red", "green", "blue"} <= set(like.fields)
    return las_header.new_template(7 if colors else 6, steps, np.asarray(offset, np.float64))


def _rescaled(
    old: LasTemplate,
    scale: float | tuple[float, float, float] | None,
    offset: tuple[float, float, float] | None,
) -> LasTemplate:
    steps = old.scale if scale is None else np.broadcast_to(np.asarray(scale, np.float64), 3)
    where = old.offset if offset is None else np.asarray(offset, np.float64)
    packed = struct.pack("<6d", *steps, *where)
    return replace(old, head=old.head[:131] + packed + old.head[179:])


def _octree(path: Path, template: LasTemplate, count: int) -> copc.Octree | None:
    """The octree that is kept; a COPC is written from a COPC with all its points."""
    if not copc.is_copc(path):
        return None
    octree: copc.Octree | None = template.octree
    if octree is None or sum(octree.points) != count:
        raise FileError(
            path,
            "a COPC is written from a COPC with all its points, whose octree it keeps; "
            "name the file .laz",
        )
    return octree


def _without_copc(template: LasTemplate) -> LasTemplate:
    """The points keep their order, but what we write is no octree of chunks any more."""
    records = tuple(r for r in template.records if r.key[0] != "copc")
    late = tuple(r for r in template.late if r.key[0] != "copc")
    if len(records) == len(template.records):
        return template
    packed = None if template.packed is None else min(template.packed, len(records))
    return replace(template, records=records, late=late, packed=packed)


def _set(records: np.ndarray, name: str, values: np.ndarray, template: LasTemplate) -> None:
    bits = bit_field(template, name)
    if bits is not None:
        byte, mask, shift = bits
        small = _fitted(name, values, np.dtype("u1"), mask >> shift)
        records[byte] = (records[byte] & (255 - mask)) | (small << shift)
        return
    extra = next((e for e in template.extras if e.name == name), None)
    if extra is not None and extra.scale is not None and extra.offset is not None:
        scale, offset = np.array(extra.scale), np.array(extra.offset)
        if extra.width == 1:
            scale, offset = scale[0], offset[0]
        values = (values - offset) / scale
        if np.dtype(extra.kind).kind in "iu":
            values = np.rint(values)
    records[name] = _fitted(name, values, records.dtype[name].base)


def _fitted(name: str, values: np.ndarray, dtype: np.dtype, most: int | None = None) -> np.ndarray:
    """Values as whole numbers of the file; raises where they do not fit."""
    if dtype.kind == "f" or (values.dtype == dtype and most is None):
        return values.astype(dtype, copy=False)
    info = np.iinfo(dtype)
    low, high = info.min, info.max if most is None else most
    if len(values) and not (np.min(values) >= low and np.max(values) <= high):
        raise ValueError(
            f"field {name!r} goes from {np.min(values)} to {np.max(values)}, "
            f"but the file has room for {low} to {high}"
        )
    return np.asarray(values.astype(dtype))
