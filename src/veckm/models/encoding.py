"""VecKM as a part of a network: the encoding and the complex layers that follow it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from veckm.encoder import VecKM
from veckm.engines import Norm
from veckm.engines.phasors import phase, phasors
from veckm.frequencies import standard_normal
from veckm.models.base import Task
from veckm.models.pooling import largest_norm
from veckm.nn import FeatureBlock
from veckm.planning import EngineName

#: Points whose encodings are transformed at a time where no gradient is wanted.
_ROWS = 4096


@dataclass(frozen=True)
class EncodingSettings:
    """What the VecKM paper chooses for a task.

    Attributes:
        alpha: level of detail.
        beta: inverse size of the window.
        dim: D, complex numbers of an encoding.
        hidden: complex channels between the two complex layers.
        channels: C, real features of a point.
        engine: how the encoding is computed; the paper's is ``"dense"`` for objects and
            ``"random"`` for scenes.
        p: columns of B, for ``engine="random"``.
        eps: mean relative error of an encoding.
        position: deviation of the frequencies P of e^(i x P), which is added to the encoding and
            says where in the cloud a point is; an encoding alone says what is around it. None
            where it is 0.
        norm: normalization of the encoding, ``"unit"``, ``"mean"`` or None; see
            :func:`veckm.encode`.
        batch_norm: whiten the hidden channels by the batch; see :class:`veckm.nn.FeatureBlock`.
    """

    alpha: float = 30.0
    beta: float = 6.0
    dim: int = 256
    hidden: int = 128
    channels: int = 128
    engine: EngineName = "auto"
    p: int = 2048
    eps: float = 1e-2
    position: float = 1.0
    norm: Norm = "unit"
    batch_norm: bool = False


#: Sections 4.2 to 4.4 of the VecKM paper; hidden and channels of objects are those of Appendix B.
#: For scenes it says "two complex linear layers from C^256 to C^64" and counts 0.16M parameters
#: more in Point Transformer, which is what 256 channels between the two have. Its random features
#: with p = 2048 were off by 24 % on spheres of 1,024 points at beta = 9, so an eps of 5 % is still
#: closer; on a room of 50,000 points it took a third of the time of 1 %.
PAPER: dict[Task, EncodingSettings] = {
    "classification": EncodingSettings(),
    "part-segmentation": EncodingSettings(beta=9.0),
    "semantic-segmentation": EncodingSettings(beta=9.0, hidden=256, channels=64, eps=5e-2),
}

#: Where a network differs from these. The paper does not speak of positions; the networks that its
#: authors published add them where nothing else says where a point is. Nor does it give the width
#: of VecKM -> PN: 1024 channels are PointNet's before its maximum. Its authors' has 256 hidden
#: channels, and so the 1.29M parameters that Table 3 counts; half of them make half the products.
#: The groups of PointNet++ see differences alone until the last layers: for whole objects it has
#: the position (training loss 1.12 instead of 1.18 after six epochs of 1,600 objects, one seed).
#: A batch norm in VecKM -> PN was tried: no better on the whole split. docs/networks.md says how
#: both were chosen.
_POINTNET: dict[str, Any] = {"channels": 1024}
_PLACED: dict[str, Any] = {"position": 0.0}  # their groups and attentions see coordinates
NETWORKS: dict[str, dict[Task, dict[str, Any]]] = {
    "pointnet": {"classification": _POINTNET, "part-segmentation": _POINTNET},
    "pointnet2": {"part-segmentation": _PLACED, "semantic-segmentation": _PLACED},
    "point_transformer": dict.fromkeys(PAPER, _PLACED),
    "kpconv": dict.fromkeys(PAPER, _PLACED),
}


class Encoding(nn.Module):
    r"""Real features of the local geometry of every point.

    .. math:: f_k = |W_2\, \mathrm{CReLU}(W_1 (G(x_k) + e^{i x_k P}) + b_1) + b_2|^2

    G is :class:`veckm.VecKM`, the rest :class:`veckm.nn.FeatureBlock`. As any layer does, it draws
    its start, the frequencies included, from torch's global generator.

    Args:
        settings: sizes; the paper's are in ``PAPER``, by task.
        in_channels: F, real channels of a point that go into W_1 beside the encoding.
        validate: False where the caller has checked the values of the points, as networks do.

    Shapes:
        - pos: (B, N, 3), features: (B, N, F)
        - output: (B, N, C), or (B, M, C) at the points of ``at``
    """

    P: Tensor | None

    def __init__(
        self, settings: EncodingSettings, in_channels: int = 0, *, validate: bool = True
    ) -> None:
        super().__init__()
        self.channels = settings.channels
        seed = int(torch.randint(2**31, ()))
        self.veckm = VecKM(
            settings.dim,
            alpha=settings.alpha,
            beta=settings.beta,
            engine=settings.engine,
            norm=settings.norm,
            p=settings.p,
            eps=settings.eps,
            draw="paper",
            seed=seed,
            validate=validate,
        )
        self.register_buffer("P", _places(settings, seed))
        self.block = FeatureBlock(
            settings.dim + in_channels, settings.hidden, settings.channels, settings.batch_norm
        )

    def forward(
        self,
        pos: Tensor,  # (B, N, 3)
        at: Tensor | None = None,  # (B, M, 3)
        features: Tensor | None = None,  # (B, N, F), or (B, M, F)
    ) -> Tensor:  # (B, N, C), or (B, M, C)
        """Features of every point, or of the places ``at``; the neighbors are all points.

        A network that goes on with some of the points need not encode the others: what it would
        gather from them is the same.
        """
        encoded = self.encoded(pos, at, features)
        if torch.is_grad_enabled():
            out: Tensor = self.block(encoded)
            return out
        rows = encoded.flatten(0, 1)  # few at a time: hidden channels of all would be as large
        parts = [self.block(part) for part in rows.split(_ROWS)]
        return torch.cat(parts).view(*encoded.shape[:2], self.channels)

    def largest(
        self,
        pos: Tensor,  # (B, N, 3)
        features: Tensor | None = None,  # (B, N, F)
    ) -> Tensor:  # (B, C)
        """The maximum of every feature over the points, without holding those of all points."""
        hidden = self.block.before(self.encoded(pos, None, features))
        return largest_norm(self.block.last, hidden)

    def encoded(
        self,
        pos: Tensor,  # (B, N, 3)
        at: Tensor | None = None,  # (B, M, 3)
        features: Tensor | None = None,  # (B, N, F), or (B, M, F)
    ) -> Tensor:  # (B, N, D + F) complex, or (B, M, D + F)
        """G(x) + e^(i x P), and the features."""
        G: Tensor = self.veckm(pos, queries=at, progress=False)
        if self.P is not None:
            x = (pos if at is None else at).to(self.P.dtype)
            with torch.autocast(x.device.type, enabled=False):  # a phase needs all its digits
                G = G + phasors(phase(x, self.P))
        if features is None or not features.shape[-1]:
            return G
        return torch.cat((G, features.to(G.dtype)), dim=-1)


def _places(settings: EncodingSettings, seed: int) -> Tensor | None:  # (3, D)
    """P, independent of VecKM's A."""
    if not settings.position:
        return None
    generator = torch.Generator().manual_seed(seed + 1)
    P = standard_normal(3, settings.dim, generator=generator, draw="paper")
    return (settings.position * P).to(torch.get_default_dtype())


def front(encoding: EncodingSettings | None, in_channels: int) -> tuple[Encoding | None, int]:
    """VecKM in front, if it is wanted, and the channels that the network then starts from."""
    if encoding is None:
        return None, 3 + in_channels
    return Encoding(encoding, validate=False), encoding.channels + in_channels


def settings_for(name: str, task: Task, **changes: Any) -> EncodingSettings:
    """What a network has for a task, with some of it changed."""
    own = NETWORKS.get(name, {}).get(task, {})
    return replace(PAPER[task], **{**own, **changes})
