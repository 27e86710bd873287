"""Rows of a tensor by their index, for dense and ragged batches."""

from __future__ import annotations

import torch
from torch import Tensor


def gather(
    values: Tensor,  # (B, N, C), or (N, C)
    index: Tensor,  # (B, ...) int64, or (...)
) -> Tensor:  # (B, ..., C), or (..., C)
    """The rows of ``values`` that ``index`` names, cloud by cloud.

    Shapes:
        - dense: values (B, N, C), index (B, ...) with entries below N; output (B, ..., C)
        - ragged: values (N, C), index (...) with entries below N; output (..., C)
    """
    if values.dim() == 2:
        return _rows(values, index)
    if values.dim() != 3 or index.dim() < 1 or index.shape[0] != values.shape[0]:
        raise ValueError(
            "gather takes values (B, N, C) with index (B, ...), or values (N, C) with index "
            f"(...); got {tuple(values.shape)} and {tuple(index.shape)}"
        )
    clouds, n, _ = values.shape
    # One flat index, so that the same lookup serves dense and ragged batches.
    first = torch.arange(clouds, device=index.device) * n
    return _rows(values.flatten(0, 1), index + first.view(-1, *[1] * (index.dim() - 1)))


def _rows(values: Tensor, index: Tensor) -> Tensor:  # (N, C), (...) -> (..., C)
    """By index_select, whose gradient is a sum; that of values[index] sorts first."""
    return values.index_select(0, index.flatten()).view(*index.shape, values.shape[1])
