"""The same table on shapes of PCPNet: other sources, other hands, the same protocol."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from benchmarks.harness import log
from benchmarks.normals_parts.accuracy import against_pca, complete, scored, table_of
from benchmarks.normals_parts.cases import Config, Key, Row
from benchmarks.tables import Claim

NAME = "pcpnet"
TITLE = "Error on shapes of PCPNet"


def measure(config: Config, known: Collection[Key]) -> Iterator[list[Row]]:
    """All shapes of the folder."""
    if config.pcpnet is None:
        log("pcpnet: left out, there is no folder (--pcpnet)")
        return
    yield from scored(NAME, config, config.shapes(), known)


def claims(rows: Sequence[Row]) -> list[Claim]:
    """The same targets."""
    return against_pca(complete(rows)[0], "PCPNet shapes")


def markdown(rows: Sequence[Row]) -> str:
    """The same table, and which shapes these are."""
    names = ", ".join(dict.fromkeys(row.cloud for row in rows))
    return "\n".join([table_of(complete(rows)[0]), "", f"Shapes: {names}.", ""])
