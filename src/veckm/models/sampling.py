"""A few points that stand for many: farthest points."""

from __future__ import annotations

import torch
from torch import Tensor

from veckm.engines.curve import interleave
from veckm.parallel import share, workers

#: Clouds of more points are sampled chunk by chunk.
_LARGE = 8192
#: Points of a chunk.
_CHUNK = 512
#: A worker has at least so many points: with fewer its steps are so short that workers wait for the
#: interpreter most of the time.
_WORKER_POINTS = 1 << 17
#: Bits of a Morton code for each axis; three axes fit in an int64.
_BITS = 16


def farthest_points(pos: Tensor, count: int) -> Tensor:  # (B, N, 3) -> (B, count) int64
    """Points spread over the cloud: each pick is as far as possible from those before it.

    The first pick is the point farthest from the mean, so the result does not depend on the order
    of the points and nothing is drawn. No row is picked twice, even where points coincide.

    Up to 8192 points this is exact, in N * count steps. Larger clouds are cut into chunks of about
    512 points along a Morton curve, and each chunk gives its share: linear in N for a fixed share
    of picks, but picks of neighboring chunks can be close.
    """
    pos = pos.detach()
    clouds, n, _ = pos.shape
    if count == n:
        return torch.arange(n, device=pos.device).expand(clouds, n)
    if n <= _LARGE:
        return _exact(pos, count, torch.full(pos.shape[:2], torch.inf).to(pos))
    return _chunked(pos, count)


def _exact(
    pos: Tensor,  # (B, N, D)
    count: int,
    gap: Tensor,  # (B, N) inf, or -1 for rows that must not be picked; overwritten
) -> Tensor:  # (B, count)
    """Large batches are shared among workers, each with some of the clouds."""
    parts = min(len(pos), workers(pos.device, 4 * pos[..., 0].numel() // _WORKER_POINTS))
    if parts < 2:
        return _pick(pos, count, gap)
    out = torch.empty(len(pos), count, dtype=torch.int64)

    def work(part: int) -> None:
        rows = slice(part * len(pos) // parts, (part + 1) * len(pos) // parts)
        out[rows] = _pick(pos[rows], count, gap[rows])

    share(range(parts), lambda _: work, parts)
    return out


def _pick(pos: Tensor, count: int, gap: Tensor) -> Tensor:  # (B, N, D), (B, N) -> (B, count)
    """One loop over the picks, all clouds at once."""
    axes = [axis.contiguous() for axis in pos.unbind(-1)]  # (B, N) each: no sums over three
    out = torch.empty(pos.shape[0], count, dtype=torch.int64, device=pos.device)
    away, off = torch.zeros_like(gap), torch.empty_like(gap)
    present = gap >= 0
    size = present.sum(1, keepdim=True).clamp_min(1)
    for axis in axes:
        away += (axis - (axis * present).sum(1, keepdim=True) / size).square()
    last = _argmax(away.masked_fill_(~present, -1.0))
    for i in range(count):
        out[:, i : i + 1] = last
        if i + 1 == count:
            break
        away.zero_()
        for axis in axes:
            torch.sub(axis, axis.gather(1, last), out=off)
            away.addcmul_(off, off)
        torch.minimum(gap, away, out=gap)
        gap.scatter_(1, last, -1.0)
        last = _argmax(gap)
    return out


def _argmax(values: Tensor) -> Tensor:  # (B, N) -> (B, 1)
    if values.device.type == "cpu":  # NumPy's is eight times as fast
        return torch.from_numpy(values.numpy().argmax(1)).unsqueeze(1)
    return values.argmax(1, keepdim=True)


def _chunked(pos: Tensor, count: int) -> Tensor:  # (B, N, 3) -> (B, count)
    clouds, n, dims = pos.shape
    # Not more chunks than picks, or some region would have none.
    chunks = min(-(-n // _CHUNK), count)
    order = _morton(pos).argsort(dim=1)  # (B, N)
    edge = torch.arange(chunks + 1, device=pos.device) * n // chunks
    size = edge.diff()
    column = edge[:-1, None] + torch.arange(int(size.max()), device=pos.device)  # (chunks, S)
    real = column < edge[1:, None]
    rows = order[:, column.clamp_max(n - 1).flatten()]  # (B, chunks * S)
    shape = (clouds * chunks, column.shape[1])
    cut = pos.gather(1, rows[..., None].expand(-1, -1, dims)).view(*shape, dims)
    gap = torch.where(real, torch.inf, -1.0).to(pos).repeat(clouds, 1)
    share = (torch.arange(chunks + 1, device=pos.device) * count // chunks).diff()  # sums to count
    picks = _exact(cut, int(share.max()), gap)  # (B * chunks, share)
    found = rows.view(*shape).gather(1, picks).view(clouds, chunks, -1)
    wanted = torch.arange(found.shape[2], device=pos.device) < share[:, None]
    return found[:, wanted]


def _morton(pos: Tensor) -> Tensor:  # (B, N, D) -> (B, N) int64
    """Where every point is along the Morton curve through its cloud."""
    low = pos.amin(1, keepdim=True)
    side = (pos.amax(1, keepdim=True) - low).amax(2, keepdim=True)
    side = torch.where(side > 0, side, torch.ones_like(side))
    cell = ((pos - low) / side * (2**_BITS - 1)).long()
    return interleave(cell.flatten(0, 1), _BITS).view(pos.shape[:2])
