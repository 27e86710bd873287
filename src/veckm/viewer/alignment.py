"""Two clouds before and after alignment, and how like the picked point every other one is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from veckm.knn import build_tree, query
from veckm.viewer.display import DisplayCloud

#: What the page shows of two clouds with an alignment.
STAGES = ("before", "after")
#: Descriptors of points around queries: (N, 3), (M, 3), radius -> (M, F) real.
Describe = Callable[[Tensor, Tensor, float], Tensor]
#: Points of a cloud with a descriptor; others have the similarity of the nearest of them.
_DESCRIBED = 50_000
#: Lines of matches that are drawn, a random part of them if there are more.
_MAX_MATCHES = 200


@dataclass(frozen=True, eq=False)
class Alignment:
    """How the first cloud moves onto the second, found by whatever means.

    Attributes:
        transform: y = R x + t in the files' coordinates, from the first cloud to the second.
        matches: points of the first cloud and those of the second that they were matched with.
        inliers: which matches the transform agrees with; all if None.

    Shapes:
        - transform: (4, 4), matches: (K, 2, 3), inliers: (K,) bool
    """

    transform: np.ndarray
    matches: np.ndarray | None = None
    inliers: np.ndarray | None = None

    def __post_init__(self) -> None:
        if np.shape(self.transform) != (4, 4) or not np.isfinite(self.transform).all():
            raise ValueError(
                f"transform must be a finite 4 x 4 matrix, got shape {np.shape(self.transform)}"
            )
        pairs = 0 if self.matches is None else len(self.matches)
        if self.matches is not None and np.shape(self.matches) != (pairs, 2, 3):
            raise ValueError(
                f"matches must have shape (K, 2, 3), one point of each cloud, "
                f"got {np.shape(self.matches)}"
            )
        if self.inliers is not None and np.shape(self.inliers) != (pairs,):
            raise ValueError(
                f"inliers must have one value for each of the {pairs} matches, "
                f"got shape {np.shape(self.inliers)}"
            )

    def between(self, first: DisplayCloud, second: DisplayCloud) -> np.ndarray:  # (4, 4)
        """The transform between coordinates relative to the centers of the two clouds."""
        moved = np.array(self.transform, dtype=np.float64)
        moved[:3, 3] += moved[:3, :3] @ first.center - second.center
        return moved

    def shown_matches(self) -> tuple[np.ndarray, np.ndarray]:  # (k, 2, 3), (k,) bool
        """The matches that are drawn, and which of them are inliers."""
        pairs = np.zeros((0, 2, 3)) if self.matches is None else np.asarray(self.matches, float)
        good = np.ones(len(pairs), bool) if self.inliers is None else np.asarray(self.inliers, bool)
        some = np.random.default_rng(0).permutation(len(pairs))[:_MAX_MATCHES]
        return pairs[some], good[some]


def move(points: np.ndarray, matrix: np.ndarray) -> np.ndarray:  # (M, 3), (4, 4) -> (M, 3) float32
    """R x + t."""
    turned = points @ matrix[:3, :3].T.astype(points.dtype) + matrix[:3, 3].astype(points.dtype)
    placed: np.ndarray = turned.astype(np.float32)
    return placed


class Described:
    """Descriptors of two clouds, and their similarity to that of one point."""

    def __init__(self, clouds: tuple[DisplayCloud, ...], radius: float, describe: Describe) -> None:
        self._clouds = clouds
        some = [cloud.at[:: -(-len(cloud) // _DESCRIBED)] for cloud in clouds]
        found = [describe(c.pos, at, radius) for c, at in zip(clouds, some, strict=True)]
        both = torch.cat(found)
        mean, spread = both.mean(0), both.std(0).clamp_min(1e-6)
        #: In units of their spread, so that no number outweighs the others.
        self._values = [torch.nn.functional.normalize((f - mean) / spread, dim=1) for f in found]
        self._trees = [build_tree(at.numpy()) for at in some]
        self._nearest = [
            torch.from_numpy(query(tree, cloud.at.numpy(), 1)[1][:, 0])
            for tree, cloud in zip(self._trees, clouds, strict=True)
        ]

    def similarity(self, cloud: int, row: int) -> list[np.ndarray]:  # (M,) of each cloud
        """Correlation of every descriptor with that of a displayed point of one cloud."""
        own = self._values[cloud][self._nearest[cloud][row]]
        pairs = zip(self._values, self._nearest, strict=True)
        return [(values @ own)[rows].numpy() for values, rows in pairs]
