"""Point clouds with all the fields of their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

#: Field names of normals and of colors in files; PLY uses the first ones.
NORMAL_NAMES = (
    ("nx", "ny", "nz"),
    ("NormalX", "NormalY", "NormalZ"),
    ("normal_x", "normal_y", "normal_z"),
    ("nor:normalX", "nor:normalY", "nor:normalZ"),
    ("Nx", "Ny", "Nz"),
    ("NX", "NY", "NZ"),
)
COLOR_NAMES = (
    ("red", "green", "blue"),
    ("r", "g", "b"),
    ("colorRed", "colorGreen", "colorBlue"),
    ("diffuse_red", "diffuse_green", "diffuse_blue"),
    ("Red", "Green", "Blue"),
    ("R", "G", "B"),
)
#: How the names of earlier normals end that were kept.
BEFORE = "_before"
#: Fields in which PCL packs colors into the bits of one number.
PACKED = ("rgb", "rgba")
_COMBINED = {"normals": ("normal", "normals"), "colors": ("color", "colors", "rgb", "rgba")}


class Template:
    """What a format needs to write a file as it was read; every format has a subclass."""

    def subset(self) -> Template:
        """The template for some of the points, without what refers to all of them."""
        return self


@dataclass(frozen=True, eq=False)
class PointCloud:
    """Points relative to an origin, and all other fields of their file.

    .. math:: x_k = \\mathrm{origin} + \\mathrm{pos}_k

    Surveys have large coordinates, which float32 would round by decimeters or more; relative to an
    origin nearby they keep their precision.

    Attributes:
        pos: coordinates relative to ``origin``.
        origin: the point that is added to ``pos``.
        fields: all other values per point, with the names, order and dtypes of the file.
        crs: the coordinate reference system as in the file, usually WKT.
        source: what the format needs to write the file as it was read; only the format uses it.
        viewpoint: where the sensor was, if the file tells: of all points, or of each.

    Shapes:
        - pos: (N, 3) float32 or float64
        - origin: (3,) float64
        - fields: (N,) or (N, k) each
        - viewpoint: (3,) or (N, 3) float64, in the coordinates of the file
    """

    pos: np.ndarray
    origin: np.ndarray = field(default_factory=lambda: np.zeros(3))
    fields: Mapping[str, np.ndarray] = field(default_factory=dict)
    crs: str | None = None
    source: Template | None = None
    viewpoint: np.ndarray | None = None

    def __post_init__(self) -> None:
        pos, origin = np.asarray(self.pos), np.array(self.origin, dtype=np.float64)
        if pos.ndim != 2 or pos.shape[1] != 3 or pos.dtype not in (np.float32, np.float64):
            raise ValueError(
                "pos must have shape (N, 3) and dtype float32 or float64, "
                f"got {pos.shape} of {pos.dtype}"
            )
        if origin.shape != (3,) or not np.isfinite(origin).all():
            raise ValueError(f"origin must be three finite numbers, got {self.origin!r}")
        origin.flags.writeable = False
        found = {str(name): np.asarray(values) for name, values in self.fields.items()}
        for name, values in found.items():
            if values.ndim not in (1, 2) or len(values) != len(pos):
                raise ValueError(
                    f"field {name!r} must have shape (N,) or (N, k) with N = {len(pos)}, "
                    f"got {values.shape}"
                )
        object.__setattr__(self, "pos", pos)
        object.__setattr__(self, "origin", origin)
        object.__setattr__(self, "fields", MappingProxyType(found))

    def __len__(self) -> int:
        return len(self.pos)

    def __getitem__(self, rows: slice | np.ndarray) -> PointCloud:
        """The points of a slice, a mask or an array of indices, with their fields."""
        if not isinstance(rows, slice):
            rows = np.asarray(rows)
            if rows.ndim != 1:
                raise TypeError(
                    "index points by a slice, a mask or an array of indices, "
                    f"got an array of {rows.ndim} dimensions"
                )
        view = self.viewpoint
        return replace(
            self,
            pos=self.pos[rows],
            fields={name: values[rows] for name, values in self.fields.items()},
            source=None if self.source is None else self.source.subset(),
            viewpoint=view if view is None or view.ndim == 1 else view[rows],
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """A read-only view of a dict cannot be pickled; the dict can."""
        view = self.viewpoint
        return PointCloud, (self.pos, self.origin, dict(self.fields), self.crs, self.source, view)

    @property
    def xyz(self) -> np.ndarray:
        """The coordinates of the file, ``origin + pos``, (N, 3) float64."""
        if not self.origin.any():  # adding zero would turn -0.0 into 0.0
            return self.pos.astype(np.float64)
        moved: np.ndarray = self.pos + self.origin
        return moved

    @property
    def normals(self) -> np.ndarray | None:
        """The normals (N, 3), or None if no fields have their usual names."""
        return self._stacked("normals", NORMAL_NAMES)

    @property
    def colors(self) -> np.ndarray | None:
        """Red, green and blue (N, 3) in the range and dtype of the file, or None."""
        found = self._stacked("colors", COLOR_NAMES)
        if found is not None:
            return found
        for name in PACKED:
            packed = self.fields.get(name)
            if packed is not None and packed.ndim == 1 and packed.dtype.itemsize == 4:
                bits = np.ascontiguousarray(packed).view(np.uint32)
                return np.stack([bits >> 16, bits >> 8, bits], axis=-1).astype(np.uint8)
        return None

    def with_fields(self, **new: np.ndarray) -> PointCloud:
        """A copy with additional or replaced fields."""
        return replace(self, fields={**self.fields, **new})

    def with_normals(self, normals: np.ndarray, *, keep: bool = False) -> PointCloud:
        """A copy with these normals, (N, 3), under the names and in the dtypes of earlier ones.
        With `keep` the earlier ones get names that end in ``_before``, unless there are such."""
        normals = np.asarray(normals)
        if normals.shape != self.pos.shape:
            raise ValueError(f"normals must have shape {self.pos.shape}, got {normals.shape}")
        names = self._names(NORMAL_NAMES) or NORMAL_NAMES[0]
        columns = dict(zip(names, normals.T, strict=True))
        before = {f"{n}{BEFORE}": self.fields[n] for n in names if keep and n in self.fields}
        if set(before) & set(self.fields):
            before = {}
        for name, values in columns.items():
            if name in self.fields:
                columns[name] = values.astype(self.fields[name].dtype)
        return self.with_fields(**before, **columns)

    def _names(self, triples: tuple[tuple[str, ...], ...]) -> tuple[str, ...] | None:
        return next((names for names in triples if set(names) <= set(self.fields)), None)

    def _stacked(self, what: str, triples: tuple[tuple[str, ...], ...]) -> np.ndarray | None:
        names = self._names(triples)
        if names is not None:
            return np.stack([self.fields[name] for name in names], axis=-1)
        for name in _COMBINED[what]:
            values = self.fields.get(name)
            if values is not None and values.ndim == 2 and values.shape[1] >= 3:
                return values[:, :3]
        return None


def written(value: np.generic) -> str:
    """A number with the digits that its dtype has, at most ten: 0.26 and not 0.2599999905."""
    return f"{float(str(value)):.10g}"
