"""Normals, their expected error, and curvature of any cloud: the task as users call it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import as_file, files
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from veckm.engines.curve import curve_order
from veckm.inputs import as_points, check_points
from veckm.io.errors import guarded
from veckm.parallel import one_thread, share, workers
from veckm.progress import begin
from veckm.tasks.normals import eigen
from veckm.tasks.normals.curvature import part_curvatures
from veckm.tasks.normals.network import NormalNet
from veckm.tasks.normals.orient import Orientation
from veckm.tasks.normals.orient import orient as orient_normals
from veckm.tasks.normals.pyramid import Subsets
from veckm.tasks.normals.stats import GlobalStats, stats_of
from veckm.tasks.normals.untrained import moment_normals, window_reach

Method = Literal["network", "best", "moments"]
#: Families of subsets whose estimates "best" averages.
_FAMILIES = 2

#: Up to this many points the parts of one cloud are too small to be shared among workers.
_SMALL = 8192
#: The root mean square angle between random directions is about this many degrees.
_GUESS = 60.0
#: Directions without a sign cannot be further apart.
_LARGEST = 90.0


@dataclass(frozen=True)
class Estimate:
    """The surface at every point; leading shape as that of the points."""

    normal: Tensor  # (..., 3) unit
    error: Tensor  # (...,) the angle error to expect, in degrees
    curvature: Tensor | None = None  # (..., 2) principal curvatures k1 >= k2, one over length

    @property
    def mean_curvature(self) -> Tensor:
        """(k1 + k2) / 2."""
        return self._curvature().mean(-1)

    @property
    def gaussian_curvature(self) -> Tensor:
        """k1 k2."""
        return self._curvature().prod(-1)

    def _curvature(self) -> Tensor:
        if self.curvature is None:
            raise ValueError("curvature was not asked for: call estimate(pos, curvature=True)")
        return self.curvature


def estimate_normals(
    pos: Tensor,  # (N, 3) or (B, N, 3)
    *,
    batch: Tensor | None = None,  # (N,)
    orient: Orientation = "none",
    viewpoint: Tensor | None = None,  # (3,), or of the shape of pos
    method: Method = "network",
) -> Tensor:
    """Unit normals of a cloud in any units, without parameters, in the shape of `pos`.

    See :func:`veckm.tasks.normals.estimate` for the options, errors and curvature.
    """
    return estimate(pos, batch=batch, orient=orient, viewpoint=viewpoint, method=method).normal


@one_thread()
def estimate(
    pos: Tensor,  # (N, 3) or (B, N, 3)
    *,
    batch: Tensor | None = None,  # (N,)
    orient: Orientation = "none",
    viewpoint: Tensor | None = None,  # (3,), or of the shape of pos
    curvature: bool = False,
    method: Method = "network",
    net: NormalNet | None = None,
) -> Estimate:
    """Normals with their expected error, and curvature if asked for.

    Scales come from the density of the cloud. Fewer than three points, or points on a line, have no
    plane: their normal is a fixed unit vector (across the line), with the expected error of a
    random guess, 60 degrees. Exact duplicates are neighbors like any others.

    :class:`veckm.scan.Normals` is the same for files larger than memory.

    Args:
        orient: which of the two directions: "none" leaves the sign arbitrary, "viewpoint" points
            towards `viewpoint`, "up" has z >= 0, "consistent" agrees between neighbors and points
            out of closed surfaces, "auto" is one of the last three by what the cloud is.
        viewpoint: position of the scanner, for "viewpoint" and "auto", for all or for each point.
        curvature: principal curvatures as well.
        method: "network"; "best", the mean of two of its estimates, from other neighbors, in twice
            the time; or "moments", the estimator without training.
        net: your own network instead of the one that comes with the package.
    """
    check_points(pos, "pos")
    if pos.shape[-1] != 3:
        raise ValueError(
            f"normals are for points with 3 coordinates, pos has {pos.shape[-1]}; "
            f"got shape {tuple(pos.shape)}"
        )
    check_options(orient, viewpoint, method)
    flat = as_points(pos, batch, "pos")
    ends = accumulate(flat.counts if len(flat) else (), initial=0)
    clouds = [slice(a, b) for a, b in pairwise(ends) if a < b]
    if method != "moments" and net is None and clouds:
        net = shipped()  # loaded once, before the workers ask for it
    places = None if viewpoint is None else torch.as_tensor(viewpoint)
    moving = places is not None and places.shape == pos.shape
    outputs = [pos.new_empty(len(flat), *shape) for shape in ((3,), (), (2,))[: 2 + curvature]]

    def work(cloud: slice) -> None:
        place = places.reshape(-1, 3)[cloud] if moving and places is not None else places
        found = _single(flat.flat[cloud], orient, place, curvature, method, net)
        for out, values in zip(outputs, found, strict=True):
            out[cloud] = values

    # Small clouds in parallel; large ones one after the other, each shared among the workers.
    small = all(cloud.stop - cloud.start <= _SMALL for cloud in clouds)
    share(clouds, lambda _: work, workers(torch.device("cpu"), 4 * len(clouds)) if small else 1)
    return Estimate(*(out.view(*pos.shape[:-1], *out.shape[1:]) for out in outputs))


def check_options(orient: str, viewpoint: object, method: str) -> None:
    """Raise for options that :func:`estimate` does not have."""
    if orient not in get_args(Orientation):
        raise ValueError(f"orient must be one of {get_args(Orientation)}, got {orient!r}")
    if orient != "auto" and (viewpoint is None) == (orient == "viewpoint"):
        raise ValueError(
            "orient='viewpoint' and viewpoint=(x, y, z) go together: give both or neither"
        )
    if method not in get_args(Method):
        raise ValueError(f"method must be one of {get_args(Method)}, got {method!r}")


def _single(
    pos: Tensor,  # (N, 3), N >= 1
    orient: Orientation,
    viewpoint: Tensor | None,  # (3,) or (N, 3)
    curvature: bool,
    method: Method,
    net: NormalNet | None,
) -> list[Tensor]:  # (N, 3), (N,), and (N, 2) if asked for
    """One cloud in memory: a part that is the whole."""
    order = curve_order(pos.cpu())  # in the order of the curve neighbors are near in memory
    back = order.argsort()
    stats, rows = stats_of(pos), np.arange(len(pos))
    x = stats.scaled(pos.detach().cpu()[order].double().numpy())
    part = PartEstimator(x, order.numpy(), stats, method, net)
    begin("normals")
    normal, error = part.estimate(rows)
    begin("orient")
    if orient != "none":
        given = pos.detach().cpu()[order], normal, orient
        place = viewpoint if viewpoint is None or viewpoint.ndim == 1 else viewpoint.cpu()[order]
        normal = orient_normals(*given, viewpoint=place, subsets=part.subsets)
    if not curvature:
        return [normal[back], error[back]]
    begin("curvature")
    curved = part_curvatures(part.subsets, normal, rows) / stats.spacing
    return [normal[back], error[back], curved[back]]


class PartEstimator:
    """Normals at some points of a cloud, given the points around them: in memory all points, in
    tiles those of the tile and its halo."""

    def __init__(
        self,
        x: np.ndarray,  # (N, 3) float64
        ids: np.ndarray,  # (N,)
        stats: GlobalStats,
        method: Method = "network",
        net: NormalNet | None = None,
    ) -> None:
        """Points scaled by the statistics of their whole cloud, and the number of each in it."""
        self.x, self.stats = x, stats
        self.net = None if method == "moments" else net or shipped()
        self._families = [Subsets(x, ids, k) for k in range(_FAMILIES if method == "best" else 1)]
        self.subsets = self._families[0]

    def reach(self, rows: np.ndarray) -> np.ndarray:  # (n,) -> (n,)
        """How far from each row its estimate depends on other points, in spacings.

        Infinite where the points that are loaded are too few to tell.
        """
        if self.net is None:
            return np.full(len(rows), window_reach())
        if not all(f.complete for f in self._families) and len(self.x) < self.stats.count:
            return np.full(len(rows), np.inf)
        every = [f.reach(rows, len(self.net.stages)) for f in self._families]
        return np.asarray(np.max(every, axis=0))

    def estimate(self, rows: np.ndarray) -> tuple[Tensor, Tensor]:  # (n, 3), (n,)
        """Unit normals of arbitrary sign, and their expected errors in degrees."""
        if self.net is None:
            normal, error = moment_normals(self.x, rows)
        else:
            found = [self._predict(self.net, family, rows) for family in self._families]
            normal, error = found[0]
            if len(found) > 1:
                normals, errors = (torch.stack(some) for some in zip(*found, strict=True))
                normal = eigen.dominant(eigen.outer(normals.permute(2, 0, 1)).sum(1)).t()
                error = errors.mean(0)
        if self.stats.collinear:
            error = torch.full_like(error, _GUESS)
        return normal, error.clamp(max=_LARGEST)

    @staticmethod
    def _predict(net: NormalNet, subsets: Subsets, rows: np.ndarray) -> tuple[Tensor, Tensor]:
        planes, *stages = subsets.dependencies(rows, len(net.stages))
        normal, error = net(subsets.pyramid(planes), stages)
        return normal[rows], error[rows]


def network(weights: str | Path | None) -> NormalNet:
    """A network that a user trained, or by default the one of the package."""
    if weights is None:
        return shipped()
    return _loaded(Path(weights), Path(weights).stat().st_mtime_ns)


@lru_cache(maxsize=1)
def _loaded(path: Path, _modified: int) -> NormalNet:
    return load(path)


@lru_cache(maxsize=1)
def shipped() -> NormalNet:
    """The network with the weights that come with the package."""
    with as_file(files("veckm.weights") / "normals.safetensors") as path:
        return load(path)


def load(path: Path) -> NormalNet:
    """A network from its weights (.safetensors) and its settings beside them (.json)."""
    with guarded(path, "read as the weights of a normal network"):
        path.stat()  # a missing file is the better error
        settings = json.loads(path.with_suffix(".json").read_text())["network"]
        net = NormalNet(**settings)
        net.load_state_dict(load_file(path))
    return net.eval().requires_grad_(False)


def save(net: NormalNet, path: Path, about: dict[str, object]) -> None:
    """Weights (.safetensors) and settings (.json), with `about` as a record of the training."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in net.state_dict().items()}, path)
    text = json.dumps({"network": net.settings, "training": about}, indent=2)
    path.with_suffix(".json").write_text(text + "\n")
