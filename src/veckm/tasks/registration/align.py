"""Two clouds into one frame, without a first guess and without parameters."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from veckm.inputs import check_points
from veckm.tasks.registration.consensus import consensus
from veckm.tasks.registration.matching import comparable, features, mutual_matches
from veckm.tasks.registration.sampling import voxel_size
from veckm.tasks.registration.surface import REACH, Surface, as_matrix, refine

#: Motions that are compared, and voxels of the last refinement.
_CANDIDATES, _FINE = 5, 20_000
#: Points of the source that candidates, and the best of them, are refined by; of the target twice.
_FEW, _SOME = 2000, 4000
#: Occupied voxels of the larger cloud: enough for a surface to keep its shape.
VOXELS = 6000
#: Matches that a motion needs at least.
_MATCHES = 3
#: Fewer voxels than this have no shape.
_LEAST = 20
#: How much the places of matches hold a motion that is believed; found on views of other meshes.
_HELD = 3e-3
#: The confidence from which an alignment is claimed.
SURE = 0.5


@dataclass(frozen=True, eq=False)
class Registration:
    """The motion that brings the source into the frame of the target, and how sure it is.

    Attributes:
        transform: x_target = R x_source + t as a matrix.
        confidence: 0 .. 1; from 0.5 on an alignment is claimed.
        overlap: the share of the smaller surface in the overlap that lies on the other one.
        matches: positions of the matched points in the source and in the target.
        inliers: which matches agree with the transform.
        voxel: the resolution that was worked at.
        seconds: how long each part took.
        note: why no alignment is claimed, or why it is not the only one.
    """

    transform: Tensor  # (4, 4) float64
    confidence: float
    overlap: float
    matches: Tensor  # (M, 2, 3) float64
    inliers: Tensor  # (M,) bool
    voxel: float
    seconds: dict[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def aligned(self) -> bool:
        """Whether an alignment is claimed."""
        return self.confidence >= SURE

    def apply(self, pos: Tensor) -> Tensor:  # (..., 3)
        """Points of the source in the frame of the target, in float64."""
        T = self.transform.to(pos.device)
        return pos.double() @ T[:3, :3].t() + T[:3, 3]


def register(
    source: Tensor,  # (N, 3)
    target: Tensor,  # (M, 3)
    *,
    up: Tensor | None = None,  # (3,)
    learnt: bool = True,
) -> Registration:
    """The rigid motion of the source into the frame of the target; nothing to choose.

    The resolution comes from the clouds: the larger one has about 6,000 occupied voxels. Voxel
    means are described (:func:`veckm.describe`), nearest to each other, matched; the motions that
    most matches agree on are refined point to plane, and the one with which most of the surfaces
    lies together is taken. Both clouds must be in the same units. No random numbers are used.

    Args:
        source, target: points, float32 or float64, from 20 points on, in any units.
        up: a direction that both clouds share, such as gravity; rotations are about it then.
        learnt: compare descriptors by the learnt projection; with False, or with `up`, by principal
            components of the two clouds.

    Example:
        >>> found = veckm.register(source, target)
        >>> moved = found.apply(source) if found.aligned else None
    """
    clock = _Clock()
    with clock("sample"):
        frame = _frame(up)
        clouds = [checked(x, name) for x, name in ((source, "source"), (target, "target"))]
        middles = [middle(x) for x in clouds]
        x, y = (cloud - at for cloud, at in zip(clouds, middles, strict=True))
        x, y = (x, y) if up is None else (x @ frame, y @ frame)
        voxel = voxel_size([x, y], VOXELS)
        p, q = (Surface.of(cloud, voxel) for cloud in (x, y))
        _check_sizes(p, q)
    found = _solve(p, q, up is not None, learnt, clock)
    with clock("refine"):
        points = min(len(x) / len(p), len(y) / len(q)) / 2  # of a voxel, if half as many as points
        fine = voxel / min(max(points, 1), _FINE / VOXELS) ** 0.5
        if found.aligned:
            local = refine(
                Surface.of(x, fine, _SOME),
                Surface.of(y, fine, 2 * _SOME),
                found.transform.numpy(),
                reach=voxel / fine,
                up=up is not None,
            )
            found = replace(found, transform=torch.from_numpy(local))
    return _in_frame(found, frame, middles, clock.seconds)


def _solve(p: Surface, q: Surface, up: bool, learnt: bool, clock: _Clock) -> Registration:
    """The best motion between two surfaces."""
    with clock("describe"):
        a, b = comparable(features(p, up), features(q, up), learnt and not up)
    with clock("match"):
        rows = mutual_matches(a, b)
    if len(rows) < _MATCHES:
        few = "too few places look alike to find a motion"
        none, empty = torch.eye(4, dtype=torch.float64), torch.zeros(0, 2, 3, dtype=torch.float64)
        return Registration(none, 0.0, 0.0, empty, torch.zeros(0).bool(), p.voxel, note=few)
    matches = torch.from_numpy(np.stack([p.pos[rows[:, 0]], q.pos[rows[:, 1]]], 1))
    with clock("solve"):
        found = consensus(matches[:, 0], matches[:, 1], REACH * p.voxel, _CANDIDATES, up)
    with clock("refine"):
        tried, part = [], p.part(_FEW)
        for R, t in zip(found.rotation, found.translation, strict=True):
            T = refine(part, q, as_matrix(R, t), reach=3.0, rounds=6, up=up)
            inliers = _agree(T, matches, REACH * p.voxel)
            shares = p.moved(T).shares(q)
            tried.append((int(inliers.sum()) * min(shares), T, inliers, shares))
        best = max(tried, key=lambda each: each[0])
    _, T, inliers, shares = best
    agree = rows[inliers.numpy(), 0]
    places = Surface(p.pos[agree], p.normal[agree], p.voxel)
    confidence, note = _confidence(places, len(rows), shares), ""
    free = max(len(p.free()), len(q.free()))
    if free:
        confidence, note = 0.0, FREE.get(free, FREE[3])
    elif confidence < SURE:
        note = "the clouds do not seem to overlap: too few matches agree with one motion"
        sizes = _sizes(p, q)
        if max(sizes) > 2 * min(sizes):
            note += f". They measure {sizes[0]:.3g} and {sizes[1]:.3g} across: the same units?"
    return Registration(
        torch.from_numpy(T), confidence, max(shares), matches, inliers, p.voxel, note=note
    )


#: What it means that a cloud can move in one, two or more ways without changing.
FREE = {
    1: "more than one motion fits: a cloud turns or slides along itself, as a screw or a vase does",
    2: "more than one motion fits: a cloud turns and slides along itself, as a cylinder does",
    3: "any rotation or any shift fits: a cloud is a plane, a sphere or a line",
}


def _confidence(places: Surface, matches: int, shares: tuple[float, float]) -> float:
    """From the places whose matches agree and the surface that lies together.

    Wrong motions between clouds of different shapes gather up to about 1.5 % of the matches, right
    ones between real scans ten times that. The middle is at 2 %, and 10 more for small clouds. More
    agree by chance where two flat pieces lie on each other; but such places can slide along
    themselves, and say little of the motion.
    """
    if len(places) < _MATCHES:
        return 0.0
    chance = 10 + 0.02 * matches
    score = 2.5 * math.log(len(places) / chance) + 6 * (min(shares) - 0.15)
    score += 2 * min(0.0, math.log(max(float(places.slips()[0][0]), 1e-9) / _HELD))
    return 1 / (1 + math.exp(-score))


def _agree(T: np.ndarray, matches: Tensor, reach: float) -> Tensor:  # (M,) bool
    moved = matches[:, 0] @ torch.from_numpy(T[:3, :3].T) + torch.from_numpy(T[:3, 3])
    agree: Tensor = torch.linalg.vector_norm(moved - matches[:, 1], dim=1) < reach
    return agree


def checked(pos: Tensor, name: str) -> np.ndarray:  # (N, 3) float64
    """Points with enough of them to have a shape."""
    check_points(pos, name)
    if pos.dim() != 2 or pos.shape[1] != 3:
        raise ValueError(f"{name} must have shape (N, 3), got {tuple(pos.shape)}")
    if len(pos) < _LEAST:
        raise ValueError(
            f"{name} has {len(pos)} points, which have no shape to compare: "
            f"give at least {_LEAST}, better 500"
        )
    x = pos.detach().cpu().double().numpy()
    if not (x != x[0]).any():
        raise ValueError(f"all points of {name} are at one position: there is no shape to compare")
    return x


def middle(x: np.ndarray) -> np.ndarray:  # (N, 3) -> (3,)
    """The middle of the bounding box."""
    columns = np.array(x.T, order="C")  # several times as fast as along rows
    found: np.ndarray = (columns.min(1) + columns.max(1)) / 2
    return found


def _check_sizes(p: Surface, q: Surface) -> None:
    """Both clouds must be seen at the resolution that they share."""
    sizes = _sizes(p, q)
    if min(len(p), len(q)) < _LEAST and max(sizes) > 50 * min(sizes):
        raise ValueError(
            f"source and target measure {sizes[0]:.3g} and {sizes[1]:.3g} across: are they in the "
            "same units? Scale one of them first"
        )


def _sizes(p: Surface, q: Surface) -> list[float]:
    return [float(np.linalg.norm(np.ptp(s.pos, 0))) for s in (p, q)]


def _frame(up: Tensor | None) -> np.ndarray:  # (3, 3): columns are the new axes
    """A rotation that makes `up` the z axis."""
    if up is None:
        return np.eye(3)
    z = np.asarray(torch.as_tensor(up).double().reshape(-1))
    length = float(np.linalg.norm(z)) if z.shape == (3,) else 0.0
    if not (math.isfinite(length) and length > 0):
        raise ValueError(f"up must be a direction of three numbers, such as (0, 0, 1), got {up!r}")
    z = z / length
    side = np.eye(3)[int(np.abs(z).argmin())]
    x = np.cross(side, z) / np.linalg.norm(np.cross(side, z))
    return np.stack([x, np.cross(z, x), z], 1)


def _in_frame(
    found: Registration, frame: np.ndarray, middles: list[np.ndarray], seconds: dict[str, float]
) -> Registration:
    """The result between turned clouds about their middles, in the coordinates as given."""
    local = found.transform.numpy()
    T = np.eye(4)
    T[:3, :3] = frame @ local[:3, :3] @ frame.T
    T[:3, 3] = middles[1] + frame @ local[:3, 3] - T[:3, :3] @ middles[0]
    matches = found.matches @ torch.from_numpy(frame.T) + torch.from_numpy(np.stack(middles))
    return replace(found, transform=torch.from_numpy(T), matches=matches, seconds=seconds)


class _Clock:
    """Seconds of each part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[part] = self.seconds.get(part, 0.0) + time.perf_counter() - start
