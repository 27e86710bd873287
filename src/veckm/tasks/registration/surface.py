"""A cloud at one resolution: voxel means with normals, and how well two of them lie together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.spatial import cKDTree
from torch import Tensor

from veckm.functional import moments
from veckm.knn import build_tree, query
from veckm.tasks.normals.eigen import packed, smallest
from veckm.tasks.registration.sampling import downsample

#: Radius of the window that normals are taken in, and reach of a correspondence, in voxels.
_WINDOW, REACH = 3.0, 1.5
#: Cosine between normals, up to sign, that lie on one surface.
_SAME = 0.8


@dataclass(frozen=True, eq=False)
class Surface:
    """Voxel means of a cloud with their normals, turned to where the surface bends away from.

    The mean of a window lies on the hollow side: a rule that needs neither the sensor nor the whole
    object, so that two scans follow it alike. On flat pieces the sign is arbitrary.
    """

    pos: np.ndarray  # (n, 3) float64
    normal: np.ndarray  # (n, 3)
    voxel: float

    @classmethod
    def of(cls, x: np.ndarray, voxel: float, most: int | None = None) -> Surface:  # (N, 3)
        """The cloud at this resolution; an even part of it if there are more than `most`."""
        pos = downsample(x, voxel)
        here = torch.from_numpy(pos).float()
        step = 1 if most is None else -(-len(pos) // most)
        pos, some = pos[::step], None if step == 1 else here[::step]
        around = moments(here, queries=some, radius=_WINDOW * voxel, engine="neighbors", eps=1e-2)
        normal = smallest(packed(around.covariance.double())).t().numpy()
        hollow = (normal * around.mean.double().numpy()).sum(1) > 0
        return cls(pos, np.where(hollow[:, None], -normal, normal), voxel)

    def __len__(self) -> int:
        return len(self.pos)

    def part(self, most: int) -> Surface:
        """At most so many of the points, evenly."""
        rows = slice(None, None, -(-len(self) // most))
        return Surface(self.pos[rows], self.normal[rows], self.voxel)

    @cached_property
    def tree(self) -> cKDTree:
        """For the nearest of these points."""
        return build_tree(self.pos)

    def moved(self, T: np.ndarray) -> Surface:  # (4, 4)
        """The surface after a rigid motion."""
        return Surface(self.pos @ T[:3, :3].T + T[:3, 3], self.normal @ T[:3, :3].T, self.voxel)

    def on(self, other: Surface, reach: float = REACH) -> np.ndarray:  # (n,) bool
        """Which points lie on the other surface: a point within reach, with the same normal."""
        distance, index = query(other.tree, self.pos, 1, reach * self.voxel)
        found = np.isfinite(distance[:, 0])
        near = other.normal[np.where(found, index[:, 0], 0)]
        same: np.ndarray = found & (np.abs((near * self.normal).sum(1)) > _SAME)
        return same

    def shares(self, other: Surface) -> tuple[float, float]:
        """The share of each that lies on the other."""
        return float(self.on(other).mean()), float(other.on(self).mean())

    def slips(self) -> tuple[np.ndarray, np.ndarray]:  # (6,) ascending, (6, 6) its columns
        """How much motions change the surface (Gelfand and Guibas, "Shape segmentation using local
        slippage analysis", 2004), and the motions: mean square of n . (velocity of the point)."""
        x = self.pos - self.pos.mean(0)
        x = x / max(float(np.sqrt((x**2).sum(1).mean())), 1e-300)
        J = np.concatenate([np.cross(x, self.normal), self.normal], 1)
        values, vectors = np.linalg.eigh(J.T @ J / len(J))
        return values, vectors

    def free(self) -> list[np.ndarray]:  # each (6,): rotation and translation
        """Motions that leave it as it is: a sphere turns in 3 ways, a plane slides in 2."""
        values, vectors = self.slips()
        noise = (0.5 * self.voxel / max(float(np.ptp(self.pos, 0).max()), 1e-300)) ** 2
        return [vectors[:, k] for k in np.flatnonzero(values < 1e-3 + noise)]


def refine(
    source: Surface,
    target: Surface,
    T: np.ndarray,  # (4, 4)
    *,
    reach: float,  # in voxels, of the first correspondences
    rounds: int = 20,
    up: bool = False,
) -> np.ndarray:  # (4, 4)
    """Point-to-plane ICP: argmin sum_i rho(n_i . (T p_i - q_i)), within a reach that shrinks.

    With `up` rotations are about z only.
    """
    for step in range(rounds):
        moved = source.moved(T)
        now = max(1.0, reach * 0.8**step) * source.voxel
        distance, index = query(target.tree, moved.pos, 1, now)
        found = np.isfinite(distance[:, 0])
        if found.sum() < 6:
            break
        p, q, n = moved.pos[found], target.pos[index[found, 0]], target.normal[index[found, 0]]
        along = (n * moved.normal[found]).sum(1)
        residual = ((p - q) * n).sum(1)
        weight = along**2 / (1 + (residual / (0.3 * now)) ** 2) ** 2  # Geman and McClure's
        middle = p.mean(0)
        scale = max(float(np.abs(p - middle).max()), 1e-300)
        J = np.concatenate([np.cross((p - middle) / scale, n), n], 1)
        J = J[:, 2:] if up else J
        H = (J * weight[:, None]).T @ J
        H += 1e-6 * np.trace(H) * np.eye(len(H))  # where the surfaces slide, stay
        delta = np.zeros(6)
        delta[6 - len(H) :] = -np.linalg.solve(H, (J * weight[:, None]).T @ residual)
        T = about(middle, delta[:3] / scale, delta[3:]) @ T
        if now <= source.voxel and np.linalg.norm(delta) < 1e-3 * source.voxel:
            break
    return T


def about(middle: np.ndarray, turn: np.ndarray, move: np.ndarray) -> np.ndarray:  # (3,) each
    """The rigid motion that turns about a point by a rotation vector and moves."""
    x, y, z = turn
    T = np.eye(4)
    K = torch.tensor([[0, -z, y], [z, 0, -x], [-y, x, 0]], dtype=torch.float64)
    T[:3, :3] = torch.linalg.matrix_exp(K).numpy()
    T[:3, 3] = middle - T[:3, :3] @ middle + move
    return T


def as_matrix(R: Tensor, t: Tensor) -> np.ndarray:  # (3, 3), (3,) -> (4, 4)
    """A rotation and a translation as one matrix."""
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = R.numpy(), t.numpy()
    return T
