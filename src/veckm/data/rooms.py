"""Samples of rooms for networks: columns of one meter, or crops and whole scenes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from veckm.data.s3dis import Room, Rooms
from veckm.data.samples import Sample, Samples, pick_points


class Blocks(Samples):
    """Rooms cut into square columns with equally many points each.

    Positions are relative to the center of the column and the floor; the features of a point are
    its color and its position in the room, from 0 to 1 on each axis.

    Args:
        rooms: the rooms.
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
        rooms: Rooms,
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
        self.rooms, self.size, self.points, self.every = rooms, size, points, every
        self.classes = rooms.classes
        self.checksum = f"{rooms.checksum}/{size:g}/{step:g}/{points}/{least}/{every}"
        self._sizes = [room.pos.amax(0).clamp_min(1e-6) for room in rooms.rooms]
        self.entries: list[tuple[int, tuple[float, float], np.ndarray]] = []
        for number, room in enumerate(rooms.rooms):
            for middle, rows in _columns(room, size, step):
                if every:
                    for part in range(0, len(rows), points):
                        self.entries.append((number, middle, rows[part : part + points]))
                elif len(rows) >= least:
                    self.entries.append((number, middle, rows))
        if not self.entries:
            raise ValueError(f"none of {len(rooms)} rooms has a block of {least} points or more")

    def __len__(self) -> int:
        return len(self.entries)

    def draw(self, index: int, generator: torch.Generator | None = None) -> Sample:
        """Block ``index``."""
        number, middle, rows = self.entries[index]
        room, at = self.rooms.rooms[number], torch.from_numpy(rows)
        pos = room.pos[at]
        features = torch.cat((room.rgb[at].float() / 255, pos / self._sizes[number]), 1)
        pos = pos - torch.tensor([*middle, 0.0])
        whole = Sample(f"{room.name} block {index}", pos, room.label[at].long(), features)
        return pick_points(whole, self.points, generator or torch.Generator().manual_seed(index))


def _columns(room: Room, size: float, step: float) -> list[tuple[tuple[float, float], np.ndarray]]:
    """Center and rows of every column that has points, in random order.

    Random, so that the samples of one column are alike.
    """
    xy = room.pos[:, :2].numpy().astype(np.float64)
    found = []
    per = round(size / step) if step < size else 1
    # Overlapping columns are `per` shifted grids on each axis; a grid is one sort.
    for dx in range(per):
        for dy in range(per):
            corner = -step * np.array([dx, dy])
            cell = np.floor((xy - corner) / size).astype(np.int64)
            wide = int(cell[:, 1].max()) + 1
            key = cell[:, 0] * wide + cell[:, 1]
            shuffled = np.random.default_rng(len(key)).permutation(len(key))
            order = shuffled[np.argsort(key[shuffled], kind="stable")]
            cuts = np.flatnonzero(np.diff(key[order])) + 1
            for rows in np.split(order, cuts):
                x, y = corner + (cell[rows[0]] + 0.5) * size
                found.append(((float(x), float(y)), rows))
    return found


class Scenes(Samples):
    """Whole scenes, or the part of each that is nearest to one of its points.

    Args:
        rooms: the rooms, best read with a voxel.
        points: at most this many of each, those nearest to a random point: a generator chooses it,
            else it is the middle of the room. None for all points.
        exact: repeat points of smaller rooms, so that scenes fit into one batch; repeated points
            are ignored.

    Shapes:
        - pos: (N, 3) about the middle of the floor, features: (N, 3), label: (N,)
    """

    def __init__(self, rooms: Rooms, points: int | None = None, exact: bool = False) -> None:
        if points is not None and points < 1:
            raise ValueError(f"points must be at least 1, got {points}")
        self.rooms, self.points, self.exact = rooms, points, exact
        self.classes, self.checksum = rooms.classes, f"{rooms.checksum}/{points}/{exact}"

    def __len__(self) -> int:
        return len(self.rooms)

    def draw(self, index: int, generator: torch.Generator | None = None) -> Sample:
        """Scene ``index``."""
        scene = self.rooms.draw(index)
        points = len(scene.pos) if self.points is None else self.points
        if len(scene.pos) > points:
            if generator is None:
                middle = scene.pos.mean(0)
            else:
                middle = scene.pos[int(torch.randint(len(scene.pos), (1,), generator=generator))]
            near = (scene.pos - middle).square().sum(-1).argsort(stable=True)[:points]
            assert scene.features is not None
            scene = replace(
                scene, pos=scene.pos[near], label=scene.label[near], features=scene.features[near]
            )
        elif self.exact and len(scene.pos) < points:
            scene = pick_points(scene, points, generator or torch.Generator().manual_seed(index))
        low, high = scene.pos.amin(0), scene.pos.amax(0)
        origin = torch.stack(((low[0] + high[0]) / 2, (low[1] + high[1]) / 2, low[2]))
        return replace(scene, pos=scene.pos - origin)
