"""Several scales at once, and clouds of unequal size in one call."""

import torch

import veckm
from veckm.data import shapes

clouds = [shapes.torus(2000).pos, shapes.box(700).pos, shapes.cylinder(1200).pos]

# Two scales, as the paper uses for normals: their encodings stand side by side.
enc = veckm.VecKM(dim=128, alpha=60, beta=(10, 20))

# Clouds one behind the other with a batch vector, as in PyTorch Geometric.
pos = torch.cat(clouds)
batch = torch.repeat_interleave(torch.arange(3), torch.tensor([len(c) for c in clouds]))
G = enc(pos, batch)
print(f"{len(clouds)} clouds, {len(pos)} points -> {tuple(G.shape)}: 2 scales of 128")

# Clouds of one size are a tensor (B, N, 3).
equal = enc(torch.stack([c[:700] for c in clouds]))
print(f"3 clouds of 700 points -> {tuple(equal.shape)}")

# The slow way: each cloud by itself, each scale by itself, all pairs.
start = 0
for cloud in clouds:
    for scale, beta in enumerate(enc.beta):
        slow = veckm.encode(cloud, enc.A[scale], beta=beta, engine="dense")
        fast = G[start : start + len(cloud), scale * 128 : (scale + 1) * 128]
        error = (fast - slow).abs().square().sum(1).sqrt().mean() / 128**0.5
        assert error < enc.eps, error
    start += len(cloud)
print("each cloud and each scale alone gives the same")
