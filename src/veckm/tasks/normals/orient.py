"""The sign of each normal: towards a viewpoint, up, or in agreement with its neighbors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from veckm.inputs import check_finite
from veckm.parallel import one_thread
from veckm.tasks.normals.classical import check_cloud
from veckm.tasks.normals.consistent import consistent_signs
from veckm.tasks.normals.direction import choose_direction
from veckm.tasks.normals.pyramid import Subsets

#: Cosines: of the angle to the line of sight below which it grazes, and to the vertical of ground.
_GRAZING, _LEVEL = 0.25, 0.7

Orientation = Literal["auto", "none", "viewpoint", "up", "consistent"]


@one_thread()
def orient(
    pos: Tensor,  # (N, 3)
    normal: Tensor,  # (N, 3)
    how: Orientation = "consistent",
    *,
    viewpoint: Tensor | Sequence[float] | None = None,  # (3,) or (N, 3)
    subsets: Subsets | None = None,
) -> Tensor:  # (N, 3)
    r"""The same unit normals, each or its opposite, so that they point one way.

    .. math:: n_i \to s_i n_i, \qquad s_i \in \{-1, 1\}

    ``"auto"`` is ``"viewpoint"`` if there is one, ``"up"`` for a sheet seen from above, and else
    ``"consistent"`` (:func:`veckm.tasks.normals.choose_direction`). ``"none"`` changes nothing.
    ``"viewpoint"`` turns every normal towards the position of the sensor, one for all or one per
    point, but those of level ground that it sees from above at a grazing angle up: there the error
    of a normal is larger than the angle. ``"up"`` turns every normal to the side of +z.
    ``"consistent"`` makes neighbors agree, and turns each closed surface outwards and each cavity
    in it inwards; a flat piece, which encloses nothing, is turned up (an upright one to +x, else
    +y).

    `subsets` of the same points, in the order of a curve, are there already where normals were
    estimated.

    The given signs do not matter: a normal at right angles to the given direction gets its first
    component that is not zero positive.
    """
    check_cloud(pos)
    check_cloud(normal, "normal", pos)
    if how == "auto":
        x = pos.detach().cpu().double().numpy()
        how = choose_direction(lambda: [x], sensor=viewpoint is not None).orient
    if how == "none":
        return normal
    if how == "viewpoint":
        if viewpoint is None:
            raise ValueError('how="viewpoint" needs to know where from: pass viewpoint=(x, y, z)')
        places = torch.as_tensor(viewpoint, dtype=torch.float64, device=pos.device)
        if places.shape not in ((3,), pos.shape):
            raise ValueError(
                f"viewpoint must have shape (3,) or {tuple(pos.shape)}, got {tuple(places.shape)}"
            )
        check_finite(places, "viewpoint")
        return normal * _facing(normal, places - pos.detach().double())
    if how == "up":
        return normal * _side(normal, torch.eye(3, dtype=torch.float64, device=pos.device)[2])
    if how == "consistent":
        x, n = (t.detach().cpu().double().numpy() for t in (pos, normal))
        sign = consistent_signs(x if subsets is None else subsets.x, n, subsets)
        return normal * torch.from_numpy(sign).to(normal)[:, None]
    raise ValueError(f'how must be "auto", "none", "viewpoint", "up" or "consistent", got {how!r}')


def _facing(normal: Tensor, toward: Tensor) -> Tensor:  # (N, 3), (N, 3) -> (N, 1)
    """The side of the sensor; of level ground below it that is seen at a grazing angle, up."""
    n = normal.detach().double()
    grazing = (n * toward).sum(-1).abs() < _GRAZING * torch.linalg.vector_norm(toward, dim=-1)
    ground = grazing & (n[:, 2].abs() > _LEVEL) & (toward[:, 2] > 0)
    return _side(normal, torch.where(ground[:, None], toward.new_tensor([0.0, 0.0, 1.0]), toward))


def _side(normal: Tensor, toward: Tensor) -> Tensor:  # (N, 3), (N, 3) or (3,) -> (N, 1)
    """1 where the normal is on the side of `toward`, -1 where it is not."""
    n = normal.detach().double()
    side = (n * toward).sum(-1).sign()
    for component in n.unbind(-1):
        side = torch.where(side == 0, component.sign(), side)
    return torch.where(side < 0, -1.0, 1.0).to(normal)[:, None]
