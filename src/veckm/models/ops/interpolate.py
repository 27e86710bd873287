"""Features of points carried to other places."""

from __future__ import annotations

import torch
from torch import Tensor

from veckm import inputs
from veckm.models.ops.gather import gather
from veckm.models.ops.search import knn

#: Added to squared distances; a query on a point takes that point's values.
_EPS = 1e-8


def interpolate(
    values: Tensor,  # (B, N, C), or (N, C)
    points: Tensor,  # (B, N, 3), or (N, 3)
    queries: Tensor,  # (B, M, 3), or (M, 3)
    k: int = 3,
    batch: Tensor | None = None,  # (N,)
    query_batch: Tensor | None = None,  # (M,)
    *,
    validate: bool = True,
) -> Tensor:  # (B, M, C), or (M, C)
    r"""Values at the queries from the ``k`` nearest points, by inverse squared distance.

    .. math:: f(q) = \frac{\sum_j w_j f_j}{\sum_j w_j}, \qquad w_j = \frac{1}{|q - x_j|^2}

    Section 3.4 of `PointNet++ <https://arxiv.org/abs/1706.02413>`_, with k = 3. A cloud of fewer
    than ``k`` points gives them all. Gradients reach values, points and queries. ``validate`` is as
    for :func:`knn`.

    Shapes:
        - dense: values (B, N, C), points (B, N, 3), queries (B, M, 3); output (B, M, C)
        - ragged: values (N, C), points (N, 3), queries (M, 3); output (M, C)
    """
    inputs.check_count(k, "k")
    inputs.check_points(points, "points", values=False)  # the search checks their values
    if values.shape[:-1] != points.shape[:-1]:
        raise ValueError(
            f"values of shape {tuple(values.shape)} are not one row for every point of "
            f"{tuple(points.shape)}; pass values (..., N, C) for points (..., N, 3)"
        )
    k = min(k, points.shape[-2] if batch is None else _fewest(batch))
    index = knn(points, queries, k, batch, query_batch, validate=validate)  # (..., M, k)
    squared = torch.stack(
        [(gather(points, i) - queries).square().sum(-1) for i in index.unbind(-1)], dim=-1
    )
    weight = 1 / (squared + _EPS)
    weight = weight / weight.sum(-1, keepdim=True)
    if index.shape[-1] == 1:
        return gather(values, index[..., 0])
    # One neighbor after the other, so that no (..., M, k, C) is held.
    out = gather(values, index[..., 0]) * weight[..., :1]
    for j in range(1, index.shape[-1]):
        out = out + gather(values, index[..., j]) * weight[..., j : j + 1]
    return out


def _fewest(batch: Tensor) -> int:
    """Points of the smallest cloud that has any."""
    size = torch.bincount(batch)
    return int(size[size > 0].min()) if len(batch) else 0
