"""What of a whole cloud must be known before the normals of a part of it.

The same numbers, to the last bit, as `veckm.tasks.normals.frame` finds with the cloud in memory:
middle and spacing decide who is in which subset.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from veckm.engines.curve import curve_key
from veckm.scan.layout import CHUNK
from veckm.scan.operation import Facts
from veckm.scan.region import Region, near
from veckm.scan.spool import Spool
from veckm.tasks.normals.estimate import no_plane
from veckm.tasks.normals.frame import NEIGHBOR, PROBES, Frame, probe_rank, spacing_of


def find_facts(spool: Spool) -> dict[str, Any]:
    """Middle, spacing, corner and longest side of the box, and whether all lie on a line."""
    low, high = spool.boxes[0].min(0), spool.boxes[1].max(0)
    middle = (low + high) / 2
    extent = float(((high - middle) - (low - middle)).max()) or 1.0
    probes = _probes(spool, low, high, middle, extent)
    size = 1.0 if spool.count < 2 else spacing_of(_fourth(spool, probes), extent)
    return {
        "middle": middle.tolist(),
        "spacing": size,
        "count": spool.count,
        "low": low.tolist(),
        "extent": float((high - low).max()),
        "line": _line(spool, middle, float(np.abs(np.stack([low, high])).max())),
    }


def frame_from(facts: Facts) -> Frame:
    """The frame of the whole cloud."""
    a, b, c = facts["middle"]
    return Frame((a, b, c), facts["spacing"], facts["count"])


def boxes_in(frame: Frame, boxes: np.ndarray) -> np.ndarray:  # (2, C, 3)
    """The boxes of cells in a frame."""
    return frame.place(torch.from_numpy(boxes.reshape(-1, 3))).numpy().reshape(boxes.shape)


def _chunks(spool: Spool) -> Iterator[tuple[int, np.ndarray]]:
    for start in range(0, spool.count, CHUNK):
        yield start, spool.points([(start, min(start + CHUNK, spool.count))])


def _probes(
    spool: Spool, low: np.ndarray, high: np.ndarray, middle: np.ndarray, extent: float
) -> np.ndarray:  # (P,) as stored
    """Where the points of least rank are stored.

    Among equal ranks those that come first along the curve on which `estimate` puts the points,
    then those that come first in the file.
    """
    columns = [np.zeros(0, t) for t in (np.uint64, np.int64, np.int64, np.int64)]
    side = float((high - low).max())
    for start, xyz in _chunks(spool):
        rank = probe_rank(xyz - middle, extent)
        worst = columns[0].max() if len(columns[0]) == PROBES else np.uint64(2**64 - 1)
        some = np.flatnonzero(rank <= worst)
        if not len(some):
            continue
        corner = torch.from_numpy(low)
        curve = curve_key(torch.from_numpy(xyz[some]), corner, side).numpy()
        rows = spool.numbers([(start, start + len(xyz))])[some]
        new = (rank[some], curve, rows, some + start)
        columns = [np.concatenate(pair) for pair in zip(columns, new, strict=True)]
        best = np.lexsort((columns[2], columns[1], columns[0]))[:PROBES]
        columns = [values[best] for values in columns]
    return np.sort(columns[3])


def _fourth(spool: Spool, probes: np.ndarray) -> np.ndarray:  # (P,) -> (P,)
    """How far the fourth neighbor of each probe is: first in its own cell, then around."""
    boxes, layout = spool.boxes, spool.layout
    k = min(NEIGHBOR, spool.count)
    cell = np.searchsorted(layout.offsets, probes, side="right") - 1
    out = []
    for c in np.unique(cell):
        chosen = np.zeros(len(layout.counts), bool)
        chosen[c] = True
        low, high = boxes[0, c], boxes[1, c]
        if layout.counts[c] < k:  # the nearest cells that have enough together
            off = np.maximum(np.maximum(boxes[0] - high, low - boxes[1]), 0)
            order = np.argsort((off**2).sum(1), kind="stable")
            chosen[order[: int(np.searchsorted(np.cumsum(layout.counts[order]), k)) + 1]] = True
        region = Region(spool, chosen)
        at = region.xyz[region.rows(probes[cell == c])]
        far = _distance(at, region.xyz, k)
        chosen |= near(boxes, at, at, far)
        out.append(_distance(at, Region(spool, chosen).xyz, k))
    return np.concatenate(out)


def _distance(at: np.ndarray, xyz: np.ndarray, k: int) -> np.ndarray:  # (p, 3), (n, 3) -> (p,)
    off = at[:, None] - xyz
    square = off[..., 0] ** 2 + off[..., 1] ** 2 + off[..., 2] ** 2
    return np.sqrt(np.partition(square, k - 1, axis=1)[:, k - 1])


def _line(spool: Spool, middle: np.ndarray, largest: float) -> bool:
    """Whether all points lie on a line or in one place."""
    mean = sum((xyz - middle).sum(0) for _, xyz in _chunks(spool)) / spool.count + middle
    total = np.zeros((3, 3))
    for _, xyz in _chunks(spool):
        off = xyz - mean
        total += off.T @ off
    covariance = torch.from_numpy(total / spool.count)
    return no_plane(covariance, torch.finfo(torch.float64).eps * largest)
