"""What can be done to a cloud tile by tile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from veckm.cloud import PointCloud
from veckm.io.source import Source
from veckm.scan.spool import Field, Spool

Facts = Mapping[str, Any]  # as JSON


@dataclass(frozen=True)
class Phase:
    """One pass over all tiles: every tile sees what the phases before said of all points."""

    name: str
    fields: tuple[Field, ...]


class Operation(ABC):
    """A frozen dataclass of settings: small, and sent to the workers as it is."""

    @property
    @abstractmethod
    def phases(self) -> tuple[Phase, ...]:
        """What is computed, one after the other."""

    @abstractmethod
    def tile(self, phase: Phase, spool: Spool, tile: int, facts: Facts) -> dict[str, np.ndarray]:
        """The fields of a phase for the points of a tile, in the order in which they are stored."""

    @abstractmethod
    def write(self, source: Source, spool: Spool, path: Path, advance: Any) -> None:
        """The output, whole, at `path`, which is in the work folder."""

    @abstractmethod
    def check(self, source: Source, output: Path) -> None:
        """Raise now what would go wrong later."""

    def prepare(self, spool: Spool) -> dict[str, Any]:  # noqa: ARG002 - most need none
        """What must be known of the whole cloud before any tile; as JSON."""
        return {}

    def settings(self) -> dict[str, Any]:
        """What the result depends on."""
        return {"operation": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]


def gather(spool: Spool, field: Field, places: np.ndarray) -> np.ndarray:
    """Rows of a field in any order, read in as few runs as they form."""
    if not len(places):
        return spool.read(field, [])
    order = np.argsort(places, kind="stable")
    at = places[order]
    cut = np.flatnonzero(np.diff(at) > _GAP) + 1
    first, last = at[np.append(0, cut)], at[np.append(cut - 1, len(at) - 1)]
    ranges = [(int(i), int(j) + 1) for i, j in zip(first, last, strict=True)]
    stored = np.cumsum([0] + [j - i for i, j in ranges])[:-1]
    group = np.zeros(len(at), np.int64)
    group[cut] = 1
    group = np.cumsum(group)
    found = spool.read(field, ranges)[stored[group] + at - first[group]]
    out: np.ndarray = np.empty_like(found)
    out[order] = found
    return out


#: A gap of fewer rows than this is read along: a call costs more.
_GAP = 16


def with_columns(cloud: PointCloud, columns: Mapping[str, np.ndarray]) -> PointCloud:
    """The cloud with more fields; `normal` goes by the names that the file has for it."""
    rest = {name: values for name, values in columns.items() if name != "normal"}
    if "normal" in columns:
        cloud = cloud.with_normals(columns["normal"])
    return cloud.with_fields(**rest)
