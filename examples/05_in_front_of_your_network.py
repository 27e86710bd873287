"""VecKM in front of a network: tell procedural shapes apart from 256 points each."""

import torch
from torch import nn

import veckm
from veckm.data import shapes
from veckm.nn import FeatureBlock

KINDS = (shapes.sphere, shapes.torus, shapes.box, shapes.cylinder)


def draw(clouds: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(clouds, 256, 3) and the kind of each; all of one size, so that size gives nothing away."""
    pos = torch.stack([KINDS[i % 4](256, seed + i).pos for i in range(clouds)])
    return pos / pos.norm(dim=-1).mean(1)[:, None, None], torch.arange(clouds) % 4


enc = veckm.VecKM(dim=64, radius=0.9, detail=5)  # so few points: look far
features = FeatureBlock(64, 32, 32, batch_norm=True)  # complex in, real out
head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, len(KINDS)))
optimizer = torch.optim.Adam([*features.parameters(), *head.parameters()], lr=5e-3)
losses = []
for step in range(20):
    pos, kind = draw(16, seed=16 * step)
    scores = head(features(enc(pos)).mean(1))  # the mean over the points of each cloud
    loss = nn.functional.cross_entropy(scores, kind)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
pos, kind = draw(64, seed=10_000)
right = (head(features(enc(pos)).mean(1)).argmax(1) == kind).double().mean()
print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}; {right:.0%} of 64 new clouds right")
assert losses[-1] < losses[0] / 2

# The slow way: the encodings that the network was fed are those of the definition.
slow = veckm.encode(pos.double(), enc.A[0], radius=0.9, engine="dense")
error = (enc(pos) - slow).abs().square().sum(-1).sqrt().mean() / 64**0.5
print(f"relative error of its encodings against the definition: {error:.0e}")
assert error < enc.eps
