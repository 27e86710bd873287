"""What can be done to a cloud tile by tile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from veckm.io.source import Source
from veckm.scan.spool import Arrays, Spool

Advance = Callable[[int], object]  # called with the number of points that were done


class Operation(ABC):
    """A frozen dataclass of settings: small, and sent to the workers as it is."""

    @property
    @abstractmethod
    def phases(self) -> tuple[str, ...]:
        """The passes over all tiles, in order; each may read the results of those before it."""

    @abstractmethod
    def tile(self, phase: str, spool: Spool, tile: int, stats: Any) -> Arrays:
        """The results of a phase for the points of a tile, in the order of storage."""

    @abstractmethod
    def write(self, source: Source, spool: Spool, path: Path, advance: Advance) -> None:
        """Write the whole output to `path`, which is in a folder for this only."""

    @abstractmethod
    def check(self, output: Path) -> None:
        """Raise if the output cannot be written, before any work."""

    def global_stats(self, spool: Spool) -> dict[str, Any]:  # noqa: ARG002 - most need none
        """Statistics of the whole cloud that every tile needs, as JSON."""
        return {}

    def settings(self) -> dict[str, Any]:
        """What the result depends on."""
        return {"operation": type(self).__name__, **asdict(self)}  # type: ignore[call-overload]
