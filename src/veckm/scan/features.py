"""Named features of every point of a cloud larger than memory."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from veckm.io.errors import FileError
from veckm.io.formats import find, streams
from veckm.io.output import create_sink
from veckm.io.source import Source
from veckm.scan.operation import Advance, Operation
from veckm.scan.spool import Arrays, Spool, chunks_of
from veckm.scan.tiles import neighborhood
from veckm.tasks.features import FeatureConfig, ground_under, local_features, lowest, merge_lowest


@dataclass(frozen=True)
class Features(Operation):
    """The features of :func:`veckm.features`, as further fields of the cloud.

    The sums of the windows are within `eps` of those of the whole cloud in memory, the height is
    the same.
    """

    config: FeatureConfig

    @property
    def phases(self) -> tuple[str, ...]:
        """The lowest points of all cells first, where the height is wanted."""
        return ("ground", "features") if self.config.height else ("features",)

    def settings(self) -> dict[str, Any]:
        """What the result depends on."""
        values = asdict(self.config)
        return {"operation": "Features", **values, "radii": list(self.config.radii)}

    def check(self, output: Path) -> None:
        """The output must be a cloud in a format that can be written by range."""
        if find(output, write=True).writer is None:
            raise FileError(output, f"cannot be written by range; {streams()} can")

    def tile(self, phase: str, spool: Spool, tile: int, stats: Any) -> Arrays:
        """The cells of a tile, or its features."""
        del stats
        own = spool.points(spool.range(tile))
        if phase == "ground":
            cells, low = lowest(own, self.config.cell)
            return {"cells": cells, "low": low}
        around = neighborhood(spool, tile, self.config.reach)
        found = local_features(torch.from_numpy(around), torch.from_numpy(own), self.config)
        columns = found.numpy()
        if self.config.height:
            ground = ground_under(own, *_ground(str(spool.folder)), self.config.cell)
            columns = np.column_stack((columns, (own[:, 2] - ground).astype(np.float32)))
        return {"features": columns}

    def write(self, source: Source, spool: Spool, path: Path, advance: Advance) -> None:
        """The input with the new fields, in the format of the name of the output."""
        names = self.config.columns
        results = spool.in_input_order(
            lambda tile: {"features": spool.load("features", tile, "features")}, path.parent
        )
        with create_sink(path, source, dict.fromkeys(names, np.dtype("f4"))) as append:
            for part, found in zip(chunks_of(source.count), results, strict=True):
                cloud = source.read(part.start, part.stop)
                columns = dict(zip(names, found["features"].T.copy(), strict=True))
                append(cloud.with_fields(**columns))
                advance(len(cloud))


@lru_cache(maxsize=1)
def _ground(folder: str) -> tuple[np.ndarray, np.ndarray]:
    """The lowest points of the whole cloud."""
    spool = Spool(folder)
    return merge_lowest(
        [
            (spool.load("ground", tile, "cells"), spool.load("ground", tile, "low"))
            for tile in range(spool.tiles)
        ]
    )
