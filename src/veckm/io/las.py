"""LAS, LAZ and COPC through laspy: whole, by range and piece by piece, with all their records."""

from __future__ import annotations

import re
import warnings
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import laspy
import numpy as np
from laspy.header import GpsTimeType, LasHeader, Version
from laspy.point.dims import DimensionKind, ScaledArrayView, SubFieldView
from laspy.vlrs.known import WktCoordinateSystemVlr
from laspy.vlrs.vlrlist import VLRList

from veckm.cloud import PointCloud, Template
from veckm.io import laz
from veckm.io.errors import FileWarning
from veckm.io.records import WIDER, check_room, file_names
from veckm.io.source import Source

_NORMALS = ("NormalX", "NormalY", "NormalZ")
_XYZ = ("X", "Y", "Z")
#: Names of the classes 0, 1, ... of the field ``classification``.
CLASSES = (
    *("never classified", "unclassified", "ground", "low vegetation", "medium vegetation"),
    *("high vegetation", "building", "low noise", "model key point", "water", "rail", "road"),
    *("overlap", "wire guard", "wire conductor", "transmission tower", "wire connector"),
    *("bridge deck", "high noise", "overhead structure", "ignored ground", "snow"),
    "temporal exclusion",
)


@dataclass(frozen=True)
class LasTemplate(Template):
    """The header with all records, and the waveforms that a file of version 1.3 has at its end."""

    header: LasHeader
    waveforms: VLRList


class LasSource(Source):
    """A LAS, LAZ or COPC file by range."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            exact = laz.ExactReader(file, path.stat().st_size)
            exact.check_records()
            header = LasHeader.read_from(exact, read_evlrs=True)
            waveforms = VLRList()
            place = header.start_of_waveform_data_packet_record
            if place and not header.evlrs:
                exact.seek(place)
                waveforms = VLRList.read_from(exact, 1, extended=True)
            if not np.isfinite([*header.scales, *header.offsets]).all():
                raise ValueError("the scale or offset in its header is not a finite number")
            self._chunks = None
            if header.are_points_compressed:
                self._chunks = laz.Chunks(file, header, exact.length)
            else:
                room = (exact.length - header.offset_to_point_data) // header.point_format.size
                check_room(header.point_count, room)
        self._header, self.count = header, header.point_count
        self._template = LasTemplate(header, waveforms)
        self._names = [name for name in header.point_format.dimension_names if name not in _XYZ]

    def _read(self, start: int, stop: int) -> PointCloud:
        points = self._points(start, stop)
        fields = {name: np.asarray(points[name]) for name in self._names}
        crs = _crs(self._header)
        return PointCloud(self._pos(points), self._header.offsets, fields, crs, self._template)

    def _read_xyz(self, start: int, stop: int) -> np.ndarray:
        xyz: np.ndarray = self._pos(self._points(start, stop)) + self._header.offsets
        return xyz

    def _pos(self, points: Any) -> np.ndarray:
        pairs = zip(_XYZ, self._header.scales, strict=True)
        return np.stack([points.array[axis] * scale for axis, scale in pairs], axis=-1)

    def _points(self, start: int, stop: int) -> Any:
        header = self._header
        if start == stop:
            return laspy.ScaleAwarePointRecord.empty(header=header)
        if self._chunks is not None:
            with self.path.open("rb") as file:
                found = self._chunks.read(file, start, stop)
        else:
            dtype = header.point_format.dtype()
            at = header.offset_to_point_data + start * dtype.itemsize
            found = np.fromfile(self.path, dtype, stop - start, offset=at)
        if len(found) < stop - start:
            raise ValueError(f"it ended after {start + len(found)} points")
        about = (header.point_format, header.scales, header.offsets)
        return laspy.ScaleAwarePointRecord(found, *about)

    def bounds(self) -> np.ndarray:  # (2, 3) float64
        """Minimum and maximum of the coordinates; warns if those of the header are others."""
        found, header = super().bounds(), np.stack([self._header.mins, self._header.maxs])
        if self.count and not bool((np.abs(found - header) <= 2 * self._header.scales).all()):
            low, high = ([f"{x:.10g}" for x in row] for row in header)
            said = f"its header promises a box from {low} to {high}, but its points are elsewhere"
            warnings.warn(FileWarning(f"{self.path}: {said}"), stacklevel=2)
        return found


def _crs(header: LasHeader) -> str | None:
    """WKT, or the EPSG code of GeoTIFF keys."""
    records = [*header.vlrs, *(header.evlrs or [])]
    for record in records:
        if isinstance(record, WktCoordinateSystemVlr) and record.string.strip("\0 \n"):
            return str(record.string).split("\0")[0].strip()
    for record in records:
        keys = {key.id: key.value_offset for key in getattr(record, "geo_keys", [])}
        code = keys.get(3072) or keys.get(2048)  # a projected or else a geographic system
        if code and re.fullmatch(r"\d{4,5}", str(code)) and code < 32767:
            return f"EPSG:{code}"
    return None


class LasWriter:
    """Writes LAS or LAZ piece by piece. A COPC becomes a plain LAZ: its octree is not kept."""

    def __init__(
        self,
        file: IO[bytes],
        path: Path,
        like: PointCloud,
        _count: int,
        scale: Any = None,  # a number or three
        offset: Any = None,  # three numbers
    ) -> None:
        if path.name.lower().endswith(".copc.laz"):
            raise ValueError("COPC cannot be written, only LAZ; end the name in .laz alone")
        self._file = file
        self._template = like.source if isinstance(like.source, LasTemplate) else None
        header = deepcopy(self._template.header) if self._template else _new_header(like)
        if scale is not None:
            header.scales = np.broadcast_to(np.asarray(scale, np.float64), 3).copy()
        if offset is not None:
            header.offsets = np.asarray(offset, np.float64)
        if like.crs is not None and like.crs != _crs(header):
            _set_crs(header, like.crs)
        _drop(header, lambda record: record.user_id == "copc")
        self._columns = self._plan(like, header)
        header.version = max(header.version, Version(1, 1))  # laspy does not write 1.0
        for record in header.vlrs.get("ExtraBytesVlr"):
            for each in record.extra_bytes_structs:  # laspy computes them from one point only
                if each.data_type:
                    each.options &= ~(each.MIN_BIT_MASK | each.MAX_BIT_MASK)
        packed = path.suffix.lower() == ".laz"
        self._writer = laspy.LasWriter(file, header, do_compress=packed, closefd=False)

    def _plan(self, like: PointCloud, header: LasHeader) -> dict[str, str]:
        """Name in the cloud -> name in the file; what the file lacks becomes extra bytes."""
        format = header.point_format
        had = set(format.dimension_names)
        standard = format.standard_dimensions
        integers = {each.name for each in standard if each.kind != DimensionKind.FloatingPoint}
        names = file_names(like.fields, _NORMALS, had if self._template else ())
        new = []
        for name, values in like.fields.items():
            stored, kind = names[name], values.dtype.newbyteorder("=").str[1:]
            if kind[0] == "f" and stored in integers:  # it would be rounded
                stored = names[name] = f"{stored}_{values.dtype.name}"
            if stored in had:
                continue
            kind = "f4" if stored in _NORMALS else WIDER.get(kind, kind)  # as PDAL has normals
            width = values.shape[1] if values.ndim == 2 else 1
            if kind[0] not in "iuf" or int(kind[1:]) > 8 or width > 3:
                raise ValueError(f"LAS cannot store field {name!r}, {width} columns of {kind}")
            if len(stored.encode()) > 32:
                raise ValueError(f"LAS names have at most 32 bytes, {stored!r} has more")
            new.append(laspy.ExtraBytesParams(stored, kind if width == 1 else f"{width}{kind}"))
        if new:
            header.add_extra_dims(new)
            header.version = max(header.version, Version(1, 4))  # the first that names them
        return names

    def append(self, cloud: PointCloud) -> None:
        """Write the next points."""
        header = self._writer.header
        points = laspy.ScaleAwarePointRecord.zeros(len(cloud), header=header)
        for axis, steps in zip(_XYZ, self._steps(cloud).T, strict=True):
            points.array[axis] = steps
        for name, stored in self._columns.items():
            _set(points, stored, cloud.fields[name])
        self._writer.write_points(points)

    def _steps(self, cloud: PointCloud) -> np.ndarray:  # (N, 3) whole numbers
        """Coordinates in steps of the scale from the offset."""
        scale, offset = self._writer.header.scales, self._writer.header.offsets
        moved = cloud.pos if np.array_equal(cloud.origin, offset) else cloud.xyz - offset
        with np.errstate(all="ignore"):
            steps: np.ndarray = np.rint(moved / np.where(scale == 0, 1, scale))
        good = ((steps >= -(2.0**31)) & (steps < 2.0**31)).all(1)  # false for NaN too
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            raise ValueError(
                f"point {row} at {cloud.xyz[row].tolist()} cannot be written in steps of "
                f"{scale.tolist()} from {offset.tolist()}; drop points that are not finite, or "
                "give write() a coarser scale or a nearer offset"
            )
        return steps

    def finish(self) -> None:
        """Write extended records, and complete the header."""
        writer = self._writer
        writer.point_writer.done()
        writer.done = True
        self._file.seek(0, 2)
        if self._template:
            self._write_evlrs(self._template)
        writer.close()

    def _write_evlrs(self, template: LasTemplate) -> None:
        """Extended records; the header points to the one that holds waveforms."""
        header, evlrs = self._writer.header, self._writer.header.evlrs or VLRList()
        end = self._file.tell()
        waveforms = 0
        for record in template.waveforms or evlrs:
            if (record.user_id, record.record_id) == ("LASF_Spec", 65535):
                waveforms = self._file.tell()
            VLRList([record]).write_to(self._file, as_extended=True)
        header.start_of_waveform_data_packet_record = waveforms
        if evlrs:
            header.number_of_evlrs, header.start_of_first_evlr = len(evlrs), end


def _new_header(like: PointCloud) -> LasHeader:
    """Version 1.4; the scale is so fine that the extent of the cloud is at least 1e8 steps."""
    colors = {"red", "green", "blue"} <= set(like.fields)
    header = LasHeader(version="1.4", point_format=7 if colors else 6)
    header.generating_software = "veckm"
    header.global_encoding.gps_time_type = GpsTimeType.STANDARD
    header.global_encoding.wkt = True
    xyz = like.xyz[np.isfinite(like.pos).all(1)]
    low, high = (xyz.min(0), xyz.max(0)) if len(xyz) else (like.origin, like.origin)
    extent = float((high - low).max())
    step = 10.0 ** (np.floor(np.log10(extent)) - 8) if extent > 0 else 1e-3
    header.scales, header.offsets = np.full(3, step), np.floor((low + high) / 2)
    return header


def _set_crs(header: LasHeader, wkt: str) -> None:
    if "[" not in wkt:
        raise ValueError(
            f"LAS takes a coordinate reference system as WKT, got {wkt[:40]!r}; "
            "pyproj.CRS(...).to_wkt() gives it"
        )
    _drop(header, lambda record: record.user_id == "LASF_Projection")
    header.vlrs.append(WktCoordinateSystemVlr(wkt))
    header.global_encoding.wkt = True


def _drop(header: LasHeader, unwanted: Any) -> None:
    for records in (header.vlrs, header.evlrs or []):
        records[:] = [record for record in records if not unwanted(record)]


def _set(points: Any, name: str, values: np.ndarray) -> None:
    """Set a dimension; raises where the values do not fit."""
    view = points[name]
    if isinstance(view, SubFieldView):
        view[:] = _fitted(name, values, np.dtype("u1"), view.max_value_allowed)
        return
    array = points.array[name]
    if isinstance(view, ScaledArrayView):  # laspy would round floats too
        values = (values - view.offset) / view.scale
        values = np.rint(values) if array.dtype.kind in "iu" else values
    if name in ("red", "green", "blue") and values.dtype == np.uint8:
        values = values.astype(np.uint16) * 257  # LAS colors have 16 bits
    array[:] = _fitted(name, values, array.dtype)


def _fitted(name: str, values: np.ndarray, dtype: np.dtype, most: int | None = None) -> np.ndarray:
    """Values in the dtype of the file; raises where they do not fit."""
    if dtype.kind == "f" or (values.dtype == dtype and most is None):
        return values.astype(dtype, copy=False)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max if most is None else most
    if len(values) and not (np.min(values) >= low and np.max(values) <= high):
        raise ValueError(
            f"field {name!r} goes from {np.min(values)} to {np.max(values)}, "
            f"but the file has room for {low} to {high}"
        )
    return np.asarray(values.astype(dtype))
