"""What can be done to a cloud tile by tile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from veckm.io.source import Source
from veckm.scan.spool import Field, Spool

Advance = Callable[[int], object]  # called with the number of points that were done
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Phase:
    """One pass over all tiles: every tile may read the results of the previous phases.

    Attributes:
        name: of the phase, also in the work folder.
        fields: results per point.
        extras: whether a tile also has arrays of other shapes, which are kept beside.
    """

    name: str
    fields: tuple[Field, ...]
    extras: bool = False

    def extras_path(self, spool: Spool, tile: int) -> Path:
        """Where the other arrays of a tile are."""
        return spool.folder / f"{self.name}-{tile}.npz"


class Operation(ABC):
    """A frozen dataclass of settings: small, and sent to the workers as it is."""

    @property
    @abstractmethod
    def phases(self) -> tuple[Phase, ...]:
        """The passes, in order."""

    @abstractmethod
    def tile(self, phase: Phase, spool: Spool, tile: int, stats: Any) -> Arrays:
        """Fields of a phase for the points of a tile, in the order of storage, and extras."""

    @abstractmethod
    def write(self, source: Source, spool: Spool, path: Path, advance: Advance) -> None:
        """Write the whole output to `path`, which is in the work folder."""

    @abstractmethod
    def check(self, output: Path) -> None:
        """Raise if the output cannot be written, before any work."""

    def global_stats(self, spool: Spool) -> dict[str, Any]:  # noqa: ARG002 - most need none
        """Statistics of the whole cloud that every tile needs, as JSON."""
        return {}

    def settings(self) -> dict[str, Any]:
        """What the result depends on."""
        return {"operation": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]
