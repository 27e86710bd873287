"""The paper's normal estimation: one frame for every local encoder, and VecKM's network in it.

Section 4.1 of the VecKM paper compares encoders by what a few layers can read from them: the
encoder gives every point one feature vector, and an MLP maps it to the normal. This module has
the frame, the loss and the paper's own network; ``baselines`` has the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from veckm import inputs
from veckm.encoder import VecKM
from veckm.models.layers import mlp
from veckm.nn import ComplexLinear, ComplexReLU
from veckm.nn.linear import as_real
from veckm.planning import EngineName


class LocalEncoder(nn.Module, ABC):
    """What the frame asks of an encoder: one real feature vector a point.

    The work is in two steps, so that training repeats only the second: ``gather`` collects what
    is known of a point's surroundings and has no parameters, ``features`` is what is learned.

    Attributes:
        dim: C, the length of a feature vector.
    """

    dim: int

    @abstractmethod
    def gather(
        self,
        pos: Tensor,  # (N, 3) in the unit ball
        at: Tensor,  # (M,) int64, rows of pos
    ) -> Tensor:  # (M, ...)
        """What ``features`` reads, for the rows ``at`` of the cloud."""

    @abstractmethod
    def features(
        self,
        gathered: Tensor,  # (M, ...)
    ) -> Tensor:  # (M, C)
        """The learned part."""

    def forward(
        self,
        pos: Tensor,  # (N, 3) in the unit ball
        at: Tensor | None = None,  # (M,) int64, rows of pos; all of them if None
    ) -> Tensor:  # (M, C)
        """The feature vector of every point, or of the rows ``at``; neighbors are from all."""
        rows = torch.arange(len(pos), device=pos.device) if at is None else at
        return self.features(self.gather(pos, rows))


class VecKMEncoder(LocalEncoder):
    r"""The paper's own: VecKM encodings at two scales, then complex layers.

    .. math:: z_0 = G, \qquad z_l = \mathrm{CReLU}(W_l z_{l-1} + b_l), \qquad
              f = (\mathrm{Re}\,z, \mathrm{Im}\,z)

    alpha = 60, beta = (10, 20) and D = 256 are those of Section 4.1, 128 hidden channels those of
    the authors' code. There the last complex layer has three outputs y, and Re y + Im y is the
    normal. That is a real linear map of the parts of z, and any such map can be written so; it is
    the head of the frame here, and ``layers`` counts it.

    Args:
        layers: fully connected layers between the encoding and the normal, the head included.
        hidden: complex channels of each.
        dim: D, complex numbers for each scale.
        alpha: level of detail.
        beta: inverse size of the window, one per scale.
        engine: how G is computed; the paper's is ``"random"``.
        eps: accuracy of G.
        seed: of the frequencies.

    Shapes:
        - pos: (N, 3) in the unit ball
        - output: (M, 2 * hidden), or (M, 2 * scales * D) for one layer
    """

    def __init__(
        self,
        layers: int = 3,
        hidden: int = 128,
        *,
        dim: int = 256,
        alpha: float = 60.0,
        beta: Sequence[float] = (10.0, 20.0),
        engine: EngineName = "auto",
        eps: float = 1e-2,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if layers < 1:
            raise ValueError(f"layers counts the head too and must be at least 1, got {layers}")
        self.encoding = VecKM(
            dim, alpha=alpha, beta=beta, engine=engine, eps=eps, draw="paper", seed=seed
        )
        sizes = [self.encoding.out_dim, *[hidden] * (layers - 1)]
        stack: list[nn.Module] = []
        for wide, narrow in pairwise(sizes):
            stack += [ComplexLinear(wide, narrow), ComplexReLU()]
        self.layers = nn.Sequential(*stack)
        self.dim = 2 * sizes[-1]

    def gather(self, pos: Tensor, at: Tensor) -> Tensor:  # (M, scales * D) complex
        """G of the rows ``at``, each scale of norm sqrt(D)."""
        everything = len(at) == len(pos) and bool((at.diff() == 1).all())
        encoded: Tensor = self.encoding(
            pos, queries=None if everything else pos[at], progress=False
        )
        return encoded

    def features(self, gathered: Tensor) -> Tensor:  # (M, C)
        """The complex layers, and the two parts of their result side by side."""
        return as_real(self.layers(gathered)).flatten(-2)


class DenseNormalNet(nn.Module):
    r"""The frame of Table 1: an encoder, an MLP, a unit normal for every point.

    .. math:: n_k = \frac{h(f_k)}{|h(f_k)|}, \qquad f_k = \mathrm{encoder}(X)_k

    The cloud is brought into the unit ball first, as in the paper. The normal has no orientation.

    Args:
        encoder: from points in the unit ball to features.
        dim: C, the length of a feature vector.
        hidden: sizes of the layers between the features and the normal: (512, 256) for the
            compared encoders, none for VecKM, whose layers are complex and its own.

    Shapes:
        - pos: (N, 3)
        - output: (N, 3) unit

    Example:
        >>> net = paper_network()
        >>> net(torch.rand(1000, 3)).shape
        torch.Size([1000, 3])
    """

    def __init__(self, encoder: LocalEncoder, dim: int, hidden: Sequence[int] = (512, 256)) -> None:
        super().__init__()
        self.encoder = encoder
        sizes = [dim, *hidden]
        self.head = nn.Sequential(*mlp(sizes), nn.Linear(sizes[-1], 3))

    def forward(
        self,
        pos: Tensor,  # (N, 3)
        at: Tensor | None = None,  # (M,) int64, rows of pos; all of them if None
    ) -> Tensor:  # (M, 3)
        """The unit normal of every point, or of the rows ``at``."""
        return self.normals(self.encoder(unit_ball(pos), at))

    def normals(
        self,
        features: Tensor,  # (M, C)
    ) -> Tensor:  # (M, 3)
        """From features to unit normals."""
        return nn.functional.normalize(self.head(features), dim=-1)


def paper_network(layers: int = 3, engine: EngineName = "auto") -> DenseNormalNet:
    """The row "VecKM (Ours)" of Table 1; other numbers of layers are the ablation of Section 5."""
    encoder = VecKMEncoder(layers, engine=engine)
    return DenseNormalNet(encoder, encoder.dim, hidden=())


def unit_ball(
    pos: Tensor,  # (N, 3)
) -> Tensor:  # (N, 3) float32
    r"""The cloud about its mean, scaled so that its farthest point is at distance one.

    .. math:: x \mapsto \frac{x - \bar x}{\max_k |x_k - \bar x|}

    Shapes:
        - pos: (N, 3)
        - output: (N, 3) float32
    """
    inputs.check_points(pos, "pos")
    if pos.dim() != 2 or pos.shape[1] != 3 or not len(pos):
        raise ValueError(
            f"pos must be one cloud of shape (N, 3) with at least one point, got "
            f"{tuple(pos.shape)}; pass the clouds of a batch one by one"
        )
    x = pos - pos.mean(0)
    size = x.square().sum(-1).amax().sqrt()
    # Where all the points coincide there is no size; they stay at the origin.
    return (x / torch.where(size > 0, size, torch.ones_like(size))).float()


def unoriented_loss(
    predicted: Tensor,  # (M, 3) unit
    normal: Tensor,  # (M, 3) unit
) -> Tensor:  # ()
    r"""The authors' loss: one minus the cosine, whichever way the normals point.

    .. math:: L = 1 - \frac1M \sum_k |\langle n_k, m_k \rangle|

    Shapes:
        - predicted, normal: (M, 3) unit
        - output: ()
    """
    return 1 - (predicted * normal).sum(-1).abs().mean()
