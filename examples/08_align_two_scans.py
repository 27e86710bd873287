"""Align two scans without a first guess, and find out when two clouds do not belong together."""

import torch

import veckm
from veckm.data import shapes

# Two samplings of one statue, each without one side; the source turned and moved.
source, target = (shapes.statue(6000, seed).pos.double() for seed in (1, 2))
source, target = source[source[:, 0] < 0.2], target[target[:, 0] > -0.2]
c, s = 0.6, 0.8
turn = torch.tensor([[c, -s, 0], [s, c, 0], [0, 0, 1]], dtype=torch.float64)
shift = torch.tensor([500_000.0, 5_200_000.0, 100.0], dtype=torch.float64)  # survey coordinates
scanned = source @ turn.t() + shift

found = veckm.register(scanned, target)
off = (found.apply(scanned) - source).norm(dim=1)
print(f"aligned: {found.aligned}, confidence {found.confidence:.2f}, overlap {found.overlap:.0%}")
print(f"{int(found.inliers.sum())} of {len(found.matches)} matches agree")
print(f"off by {off.mean():.4f} on average, at a resolution of {found.voxel:.3f}")
assert found.aligned
assert off.max() < found.voxel

other = veckm.register(shapes.box(6000).pos, target)
print(f"another shape: aligned: {other.aligned}, {other.note}")
assert not other.aligned

# What is matched: descriptors that do not change when the cloud turns.
before = veckm.describe(source, radius=0.4, queries=source[:50])
after = veckm.describe(scanned, radius=0.4, queries=scanned[:50])
change = (before - after).norm() / before.norm()
print(f"descriptors of {before.shape[1]} numbers change by {change:.1e} of their length")
assert change < 0.02
