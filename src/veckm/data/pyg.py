"""A transform of PyTorch Geometric that adds VecKM encodings to a ``Data``."""

from __future__ import annotations

from typing import Any

import torch

from veckm.encoder import VecKM
from veckm.extras import need

need("torch_geometric", "AddVecKM", "pyg")
from torch_geometric.data import Data  # noqa: E402
from torch_geometric.transforms import BaseTransform  # noqa: E402

__all__ = ["AddVecKM"]


class AddVecKM(BaseTransform):  # type: ignore[misc]
    r"""Add the VecKM encoding of every point of ``data.pos`` to a ``Data``.

    .. math:: G(x_0) = \sum_j w(x_j - x_0) \exp(i (x_j - x_0) A)

    Args:
        dim: D, complex numbers of a scale.
        attr: where the encoding goes. In ``"x"`` its real parts and then the imaginary ones come
            behind the features that are there; another name keeps it apart, and complex.
        options: of :class:`veckm.VecKM`: alpha and beta, or radius, engine, seed, ...

    Shapes:
        - data.pos: (N, 3), data.batch: (N,) if there is one
        - data.x: (N, C + 2 D), or data[attr]: (N, D) complex

    Example:
        >>> transform = AddVecKM(dim=64, alpha=30, beta=9)  # doctest: +SKIP
        >>> transform(Data(pos=torch.rand(100, 3))).x.shape  # doctest: +SKIP
        torch.Size([100, 128])
    """

    def __init__(self, dim: int = 256, *, attr: str = "x", **options: Any) -> None:
        self.encoder, self.attr = VecKM(dim, **options), attr

    def forward(self, data: Data) -> Data:
        """The same data with the encoding added."""
        if data.pos is None:
            raise ValueError("the data has no pos, the points (N, 3) to encode")
        batch = getattr(data, "batch", None)
        with torch.no_grad():
            encoded = self.encoder(data.pos, batch, progress=False)
        if self.attr == "x":
            columns = [encoded.real, encoded.imag]
            if data.x is not None:
                columns.insert(0, data.x.view(len(data.pos), -1).to(encoded.real.dtype))
            encoded = torch.cat(columns, dim=-1)
        data[self.attr] = encoded
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.encoder}, attr={self.attr!r})"
