"""VecKM as a part of a network: the encoding and the complex layers that follow it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from veckm import inputs
from veckm.encoder import VecKM
from veckm.engines.device import traced
from veckm.engines.phasors import phase, phasors
from veckm.frequencies import standard_normal
from veckm.models.clouds import Clouds, per_cloud
from veckm.models.config import EncodingConfig
from veckm.models.fused import squared_norm_maxpool
from veckm.nn import FeatureBlock

#: Points whose encodings are transformed at a time where no gradient is wanted.
_ROWS = 4096


class Encoding(nn.Module):
    r"""Real features of the local geometry of every point.

    .. math:: f_k = |W_2\, \mathrm{CReLU}(W_1 (G(x_k) + e^{i x_k P}) + b_1) + b_2|^2

    G is :class:`veckm.VecKM`, the rest :class:`veckm.nn.FeatureBlock`. Like every layer, it draws
    its initial weights, and the frequencies as well, from torch's global generator.

    Args:
        config: sizes; the defaults are the paper's for classification.
        in_channels: F, real channels per point that go into W_1 with the encoding.
        validate: False where the caller has checked the values of the points, as networks do.

    Shapes:
        - pos: (B, N, 3), or (N, 3) with or without batch (N,)
        - x: (..., F) for every point, or for every query
        - output: (..., C) for every point, or for every query
    """

    P: Tensor | None

    def __init__(
        self, config: EncodingConfig, in_channels: int = 0, *, validate: bool = True
    ) -> None:
        super().__init__()
        self.config = config
        seed = int(torch.randint(2**31, ()))
        self.veckm = VecKM(
            config.dim,
            alpha=config.alpha,
            beta=config.beta,
            engine=config.engine,
            norm=config.norm,
            p=config.p,
            eps=config.eps,
            draw="paper",
            seed=seed,
            validate=validate,
        )
        self.veckm.rounds = True
        P = None
        if config.position:  # independent of VecKM's A
            generator = torch.Generator().manual_seed(seed + 1)
            P = standard_normal(3, self.veckm.out_dim, generator=generator, draw="paper")
            P = (config.position * P).to(torch.get_default_dtype())
        self.register_buffer("P", P)
        self.block = FeatureBlock(
            self.veckm.out_dim + in_channels, config.hidden, config.channels, config.batch_norm
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Encoding:
        checked = inputs.full_precision(self, fn)
        super()._apply(checked, recurse)  # type: ignore[no-untyped-call]  # untyped in torch
        return self

    def forward(
        self,
        pos: Tensor,
        x: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        queries: Tensor | None = None,  # (B, M, 3), or (M, 3)
        query_batch: Tensor | None = None,  # (M,)
    ) -> Tensor:  # (..., C)
        """Features of every point, or of every query; the neighbors are all points."""
        return self._features(self.encode(pos, x, batch, queries, query_batch))

    def encode(
        self,
        pos: Tensor,
        x: Tensor | None = None,
        batch: Tensor | None = None,
        queries: Tensor | None = None,
        query_batch: Tensor | None = None,
    ) -> Tensor:  # (..., D + F) complex
        """G + e^(i x P), and x."""
        G: Tensor = self.veckm(pos, batch, queries=queries, query_batch=query_batch, progress=False)
        if self.P is not None:
            at = (pos if queries is None else queries).to(self.P.dtype)
            with torch.autocast(at.device.type, enabled=False):  # a phase needs all its digits
                G = _plus_phasors(G, phase(at, self.P))
        if x is None or not x.shape[-1]:
            return G
        return torch.cat((G, x.to(G.dtype)), dim=-1)

    def of(self, clouds: Clouds, x: Tensor | None = None, queries: Clouds | None = None) -> Tensor:
        """Features (N, C) of the points of clouds, or (M, C) of queries in them.

        A network that goes on with some of the points need not encode the others: what it would
        gather from them is the same.
        """
        return self._features(self._encode_rows(clouds, x, queries))

    def maxpool(self, clouds: Clouds, x: Tensor | None = None) -> Tensor:  # (B, C)
        """The maximum of every feature over the points, without holding those of all points."""
        hidden = self.block.hidden(self._encode_rows(clouds, x))
        return per_cloud(lambda h: squared_norm_maxpool(self.block.linear2, h), (clouds, hidden))

    def _encode_rows(
        self, clouds: Clouds, x: Tensor | None, queries: Clouds | None = None
    ) -> Tensor:  # (N, D + F), or (M, D + F)
        at = clouds if queries is None else queries
        if clouds.uniform and at.uniform:
            x = None if x is None else clouds.dense(x)
            asked = None if queries is None else at.dense(at.pos)
            return self.encode(clouds.dense(clouds.pos), x, queries=asked).flatten(0, 1)
        if queries is None:
            return self.encode(clouds.pos, x, clouds.batch)
        return self.encode(clouds.pos, x, clouds.batch, at.pos, at.batch)

    def _features(self, G: Tensor) -> Tensor:  # (..., D + F) -> (..., C)
        if torch.is_grad_enabled():
            out: Tensor = self.block(G)
            return out
        rows = G.flatten(0, -2)  # few at a time: hidden channels of all would be as large
        parts = [self.block(part) for part in rows.split(_ROWS)]
        return torch.cat(parts).view(*G.shape[:-1], -1)


def _plus_phasors(G: Tensor, angle: Tensor) -> Tensor:  # (..., D) complex, (..., D)
    """G + exp(i angle), in G itself where no gradient and no other precision asks for more."""
    parts = G.real.dtype == angle.dtype and not traced(G, angle)
    if not parts or G.requires_grad or angle.requires_grad:
        return G + phasors(angle)
    G.real.add_(angle.cos())  # no phasors of all points beside G
    G.imag.add_(angle.sin_())
    return G
