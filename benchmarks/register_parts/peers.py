"""Ours and what others offer, each as a function of two clouds."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

import veckm
from veckm.tasks.registration.matching import comparable, features, nearest
from veckm.tasks.registration.surface import Surface

OURS, UNTRAINED = "veckm.register", "veckm, untrained"
RANSAC, FGR, KISS = "Open3D: FPFH, RANSAC", "Open3D: FPFH, FGR", "KISS-Matcher"

Method = Callable[[np.ndarray, np.ndarray, float], np.ndarray]  # clouds, voxel -> (4, 4)


def methods() -> dict[str, Method]:
    """Those that are installed, by name."""
    found: dict[str, Method] = {}
    if find_spec("open3d") is not None:
        found |= {RANSAC: _ransac, FGR: _fgr}
    if find_spec("kiss_matcher") is not None:
        found[KISS] = _kiss
    return found


def cloud(x: np.ndarray, voxel: float | None = None) -> Any:
    """An Open3D cloud, downsampled, with normals at two voxels turned to the center."""
    import open3d

    made = open3d.geometry.PointCloud(open3d.utility.Vector3dVector(x))
    if voxel is None:
        return made
    made = made.voxel_down_sample(voxel)
    return with_normals(made, 2 * voxel)


def with_normals(made: Any, radius: float) -> Any:
    """Normals of at most 30 neighbors, as in Open3D's own example."""
    import open3d

    made.estimate_normals(open3d.geometry.KDTreeSearchParamHybrid(radius, 30))
    made.orient_normals_towards_camera_location(made.get_center())
    return made


def fpfh(made: Any, radius: float, most: int | None = 100) -> Any:
    """FPFH of at most 100 neighbors, as in Open3D's own example, or of all with None."""
    from open3d import geometry, pipelines

    search = geometry.KDTreeSearchParamRadius(radius)
    if most is not None:
        search = geometry.KDTreeSearchParamHybrid(radius, most)
    return pipelines.registration.compute_fpfh_feature(made, search)


def _ransac(x: np.ndarray, y: np.ndarray, voxel: float) -> np.ndarray:
    import open3d

    r = open3d.pipelines.registration
    open3d.utility.random.seed(0)
    p, q = cloud(x, voxel), cloud(y, voxel)
    reach = 1.5 * voxel
    found = r.registration_ransac_based_on_feature_matching(
        p, q, fpfh(p, 5 * voxel), fpfh(q, 5 * voxel), True, reach,
        r.TransformationEstimationPointToPoint(False), 3,
        [
            r.CorrespondenceCheckerBasedOnEdgeLength(0.9),
            r.CorrespondenceCheckerBasedOnDistance(reach),
        ],
        r.RANSACConvergenceCriteria(100_000, 0.999),
    )  # fmt: skip
    return np.asarray(found.transformation)


def _fgr(x: np.ndarray, y: np.ndarray, voxel: float) -> np.ndarray:
    import open3d

    r = open3d.pipelines.registration
    p, q = cloud(x, voxel), cloud(y, voxel)
    option = r.FastGlobalRegistrationOption(maximum_correspondence_distance=0.5 * voxel)
    found = r.registration_fgr_based_on_feature_matching(
        p, q, fpfh(p, 5 * voxel), fpfh(q, 5 * voxel), option
    )
    return np.asarray(found.transformation)


def _kiss(x: np.ndarray, y: np.ndarray, voxel: float) -> np.ndarray:
    import kiss_matcher

    matcher = kiss_matcher.KISSMatcher(kiss_matcher.KISSMatcherConfig(voxel))
    found = matcher.estimate(x.astype(np.float32), y.astype(np.float32))
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = np.asarray(found.rotation), np.asarray(found.translation).ravel()
    return T


def ours(x: np.ndarray, y: np.ndarray, learnt: bool = True) -> veckm.Registration:
    """As users call it."""
    return veckm.register(torch.from_numpy(x), torch.from_numpy(y), learnt=learnt)


def our_matches(p: Surface, q: Surface) -> dict[str, np.ndarray]:
    """The target keypoint with the nearest of our descriptors, with the projection and without."""
    a, b = features(p), features(q)
    return {
        name: nearest(*comparable(a, b, learnt))[0].numpy()
        for name, learnt in (("veckm", True), (UNTRAINED, False))
    }


def fpfh_matches(p: Surface, q: Surface) -> np.ndarray:
    """The target keypoint with the nearest FPFH, at the same keypoints."""
    rows = []
    for surface in (p, q):
        made = with_normals(cloud(surface.pos), 2 * surface.voxel)
        rows.append(torch.from_numpy(np.asarray(fpfh(made, 5 * surface.voxel).data).T).float())
    a, b = rows
    return np.concatenate([torch.cdist(part, b).argmin(1).numpy() for part in a.split(4096)])
