"""Encode every point of a cloud: the neighborhood of each as a complex vector."""

import veckm
from veckm.data import shapes

pos = shapes.statue(10_000).pos  # (10000, 3), any units
radius = veckm.suggest_radius(pos)  # or choose one: how far each encoding looks

enc = veckm.VecKM(dim=256, radius=radius, detail=6)
G = enc(pos)  # (10000, 256) complex64
print(f"{len(pos)} points, radius {radius:.3f} -> {tuple(G.shape)} {G.dtype}")

# The slow way: the definition, all pairs in float64, for the first hundred points.
exact = veckm.encode(
    pos.double(), enc.A[0], radius=radius, engine="dense", queries=pos[:100].double()
)
error = (G[:100] - exact).abs().square().sum(1).sqrt() / exact.abs().square().sum(1).sqrt()
print(f"mean relative error against the definition: {error.mean():.2%} (asked for: {enc.eps:.0%})")
assert error.mean() < enc.eps
