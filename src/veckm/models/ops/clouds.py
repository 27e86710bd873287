"""What the operations share: the checks of their arguments and the way through a ragged batch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from veckm import inputs


def check_pair(
    points: Tensor,  # (B, N, D), or (N, D)
    queries: Tensor,  # (B, M, D), or (M, D)
    batch: Tensor | None,
    query_batch: Tensor | None,
    validate: bool,
) -> None:
    """Points and queries of the same kind: both dense with as many clouds, or both flat."""
    inputs.check_points(points, "points", values=validate)
    if queries is not points:
        inputs.check_points(queries, "queries", values=validate)
    alike = points.dim() == queries.dim() and points.shape[-1] == queries.shape[-1]
    if not alike or (points.dim() == 3 and points.shape[0] != queries.shape[0]):
        raise ValueError(
            "points and queries must be (B, N, D) and (B, M, D), or (N, D) and (M, D); "
            f"got {tuple(points.shape)} and {tuple(queries.shape)}"
        )
    if points.dim() == 3 and (batch is not None or query_batch is not None):
        raise ValueError("a dense batch (B, N, D) takes no batch vector; leave it out")
    if (batch is None) != (query_batch is None):
        raise ValueError("give batch and query_batch together, or neither for a single cloud")


def bounds(
    pos: Tensor,  # (N, D)
    batch: Tensor | None,  # (N,)
    name: str,
    validate: bool,
    clouds: int = 0,
) -> list[int]:
    """Where each cloud of a ragged batch begins, and one more for where the last one ends."""
    cloud = inputs.as_points(pos, batch, name, validate).cloud
    size = torch.bincount(cloud, minlength=max(clouds, 1))
    return [0, *size.cumsum(0).tolist()]


def pairs(
    points: Tensor,  # (N, D)
    queries: Tensor,  # (M, D)
    batch: Tensor | None,
    query_batch: Tensor | None,
    validate: bool,
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """For every cloud with queries: the row it begins at, its points, its queries."""
    begin = bounds(points, batch, "pos", validate)
    ask = bounds(queries, query_batch, "queries", validate, clouds=len(begin) - 1)
    if len(ask) > len(begin):
        raise ValueError(
            f"query_batch names cloud {len(ask) - 2}, but batch has only {len(begin) - 1} clouds"
        )
    for i in range(len(begin) - 1):
        if ask[i + 1] > ask[i]:
            yield begin[i], points[begin[i] : begin[i + 1]], queries[ask[i] : ask[i + 1]]
