"""Solvers and refinements of others on our matches and our voxel means."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from benchmarks.register_parts.pairs import Pair
from veckm.tasks.registration.align import VOXELS
from veckm.tasks.registration.consensus import consensus
from veckm.tasks.registration.matching import comparable, features, mutual_matches
from veckm.tasks.registration.sampling import voxel_size
from veckm.tasks.registration.surface import REACH, Surface, as_matrix, refine

#: Reach of the refinements in voxels.
_REACH = 3.0

Solver = Callable[[np.ndarray, np.ndarray, float], np.ndarray]  # (M, 3) twice, voxel -> (4, 4)
Refinement = Callable[[Surface, Surface, np.ndarray], np.ndarray]  # with a start -> (4, 4)


def compare(pair: Pair) -> dict[str, Any]:
    """Every solver on the same matches, then every refinement from the same motion."""
    voxel = voxel_size([pair.source, pair.target], VOXELS)
    p, q = (Surface.of(x, voxel) for x in (pair.source, pair.target))
    rows = mutual_matches(*comparable(features(p), features(q)))
    matched = p.pos[rows[:, 0]], q.pos[rows[:, 1]]
    solved = {name: _run(pair, solve, *matched, voxel) for name, solve in solvers().items()}
    start = _consensus(*matched, voxel)
    refined = {name: _run(pair, call, p, q, start) for name, call in refinements().items()}
    off = {"none": {"rmse": pair.error(start)[1], "right": pair.right(start), "seconds": 0.0}}
    return {"set": pair.set, "voxel": voxel, "solvers": solved, "refinements": {**off, **refined}}


def _run(pair: Pair, call: Callable[..., np.ndarray], *args: Any) -> dict[str, Any]:
    call(*args)  # once before it is timed
    start = time.perf_counter()
    T = call(*args)
    spent = time.perf_counter() - start
    return {"right": pair.right(T), "rmse": pair.error(T)[1], "seconds": spent}


def solvers() -> dict[str, Solver]:
    """From matches to a motion, nothing refined."""
    found: dict[str, Solver] = {"veckm, spatial compatibility": _consensus}
    if find_spec("kiss_matcher") is not None:
        found["KISS-Matcher, pruning and GNC"] = _kiss
    if find_spec("open3d") is not None:
        found["Open3D, RANSAC of matches"] = _ransac
    return found


def refinements() -> dict[str, Refinement]:
    """From one motion to a better one on the same voxel means."""
    found: dict[str, Refinement] = {"veckm, point to plane": _refine}
    if find_spec("small_gicp") is not None:
        found["small_gicp, point to plane"] = lambda p, q, T: _gicp(p, q, T, "PLANE_ICP")
        found["small_gicp, GICP"] = lambda p, q, T: _gicp(p, q, T, "GICP")
    return found


def _consensus(p: np.ndarray, q: np.ndarray, voxel: float) -> np.ndarray:
    found = consensus(torch.from_numpy(p), torch.from_numpy(q), REACH * voxel, 1)
    return as_matrix(found.rotation[0], found.translation[0])


def _kiss(p: np.ndarray, q: np.ndarray, voxel: float) -> np.ndarray:
    import kiss_matcher

    matcher = kiss_matcher.KISSMatcher(kiss_matcher.KISSMatcherConfig(voxel))
    found = matcher.prune_and_solve(*(list(x.astype(np.float32)[:, :, None]) for x in (p, q)))
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = np.asarray(found.rotation), np.asarray(found.translation).ravel()
    return T


def _ransac(p: np.ndarray, q: np.ndarray, voxel: float) -> np.ndarray:
    import open3d

    r = open3d.pipelines.registration
    open3d.utility.random.seed(0)
    clouds = [open3d.geometry.PointCloud(open3d.utility.Vector3dVector(x)) for x in (p, q)]
    rows = np.repeat(np.arange(len(p), dtype=np.int32)[:, None], 2, 1)
    found = r.registration_ransac_based_on_correspondence(
        *clouds,
        open3d.utility.Vector2iVector(rows),
        REACH * voxel,
        criteria=r.RANSACConvergenceCriteria(100_000, 0.999),
    )
    return np.asarray(found.transformation)


def _refine(p: Surface, q: Surface, T: np.ndarray) -> np.ndarray:
    return refine(p, q, T, reach=_REACH)


def _gicp(p: Surface, q: Surface, T: np.ndarray, kind: str) -> np.ndarray:
    import small_gicp

    clouds = [small_gicp.PointCloud(surface.pos) for surface in (q, p)]
    trees = [small_gicp.KdTree(cloud) for cloud in clouds]
    for cloud, tree in zip(clouds, trees, strict=True):
        small_gicp.estimate_normals_covariances(cloud, tree)
    found = small_gicp.align(
        *clouds, trees[0], T, kind, _REACH * p.voxel, rotation_epsilon=1e-5,
        translation_epsilon=1e-4 * p.voxel, max_iterations=50,
    )  # fmt: skip
    return np.asarray(found.T_target_source)
