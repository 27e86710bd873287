"""Normals, their expected error, and curvature of any cloud: the task as users call it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from veckm.engines.curve import curve_order
from veckm.inputs import as_points, check_points
from veckm.parallel import one_thread, share, workers
from veckm.tasks.normals.curvature import principal_curvatures
from veckm.tasks.normals.free import moment_normals
from veckm.tasks.normals.levels import make_levels
from veckm.tasks.normals.network import NormalNet
from veckm.tasks.normals.orient import orient as turn

Method = Literal["network", "moments"]
Orientation = Literal["none", "viewpoint", "up", "consistent"]

_WEIGHTS = "normals"
#: Up to this many points the parts of one cloud are too small to be shared among workers.
_SMALL = 8192
#: The root mean square angle of a guess among all directions is about this many degrees.
GUESS = 60.0


@dataclass(frozen=True)
class Estimate:
    """What is known about the surface at every point; leading shape as that of the points."""

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
    viewpoint: Tensor | None = None,  # (3,)
    method: Method = "network",
) -> Tensor:
    """Unit normals of a cloud in any units: nothing to choose.

    Shapes:
        returns: as pos. See :func:`veckm.tasks.normals.estimate` for errors and curvature.
    """
    return estimate(pos, batch=batch, orient=orient, viewpoint=viewpoint, method=method).normal


@one_thread()
def estimate(
    pos: Tensor,  # (N, 3) or (B, N, 3)
    *,
    batch: Tensor | None = None,  # (N,)
    orient: Orientation = "none",
    viewpoint: Tensor | None = None,  # (3,)
    curvature: bool = False,
    method: Method = "network",
    net: NormalNet | None = None,
) -> Estimate:
    """Normals with the error to expect, and curvature if asked for.

    Scales come from the cloud's own density. Fewer than three points, or points on a line, have no
    plane: their normal is a fixed unit vector (across the line), with an expected error of 60
    degrees, that of a guess. Exact duplicates are neighbors like any others.

    Args:
        orient: which of the two directions: "none" leaves it open, "viewpoint" looks towards
            `viewpoint`, "up" has z >= 0, "consistent" agrees between neighbors and points out of
            closed surfaces.
        method: "network", or "moments" for the estimator without training.
        net: your own network instead of the one that comes with the package.
    """
    check_points(pos, "pos")
    if pos.shape[-1] != 3:
        raise ValueError(
            f"normals are for points with 3 coordinates, pos has {pos.shape[-1]}; "
            f"got shape {tuple(pos.shape)}"
        )
    if method not in ("network", "moments"):
        raise ValueError(f"unknown method {method!r}: use 'network' or 'moments'")
    if (viewpoint is None) == (orient == "viewpoint"):
        raise ValueError("orient='viewpoint' and viewpoint=(3,) go together: give both or neither")
    clouds = _clouds(pos, batch)
    if method == "network" and net is None and clouds:
        net = shipped()  # loaded once, before the workers ask for it
    parts = _each(clouds, lambda x: _single(x, orient, viewpoint, curvature, method, net))
    lead = pos.shape[:-1]
    if not parts:
        empty = pos.new_zeros(*lead, 3)
        return Estimate(empty, empty[..., 0], empty[..., :2] if curvature else None)
    bends = [p.curvature for p in parts if p.curvature is not None]
    return Estimate(
        torch.cat([p.normal for p in parts]).view(*lead, 3),
        torch.cat([p.error for p in parts]).view(lead),
        torch.cat(bends).view(*lead, 2) if bends else None,
    )


def _clouds(pos: Tensor, batch: Tensor | None) -> list[Tensor]:
    flat = as_points(pos, batch, "pos")
    return [part for part in flat.flat.split(flat.counts) if len(part)] if len(flat) else []


def _each(clouds: Sequence[Tensor], single: Callable[[Tensor], Estimate]) -> list[Estimate]:
    """The estimate of every cloud; small clouds are shared among workers, large ones share."""
    parts: dict[int, Estimate] = {}

    def work(number: int) -> None:
        parts[number] = single(clouds[number])

    small = max(map(len, clouds), default=0) <= _SMALL
    count = workers(torch.device("cpu"), 4 * len(clouds)) if small else 1
    share(range(len(clouds)), lambda _: work, count)
    return [parts[number] for number in range(len(clouds))]


def _single(
    pos: Tensor,
    orient: Orientation,
    viewpoint: Tensor | None,
    curvature: bool,
    method: Method,
    net: NormalNet | None,
) -> Estimate:
    if method == "moments":
        normal, error = moment_normals(pos)
    else:
        order = curve_order(pos.cpu())  # neighbors are then near in memory too
        answer = (net or shipped())(make_levels(pos.cpu()[order], order))
        normal, error = torch.empty_like(answer.normal), torch.empty_like(answer.error)
        normal[order], error[order] = answer.normal, answer.error
    if _on_a_line(pos):
        error = torch.full_like(error, GUESS)
    if orient != "none":
        normal = turn(pos, normal, orient, viewpoint=viewpoint)
    bend = principal_curvatures(pos, normal) if curvature else None
    return Estimate(normal.to(pos), error.to(pos), None if bend is None else bend.to(pos))


def _on_a_line(pos: Tensor) -> bool:  # (N, 3)
    """Whether the cloud has no plane at all: all points on one line or spot, but for rounding."""
    x = pos.detach().double()
    off = x - x.mean(0)
    rounding = torch.finfo(pos.dtype).eps * float(x.abs().amax())
    return no_plane(off.t() @ off / len(x), rounding)


def no_plane(covariance: Tensor, rounding: float) -> bool:  # (3, 3)
    """Whether points of this covariance lie on a line, but for rounding."""
    spread = torch.linalg.eigvalsh(covariance).clamp_min(0).sqrt()
    return float(spread[1]) <= max(4 * rounding, 1e-7 * float(spread[2]))


@lru_cache(maxsize=1)
def shipped() -> NormalNet:
    """The network with the weights that come with the package."""
    with as_file(files("veckm.weights") / f"{_WEIGHTS}.safetensors") as path:
        return load(path)


def load(path: Path) -> NormalNet:
    """A network from its weights (.safetensors) and its settings beside them (.json)."""
    settings = json.loads(path.with_suffix(".json").read_text())["network"]
    net = NormalNet(**settings)
    net.load_state_dict(load_file(path))
    return net.eval().requires_grad_(False)


def save(net: NormalNet, path: Path, about: dict[str, object]) -> None:
    """Weights and settings, `about` telling how they came to be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({k: v.contiguous() for k, v in net.state_dict().items()}, path)
    text = json.dumps({"network": net.settings, "training": about}, indent=2)
    path.with_suffix(".json").write_text(text + "\n")
