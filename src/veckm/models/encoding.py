"""VecKM as a part of a network: the encoding and the complex layers that follow it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from veckm.encoder import VecKM
from veckm.functional import EngineName
from veckm.models.base import Task
from veckm.nn import FeatureBlock

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
        coordinates: have a point's coordinates beside its features. The paper's networks have not:
            an encoding says what is around a point, not where in the object it is.
    """

    alpha: float = 30.0
    beta: float = 6.0
    dim: int = 256
    hidden: int = 128
    channels: int = 128
    engine: EngineName = "auto"
    p: int = 2048
    eps: float = 1e-2
    coordinates: bool = False

    @property
    def width(self) -> int:
        """Channels that the network starts from."""
        return self.channels + (3 if self.coordinates else 0)


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


class Encoding(nn.Module):
    r"""Real features of the local geometry of every point.

    .. math:: f_k = |W_2\, \mathrm{CReLU}(W_1 G(x_k) + b_1) + b_2|^2

    G is :class:`veckm.VecKM`, the rest :class:`veckm.nn.FeatureBlock`. As any layer does, it draws
    its start, the frequencies included, from torch's global generator.

    Args:
        settings: sizes; the paper's are in ``PAPER``, by task.

    Shapes:
        - pos: (B, N, 3)
        - output: (B, N, C), or (B, M, C) at the points of ``at``; C + 3 with coordinates
    """

    def __init__(self, settings: EncodingSettings) -> None:
        super().__init__()
        self.channels, self.coordinates = settings.channels, settings.coordinates
        self.veckm = VecKM(
            settings.dim,
            alpha=settings.alpha,
            beta=settings.beta,
            engine=settings.engine,
            p=settings.p,
            eps=settings.eps,
            draw="paper",
            seed=int(torch.randint(2**31, ())),
        )
        self.block = FeatureBlock(settings.dim, settings.hidden, settings.channels)

    def forward(
        self,
        pos: Tensor,  # (B, N, 3)
        at: Tensor | None = None,  # (B, M, 3)
    ) -> Tensor:  # (B, N, C), or (B, M, C)
        """Features of every point, or of the places ``at``; the neighbours are all points.

        A network that goes on with some of the points need not encode the others: what it would
        gather from them is the same.
        """
        local = self._transformed(self.veckm(pos, queries=at, progress=False))
        if not self.coordinates:
            return local
        return torch.cat((local, pos if at is None else at), dim=-1)

    def _transformed(self, encoded: Tensor) -> Tensor:  # (B, N, D) complex -> (B, N, C)
        if torch.is_grad_enabled():
            out: Tensor = self.block(encoded)
            return out
        rows = encoded.flatten(0, 1)  # few at a time: hidden channels of all would be as large
        parts = [self.block(part) for part in rows.split(_ROWS)]
        return torch.cat(parts).view(*encoded.shape[:2], self.channels)


def front(encoding: EncodingSettings | None, in_channels: int) -> tuple[Encoding | None, int]:
    """VecKM in front, if it is wanted, and the channels that the network then starts from."""
    if encoding is None:
        return None, 3 + in_channels
    return Encoding(encoding), encoding.width + in_channels


def settings_for(task: Task, **changes: object) -> EncodingSettings:
    """The paper's settings for a task, with some of them changed."""
    return replace(PAPER[task], **changes)  # type: ignore[arg-type]
