"""E57, the exchange format of terrestrial scanners, through the package pye57."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from veckm.cloud import COLOR_NAMES, NORMAL_NAMES, PointCloud, Template
from veckm.io.errors import FileError, missing
from veckm.io.names import renamed

_CARTESIAN = ("cartesianX", "cartesianY", "cartesianZ")
_SPHERICAL = ("sphericalRange", "sphericalAzimuth", "sphericalElevation")
_NORMALS = NORMAL_NAMES[3]
_URIS = {"nor": "http://www.libe57.org/E57_NOR_surface_normals.txt", "veckm": "urn:veckm:fields"}
#: Names that the standard has; others need the prefix of an extension.
_STANDARD = {
    *_CARTESIAN,
    *_SPHERICAL,
    *COLOR_NAMES[2],
    *("intensity", "rowIndex", "columnIndex", "returnIndex", "returnCount", "timeStamp"),
    *("cartesianInvalidState", "sphericalInvalidState", "isColorInvalid", "isIntensityInvalid"),
    "isTimeStampInvalid",
}


@dataclass(frozen=True)
class Column:
    """How a file stores a number: float, whole within limits, or whole in steps."""

    kind: str  # f4, f8, int or scaled
    low: int = 0
    high: int = 0
    scale: float = 1.0
    offset: float = 0.0

    @property
    def dtype(self) -> np.dtype:
        """The smallest that holds it."""
        if self.kind == "int":
            kinds = ("u1", "u2", "u4", "i8") if self.low >= 0 else ("i1", "i2", "i4", "i8")
            for kind in kinds:
                if np.iinfo(kind).min <= self.low and self.high <= np.iinfo(kind).max:
                    return np.dtype(kind)
            return np.dtype("i8")
        return np.dtype("f4" if self.kind == "f4" else "f8")

    @property
    def buffer(self) -> np.dtype:
        """What the library fills; of larger whole numbers it knows C's long long on all systems."""
        return np.dtype("q") if self.dtype.kind in "iu" and self.dtype.itemsize > 2 else self.dtype


@dataclass(frozen=True)
class Scan:
    """One of the scans of a file: its words, where the scanner stood, and its columns."""

    words: dict[str, str]
    count: int
    turn: np.ndarray  # (4,) a quaternion w x y z
    place: np.ndarray  # (3,)
    columns: dict[str, Column]


@dataclass(frozen=True)
class E57Template(Template):
    """The scans of a file and the extensions that it names; images are not kept."""

    scans: tuple[Scan, ...]
    extensions: dict[str, str] = field(default_factory=dict)

    def subset(self) -> Template:
        """A choice of points is one scan, in the coordinates of all."""
        return E57Template((), self.extensions)


def _library(path: Path) -> Any:
    try:
        from pye57 import libe57
    except ImportError:
        raise missing(path, "pye57", "e57") from None
    return libe57


def read(path: Path) -> PointCloud:
    """All scans of a file in one system of coordinates, one after the other."""
    e57 = _library(path)
    size = path.stat().st_size
    try:
        image = e57.ImageFile(str(path), "r")
        try:
            return _read(e57, image, size)
        finally:
            image.close()
    except (e57.E57Exception, RuntimeError, TypeError) as error:
        raise FileError(path, f"cannot be read as E57: {str(error).splitlines()[0]}") from error


def _read(e57: Any, image: Any, size: int) -> PointCloud:
    root = image.root()
    scans, parts = [], []
    for node in root["data3D"] if root.isDefined("data3D") else []:
        scan, data = _read_scan(e57, image, node, size)
        scans.append(scan)
        parts.append(data)
    if not scans:
        raise ValueError("it has no scans")
    names = [n for n in parts[0] if all(n in part for part in parts)]
    lost = {n for part in parts for n in part} - set(names)
    if lost:
        raise ValueError(f"not all of its scans have {sorted(lost)}")
    joined = {name: np.concatenate([part[name] for part in parts]) for name in names}
    pos, origin = _places(scans, joined.pop("\0local"))
    crs = root["coordinateMetadata"].value() if root.isDefined("coordinateMetadata") else ""
    prefixes = {
        image.extensionsPrefix(i): image.extensionsUri(i) for i in range(image.extensionsCount())
    }
    fields = {name.removeprefix("veckm:"): values for name, values in joined.items()}
    return PointCloud(pos, origin, fields, crs or None, E57Template(tuple(scans), prefixes))


def _places(scans: list[Scan], local: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points of the scans about one origin, that of the first scanner."""
    origin = scans[0].place
    pos, at = np.empty_like(local), 0
    for scan in scans:
        part = local[at : at + scan.count]
        turned = part if _is_identity(scan.turn) else part @ _matrix(scan.turn).T
        moved = scan.place - origin
        pos[at : at + scan.count] = turned + moved if moved.any() else turned
        at += scan.count
    return pos, origin


def _read_scan(e57: Any, image: Any, node: Any, size: int) -> tuple[Scan, dict[str, np.ndarray]]:
    points = node["points"]
    count = points.childCount()
    if count > 8 * size:  # at least a bit each
        raise ValueError(f"it says {count} points, more than it has room for")
    prototype = e57.StructureNode(points.prototype())
    columns = {
        item.elementName(): column
        for item in (prototype[i] for i in range(prototype.childCount()))
        if (column := _column(e57, item)) is not None
    }
    data, buffers = {}, e57.VectorSourceDestBuffer()
    for name, column in columns.items():
        data[name] = np.zeros(max(count, 1), column.buffer)
        buffers.append(e57.SourceDestBuffer(image, name, data[name], max(count, 1), True, True))
    if count:
        reader = points.reader(buffers)
        found = reader.read()
        reader.close()
        if found != count:
            raise ValueError(f"a scan says {count} points, but has {found}")
    data = {name: data[name][:count].astype(c.dtype, copy=False) for name, c in columns.items()}
    turn, place = _pose(node)
    words = {
        key: node[key].value() for key in ("guid", "name", "description") if node.isDefined(key)
    }
    return Scan(words, count, turn, place, columns), _with_local(data)


def _with_local(data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The coordinates as the scanner saw them, from its angles where it has no others."""
    if set(_CARTESIAN) <= set(data):
        local = np.stack([data.pop(name).astype(np.float64) for name in _CARTESIAN], axis=-1)
    elif set(_SPHERICAL) <= set(data):
        far, azimuth, up = (data.pop(name).astype(np.float64) for name in _SPHERICAL)
        flat = far * np.cos(up)
        local = np.stack(
            [flat * np.cos(azimuth), flat * np.sin(azimuth), far * np.sin(up)], axis=-1
        )
    else:
        raise ValueError(f"a scan has {sorted(data)}, but no coordinates")
    return {"\0local": local, **data}


def _column(e57: Any, item: Any) -> Column | None:
    """How a number is stored; None for words."""
    if isinstance(item, e57.ScaledIntegerNode):
        return Column("scaled", item.minimum(), item.maximum(), item.scale(), item.offset())
    if isinstance(item, e57.IntegerNode):
        return Column("int", item.minimum(), item.maximum())
    if isinstance(item, e57.FloatNode):
        return Column("f4" if item.precision() == e57.E57_SINGLE else "f8")
    return None


def _pose(node: Any) -> tuple[np.ndarray, np.ndarray]:
    turn, place = np.array([1.0, 0, 0, 0]), np.zeros(3)
    if node.isDefined("pose"):
        pose = node["pose"]
        if pose.isDefined("rotation"):
            turn = np.array([pose["rotation"][key].value() for key in "wxyz"])
        if pose.isDefined("translation"):
            place = np.array([pose["translation"][key].value() for key in "xyz"])
    length = np.linalg.norm(turn)
    if not (np.isfinite(length) and length > 0 and np.isfinite(place).all()):
        raise ValueError("the pose of a scan is not made of finite numbers")
    return turn, place


def _is_identity(turn: np.ndarray) -> bool:
    return not turn[1:].any()


def _matrix(turn: np.ndarray) -> np.ndarray:  # (3, 3)
    w, x, y, z = turn / np.linalg.norm(turn)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )


def write(file: IO[bytes], path: Path, cloud: PointCloud) -> None:
    """The scans that the cloud came from, with their poses; otherwise one scan."""
    e57 = _library(path)
    with tempfile.TemporaryDirectory(dir=path.resolve().parent, prefix=".veckm") as folder:
        name = str(Path(folder) / "cloud.e57")  # the library opens files by name only
        try:
            image = e57.ImageFile(name, "w")
            try:
                _write(e57, image, path, cloud)
            finally:
                image.close()
        except (e57.E57Exception, RuntimeError, TypeError) as error:
            raise FileError(path, f"cannot be written: {str(error).splitlines()[0]}") from error
        with open(name, "rb") as written:
            shutil.copyfileobj(written, file, 1 << 20)


def _write(e57: Any, image: Any, path: Path, cloud: PointCloud) -> None:
    template = cloud.source if isinstance(cloud.source, E57Template) else None
    scans = template.scans if template else ()
    if sum(scan.count for scan in scans) != len(cloud) or not scans:
        alone = Scan({"name": path.stem}, len(cloud), np.array([1.0, 0, 0, 0]), cloud.origin, {})
        scans = (alone,)
    names = _stored_names(cloud, template)
    known = {"": e57.E57_V1_0_URI, **_URIS, **(template.extensions if template else {})}
    used = {""} | {stored.split(":")[0] for stored in names.values() if ":" in stored}
    for prefix, uri in known.items():
        if prefix in used or prefix not in _URIS:
            image.extensionsAdd(prefix, uri)
    root = image.root()
    for key, node in (
        ("formatName", e57.StringNode(image, "ASTM E57 3D Imaging Data File")),
        ("guid", e57.StringNode(image, f"{{{uuid.uuid4()}}}")),
        ("versionMajor", e57.IntegerNode(image, e57.E57_FORMAT_MAJOR)),
        ("versionMinor", e57.IntegerNode(image, e57.E57_FORMAT_MINOR)),
        ("e57LibraryVersion", e57.StringNode(image, e57.E57_LIBRARY_ID)),
        ("coordinateMetadata", e57.StringNode(image, cloud.crs or "")),
        ("data3D", e57.VectorNode(image, True)),
        ("images2D", e57.VectorNode(image, True)),
    ):
        root.set(key, node)
    at = 0
    for scan in scans:
        _write_scan(e57, image, scan, cloud[at : at + scan.count], names)
        at += scan.count


def _stored_names(cloud: PointCloud, template: E57Template | None) -> dict[str, str]:
    """Name in the cloud -> name in the file, with the prefix of an extension where it needs one."""
    had = {name for scan in (template.scans if template else ()) for name in scan.columns}
    names = renamed(cloud.fields, _NORMALS, had)
    if set(COLOR_NAMES[0]) <= set(cloud.fields) and not set(COLOR_NAMES[2]) & set(cloud.fields):
        names.update(zip(COLOR_NAMES[0], COLOR_NAMES[2], strict=True))
    return {
        name: stored if stored in _STANDARD | had or ":" in stored else f"veckm:{stored}"
        for name, stored in names.items()
    }


def _write_scan(e57: Any, image: Any, scan: Scan, part: PointCloud, names: dict[str, str]) -> None:
    shift = part.origin - scan.place
    moved = part.pos + shift if shift.any() else part.pos
    local = moved if _is_identity(scan.turn) else moved @ _matrix(scan.turn)
    data = dict(zip(_CARTESIAN, local.T, strict=True))
    for name, stored in names.items():
        values = part.fields[name]
        if values.ndim != 1 or values.dtype.kind not in "iufb":
            raise ValueError(f"E57 has no place for field {name!r}, {values.dtype} {values.shape}")
        data[stored] = values
    single = part.pos.dtype == np.float32 and not shift.any()
    prototype, buffers = e57.StructureNode(image), e57.VectorSourceDestBuffer()
    held = []
    for name, values in data.items():
        column = scan.columns.get(name) or _new_column(values, single and name in _CARTESIAN)
        prototype.set(name, _node(e57, image, column, values))
        held.append(values.astype(column.buffer, order="C"))
        if len(values):
            buffers.append(e57.SourceDestBuffer(image, name, held[-1], len(values), True, True))
    node = e57.StructureNode(image)
    words = {"guid": f"{{{uuid.uuid4()}}}", **scan.words}
    for key, word in words.items():
        node.set(key, e57.StringNode(image, word))
    node.set("pose", _pose_node(e57, image, scan))
    points = e57.CompressedVectorNode(image, prototype, e57.VectorNode(image, True))
    node.set("points", points)
    image.root()["data3D"].append(node)
    if len(part):
        writer = points.writer(buffers)
        writer.write(len(part))
        writer.close()


def _pose_node(e57: Any, image: Any, scan: Scan) -> Any:
    pose = e57.StructureNode(image)
    for key, axes, values in (
        ("rotation", "wxyz", scan.turn),
        ("translation", "xyz", scan.place),
    ):
        inner = e57.StructureNode(image)
        for axis, value in zip(axes, values.tolist(), strict=True):
            inner.set(axis, e57.FloatNode(image, value))
        pose.set(key, inner)
    return pose


def _new_column(values: np.ndarray, single: bool) -> Column:
    if values.dtype.kind == "f":
        return Column("f4" if single or values.dtype.itemsize < 8 else "f8")
    info = np.iinfo(np.uint8 if values.dtype.kind == "b" else values.dtype)
    return Column("int", max(int(info.min), -(2**63)), min(int(info.max), 2**63 - 1))


def _node(e57: Any, image: Any, column: Column, values: np.ndarray) -> Any:
    if column.kind == "scaled":
        steps = column.low, column.low, column.high  # the value of a prototype counts for nothing
        return e57.ScaledIntegerNode(image, *steps, column.scale, column.offset)
    if column.kind == "int":
        if len(values) and not (column.low <= values.min() and values.max() <= column.high):
            column = _new_column(values, False)
        return e57.IntegerNode(image, column.low, column.low, column.high)
    single = e57.E57_SINGLE if column.kind == "f4" else e57.E57_DOUBLE
    return e57.FloatNode(image, 0.0, single)
