"""Smooth a noisy field over a cloud and interpolate it: Gaussian kernel sums in linear time."""

import torch

import veckm
from veckm.data import shapes

pos = shapes.torus(10_000).pos  # (10000, 3)
truth = torch.stack([torch.sin(3 * pos[:, 0]), pos[:, 2]], dim=1)  # two channels per point
generator = torch.Generator().manual_seed(0)
noisy = truth + 0.5 * torch.randn(truth.shape, generator=generator)
ones = torch.ones(len(pos))

# The plan is made once; every sum over the same points and window reuses it.
plan = veckm.plan(pos, radius=0.15, columns=2)
count = plan.sum(ones)  # (10000,): the effective number of points in each window
smooth = plan.sum(noisy) / count[:, None]  # (10000, 2): the Nadaraya-Watson mean
before, after = ((field - truth).square().mean().sqrt() for field in (noisy, smooth))
print(f"engine {plan.engine}, {count.mean():.0f} points per window")
print(f"error of the field: {before:.3f} before smoothing, {after:.3f} after")
assert after < before / 4

# Interpolate to other places. The sums are differentiable: here, in the queries.
queries = (pos[:100] + 0.02).requires_grad_()
to_queries = veckm.plan(pos, radius=0.15, queries=queries, eps=1e-3, engine="grid")
field = to_queries.sum(noisy) / to_queries.sum(ones)[:, None]  # (100, 2)
slope = torch.autograd.grad(field[:, 0].sum(), queries)[0]  # (100, 3)

# The slow way: the weights of all pairs, written out.
beta = veckm.beta_from_radius(0.15)
exact_queries = queries.detach().double().requires_grad_()
squared = (exact_queries[:, None] - pos.double()).square().sum(-1)  # (100, 10000)
weights = torch.exp(-0.5 * beta**2 * squared)
exact = weights @ noisy.double() / weights.sum(1, keepdim=True)
exact_slope = torch.autograd.grad(exact[:, 0].sum(), exact_queries)[0]
error = (field - exact).norm() / exact.norm()
slope_error = (slope - exact_slope).norm() / exact_slope.norm()
print(f"relative error against all pairs: {error:.0e}, of the gradient {slope_error:.0e}")
assert error < 1e-3
assert slope_error < 1e-2
