"""Samples of rooms for networks: columns of one meter, or crops and whole scenes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from veckm.data.samples import Sample, Samples, pick_points


class Blocks(Samples):
    """Rooms cut into square columns with equally many points each.

    Positions are relative to the center of the column and the floor; the features of a point are
    its color and its position in the room, from 0 to 1 on each axis.

    Args:
        rooms: as :func:`veckm.data.read_s3dis` returns them.
        size: of a column, in meters.
        points: of a sample.
        stride: from one column to the next; half of ``size`` gives more training samples.
        least: columns with fewer points are left out, unless ``every``.
        every: for evaluation: a column with many points becomes several samples, so that every
            point is in one of them. Otherwise each draw is a random choice. Points that are
            repeated to fill a sample are ignored.

    Shapes:
        - pos: (points, 3), features: (points, 6), label: (points,)
    """

    def __init__(
        self,
        rooms: Samples,
        size: float = 1.0,
        points: int = 4096,
        stride: float | None = None,
        least: int = 100,
        every: bool = False,
    ) -> None:
        step = size if stride is None else stride
        if size <= 0 or not 0 < step <= size or points < 1:
            raise ValueError(
                f"a block needs a positive size, a stride of at most that and a point or more, got "
                f"{size!r}, {step!r} and {points!r}"
            )
        if every and step != size:
            raise ValueError("with every=True blocks must not overlap: leave stride out")
        # The room, its extent, the center of the column and the rows of its points.
        entries: list[tuple[Sample, Tensor, tuple[float, float], Tensor]] = []
        for room in rooms:
            extent = room.pos.amax(0).clamp_min(1e-6)
            for middle, rows in _columns(room.pos, size, step):
                if every:
                    entries += [(room, extent, middle, part) for part in rows.split(points)]
                elif len(rows) >= least:
                    entries.append((room, extent, middle, rows))
        if not entries:
            raise ValueError(f"none of {len(rooms)} rooms has a block of {least} points or more")
        made = f"{rooms.checksum}/{size:g}/{step:g}/{points}/{least}/{every}"
        super().__init__(entries, rooms.classes, made)
        self.points = points

    def draw(self, index: int, generator: torch.Generator | None = None) -> Sample:
        """Block ``index``."""
        room, extent, middle, rows = self.entries[index]
        block = _network_input(room.select(rows))
        assert block.features is not None
        features = torch.cat((block.features, block.pos / extent), 1)
        pos = block.pos - torch.tensor([*middle, 0.0])
        block = replace(block, name=f"{block.name} block {index}", pos=pos, features=features)
        return pick_points(block, self.points, generator or torch.Generator().manual_seed(index))


def _columns(
    pos: Tensor, size: float, step: float
) -> list[tuple[tuple[float, float], Tensor]]:  # (x, y), (K,)
    """Center and rows of every column that has points, the rows in random order.

    Random, so that the samples of one column are alike.
    """
    xy = pos[:, :2].numpy().astype(np.float64)
    found = []
    per = round(size / step) if step < size else 1
    # Overlapping columns are `per` shifted grids on each axis; a grid is one sort.
    for shift in np.ndindex(per, per):
        corner = -step * np.array(shift)
        cell = np.floor((xy - corner) / size).astype(np.int64)
        key = cell[:, 0] * (int(cell[:, 1].max()) + 1) + cell[:, 1]
        shuffled = np.random.default_rng(len(key)).permutation(len(key))
        order = shuffled[np.argsort(key[shuffled], kind="stable")]
        for rows in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
            x, y = corner + (cell[rows[0]] + 0.5) * size
            found.append(((float(x), float(y)), torch.from_numpy(rows)))
    return found


class Scenes(Samples):
    """Whole scenes, or the part of each that is nearest to one of its points.

    Args:
        rooms: as :func:`veckm.data.read_s3dis` returns them, best with a voxel.
        points: of a sample: those nearest to a random point, which a generator chooses, else to
            the middle of the room. Points of smaller rooms are repeated, and the repetitions
            ignored. None for all points of every room.

    Shapes:
        - pos: (N, 3) about the middle of the floor, features: (N, 3), label: (N,)
    """

    def __init__(self, rooms: Samples, points: int | None = None) -> None:
        if points is not None and points < 1:
            raise ValueError(f"points must be at least 1, got {points}")
        super().__init__(rooms, rooms.classes, f"{rooms.checksum}/{points}")
        self.points = points

    def draw(self, index: int, generator: torch.Generator | None = None) -> Sample:
        """Scene ``index``."""
        scene: Sample = self.entries[index]
        middle = scene.pos.mean(0)
        if self.points is not None and len(scene.pos) > self.points:
            if generator is not None:
                middle = scene.pos[int(torch.randint(len(scene.pos), (1,), generator=generator))]
            distance = (scene.pos - middle).square().sum(-1)
            scene = scene.select(distance.argsort(stable=True)[: self.points])
        scene = _network_input(scene)
        if self.points is not None and len(scene.pos) < self.points:
            generator = generator or torch.Generator().manual_seed(index)
            scene = pick_points(scene, self.points, generator)
        low, high = scene.pos.amin(0), scene.pos.amax(0)
        origin = torch.stack(((low[0] + high[0]) / 2, (low[1] + high[1]) / 2, low[2]))
        return replace(scene, pos=scene.pos - origin)


def _network_input(room: Sample) -> Sample:
    """Colors from 0 to 1 and labels as networks expect them, from the bytes that are kept."""
    assert room.features is not None
    return replace(room, features=room.features.float() / 255, label=room.label.long())
