"""The door: whatever is wrong with the input is found and said here, before any work is done."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

#: Coordinates beyond this would overflow when squared in float32.
_LARGEST_COORDINATE = 1e15
#: Phases x A beyond this have lost their accuracy even in float64.
_LARGEST_PHASE = 1e10
#: Below this the rounding of the dtype, not the engine, decides.
SMALLEST_EPS = {torch.float32: 1e-5, torch.float64: 1e-10}


@dataclass(frozen=True)
class Clouds:
    """Points of one or more clouds, flat, each cloud about its own origin."""

    pos: Tensor  # (N, D_in)
    cloud: Tensor  # (N,) int64 ascending
    lead: tuple[int, ...]  # shape of the caller's tensor without D_in


def check_points(pos: Tensor, name: str, in_dim: int | None = None) -> None:
    """A float tensor (N, D_in) or (B, N, D_in) with finite entries."""
    if not isinstance(pos, Tensor):
        raise TypeError(
            f"{name} must be a torch.Tensor, got {type(pos).__name__}; "
            "wrap it with torch.as_tensor(...)"
        )
    if pos.dtype not in SMALLEST_EPS:
        raise TypeError(
            f"{name} has dtype {pos.dtype}; use float32 or float64, for example {name}.float()"
        )
    if pos.dim() not in (2, 3) or pos.shape[-1] < 1:
        raise ValueError(
            f"{name} must have shape (N, D_in) or (B, N, D_in), got {tuple(pos.shape)}"
        )
    if in_dim is not None and pos.shape[-1] != in_dim:
        raise ValueError(
            f"{name} has {pos.shape[-1]} coordinates a point, but the frequencies A are for "
            f"{in_dim}; got shape {tuple(pos.shape)}. Pass the coordinate columns only, "
            f"for example {name}[..., :{in_dim}]"
        )
    check_finite(pos, name)
    if pos.numel() and float(pos.detach().abs().amax()) > _LARGEST_COORDINATE:
        raise ValueError(
            f"{name} has coordinates beyond {_LARGEST_COORDINATE:g}; change units or drop outliers"
        )


def check_finite(values: Tensor, name: str) -> None:
    """No NaN, no infinity; says how many rows and which is the first."""
    finite = torch.isfinite(values.detach())
    if bool(finite.all()):
        return
    rows = finite if values.dim() == 1 else finite.all(-1)
    bad = (~rows).nonzero()
    first = tuple(bad[0].tolist())
    raise ValueError(
        f"{name} has NaN or infinite values in {len(bad)} of {rows.numel()} rows, the first at "
        f"index {first[0] if len(first) == 1 else first}; "
        f"drop such points first, for example {name}[torch.isfinite({name}).all(-1)]"
    )


def check_positive(value: float, name: str) -> float:
    """A finite positive number of a size that squares safely."""
    value = float(value)
    if not (1e-15 <= value <= 1e15):
        raise ValueError(f"{name} must be positive and within 1e-15 .. 1e15, got {value!r}")
    return value


def check_eps(eps: float, dtype: torch.dtype) -> float:
    """An accuracy that the dtype can hold."""
    least = SMALLEST_EPS[dtype]
    if not (math.isfinite(eps) and eps <= 0.5):
        raise ValueError(f"eps is a relative error and must be at most 0.5, got {eps!r}")
    if eps < least:
        hint = "use float64 points" if dtype == torch.float32 else "use engine='dense'"
        raise ValueError(f"eps = {eps!r} is below what {dtype} can hold ({least:g}); {hint}")
    return float(eps)


def flatten(pos: Tensor, batch: Tensor | None, name: str) -> Clouds:
    """(N, D_in), (B, N, D_in), or (N, D_in) with a batch vector, as flat clouds."""
    lead = tuple(pos.shape[:-1])
    if pos.dim() == 3:
        if batch is not None:
            raise ValueError(
                f"{name} of shape {tuple(pos.shape)} is a batch already: pass either "
                "(B, N, D_in) or (N, D_in) with a batch vector, not both"
            )
        cloud = torch.arange(pos.shape[0], device=pos.device).repeat_interleave(pos.shape[1])
        return Clouds(pos.reshape(-1, pos.shape[-1]), cloud, lead)
    if batch is None:
        zeros = torch.zeros(len(pos), dtype=torch.int64, device=pos.device)
        return Clouds(pos, zeros, lead)
    return Clouds(pos, _checked_batch(batch, len(pos), name), lead)


def _checked_batch(batch: Tensor, count: int, name: str) -> Tensor:
    label = "batch" if name == "pos" else "query_batch"
    if not isinstance(batch, Tensor) or batch.dtype not in (torch.int64, torch.int32):
        got = batch.dtype if isinstance(batch, Tensor) else type(batch).__name__
        raise TypeError(f"{label} must be an int64 tensor of cloud numbers, got {got}")
    if tuple(batch.shape) != (count,):
        raise ValueError(
            f"{label} must have shape ({count},), one cloud number a row of {name}, "
            f"got {tuple(batch.shape)}"
        )
    if count and int(batch.min()) < 0:
        raise ValueError(f"{label} has negative cloud numbers (least {int(batch.min())})")
    if count > 1 and bool((batch[1:] < batch[:-1]).any()):
        raise ValueError(
            f"{label} is not sorted: order the points by cloud first, for example with "
            f"order = {label}.argsort(stable=True)"
        )
    if count and int(batch[-1]) >= 2**31:
        raise ValueError(f"{label} has cloud numbers of 2^31 and more: renumber from 0")
    return batch.long()


def check_weights(weights: Tensor, points: Tensor, mean: bool) -> Tensor:
    """One finite number a point; not negative where they are averaged by their sum."""
    if not isinstance(weights, Tensor) or not weights.is_floating_point():
        got = weights.dtype if isinstance(weights, Tensor) else type(weights).__name__
        raise TypeError(f"weights must be a float tensor, got {got}")
    if weights.shape != points.shape[:-1]:
        raise ValueError(
            f"weights must have shape {tuple(points.shape[:-1])}, one number a point, "
            f"got {tuple(weights.shape)}"
        )
    check_finite(weights, "weights")
    if mean and weights.numel() and float(weights.detach().min()) < 0:
        raise ValueError("weights must not be negative with norm='mean'; use norm=None")
    return weights.to(points.dtype).reshape(-1)


def centre(points: Clouds, queries: Clouds | None) -> tuple[Clouds, Clouds | None]:
    """Each cloud about the middle of its box, queries about the origin of their cloud.

    Large coordinates cost digits; differences are all that the encoding looks at.
    """
    if not len(points.pos):
        return points, queries
    x = points.pos.detach()
    count = torch.bincount(points.cloud)
    low = torch.segment_reduce(x, "min", lengths=count, axis=0, unsafe=True)
    high = torch.segment_reduce(x, "max", lengths=count, axis=0, unsafe=True)
    origin = torch.where(count[:, None] > 0, low + (high - low) / 2, torch.zeros_like(low))
    moved = Clouds(points.pos - origin[points.cloud], points.cloud, points.lead)
    if queries is None:
        return moved, None
    if len(queries.cloud) and int(queries.cloud.max()) >= len(origin):  # of clouds with no points
        missing = int(queries.cloud.max()) + 1 - len(origin)
        origin = torch.cat([origin, origin.new_zeros(missing, origin.shape[1])])
    shifted = queries.pos - origin[queries.cloud]
    return moved, Clouds(shifted, queries.cloud, queries.lead)


def check_phases(pos: Tensor, A: Tensor, reach: float) -> None:
    """The phases that matter must still be numbers that mean something."""
    if not len(pos):
        return
    frequency = float(A.detach().abs().sum(0).amax())
    extent = float(pos.detach().abs().amax())
    if frequency * reach > 1e6:
        raise ValueError(
            f"alpha is too large for the window: phases reach {frequency * reach:.1e} rad within "
            f"its radius {reach:g}. Use a smaller alpha (alpha = detail / radius, detail about 6)"
        )
    if frequency * extent > _LARGEST_PHASE:
        raise ValueError(
            f"the cloud reaches {extent:.3g} from its middle, where phases x A of up to "
            f"{frequency * extent:.1e} rad have no accuracy left. Drop far outliers, cut the "
            "cloud into tiles, or use a smaller alpha"
        )
