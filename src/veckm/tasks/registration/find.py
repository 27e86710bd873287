"""All places of a part in a scene, with their poses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from veckm.inputs import check_count
from veckm.tasks.registration.align import FREE, checked, middle
from veckm.tasks.registration.consensus import MOST, consensus
from veckm.tasks.registration.matching import features, nearest, whitened
from veckm.tasks.registration.sampling import voxel_size
from veckm.tasks.registration.surface import REACH, Surface, as_matrix, refine

#: Occupied voxels of the part, and at most of the scene.
_PART, _SCENE = 1000, 60_000
#: The share of the part's surface that must be there: a scan sees less than half of it.
LEAST = 0.3
#: Motions that are tried for each instance, and how many of them may fail.
_CANDIDATES, _MATCHES = 5, 6


@dataclass(frozen=True, eq=False)
class Instance:
    """One place of the part in the scene.

    Attributes:
        transform: x_scene = R x_part + t as a matrix.
        score: the share of the part's surface that is there.
    """

    transform: Tensor  # (4, 4) float64
    score: float


def find(
    part: Tensor,  # (N, 3)
    scene: Tensor,  # (M, 3)
    *,
    most: int = 100,
    least: float = LEAST,
) -> list[Instance]:
    """All instances of a part in a scene, the best first.

    Every point of the scene is matched with the nearest descriptor of the part. The motion that
    most matches agree on is refined and, if enough of the part is there, its surface is taken out
    of the scene; then again, until nothing is found.

    Args:
        part, scene: points, float32 or float64, in the same units.
        most: how many instances to look for.
        least: the share of the part's surface that must be there.
    """
    check_count(most, "most")
    x, y = checked(part, "part"), checked(scene, "scene")
    middles = [middle(cloud) for cloud in (x, y)]
    x, y = x - middles[0], y - middles[1]
    voxel = max(voxel_size([x], _PART), voxel_size([y], _SCENE))
    p, q = Surface.of(x, voxel), Surface.of(y, voxel)
    free = p.free()
    if len(free) >= 3:
        raise ValueError(f"part has no pose: {FREE[3]}")
    a, b = whitened(features(p), features(q))
    index, similarity = nearest(b, a)
    left = similarity.argsort(descending=True, stable=True).numpy()
    found: list[Instance] = []
    while len(found) < most:
        T, score = _best(p, q, index.numpy(), left, least)
        if score < least:
            break
        found.append(Instance(torch.from_numpy(_uncentered(T, middles)), score))
        keep = np.isinf(p.moved(T).tree.query(q.pos, distance_upper_bound=2 * voxel)[0])
        q, index = Surface(q.pos[keep], q.normal[keep], q.voxel), index[torch.from_numpy(keep)]
        left = (np.cumsum(keep) - 1)[left[keep[left]]]
    return sorted(found, key=lambda each: -each.score)


def _best(
    p: Surface, q: Surface, index: np.ndarray, left: np.ndarray, least: float
) -> tuple[np.ndarray, float]:  # (4, 4)
    """The motion with which most of the part lies in what is left of the scene."""
    best, top = np.eye(4), 0.0
    for start in range(0, len(left), MOST):  # the least similar matches only if the best fail
        rows = left[start : start + MOST]
        if len(rows) < _MATCHES:
            break
        source, target = torch.from_numpy(p.pos[index[rows]]), torch.from_numpy(q.pos[rows])
        motions = consensus(source, target, REACH * p.voxel, _CANDIDATES)
        for R, t in zip(motions.rotation, motions.translation, strict=True):
            T = refine(p, q, as_matrix(R, t), reach=3.0)
            score = float(p.moved(T).on(q).mean())
            if score > top:
                best, top = T, score
        if top >= least or start >= 2 * MOST:
            break
    return best, top


def _uncentered(T: np.ndarray, middles: list[np.ndarray]) -> np.ndarray:  # (4, 4)
    """A motion between clouds about their middles, between the clouds as given."""
    out = T.copy()
    out[:3, 3] += middles[1] - T[:3, :3] @ middles[0]
    return out
