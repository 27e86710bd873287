"""VecKM in front of a network: tell procedural shapes apart from 256 points each."""

import torch
from torch import nn

import veckm
from veckm.data import shapes
from veckm.nn import FeatureBlock

KINDS = (shapes.sphere, shapes.torus, shapes.box, shapes.cylinder)


class Classifier(nn.Module):
    """Encode, make features of each point, take their mean, classify."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = veckm.VecKM(dim=64, radius=0.9, detail=5)  # 256 points: look far
        self.features = FeatureBlock(64, 32, 32, norm=True)
        self.head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, len(KINDS)))

    def forward(self, pos: torch.Tensor) -> torch.Tensor:  # (B, N, 3) -> (B, kinds)
        """One score for each kind of shape."""
        return self.head(self.features(self.encode(pos)).mean(1))


def draw(clouds: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(clouds, 256, 3) and the kind of each; all of one size, so that size gives nothing away."""
    pos = torch.stack([KINDS[i % 4](256, seed + i).pos for i in range(clouds)])
    return pos / pos.norm(dim=-1).mean(1)[:, None, None], torch.arange(clouds) % 4


net = Classifier()
optimiser = torch.optim.Adam(net.parameters(), lr=5e-3)
losses = []
for step in range(20):
    pos, kind = draw(16, seed=16 * step)
    loss = nn.functional.cross_entropy(net(pos), kind)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
    losses.append(loss.item())
net.eval()
pos, kind = draw(64, seed=10_000)
right = (net(pos).argmax(1) == kind).double().mean()
print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f}; {right:.0%} of 64 new clouds right")
assert losses[-1] < losses[0] / 2

# The slow way: the encodings that the network was fed are those of the definition.
slow = veckm.encode(pos, net.encode.A[0], radius=0.9, engine="dense")
error = (net.encode(pos) - slow).abs().square().sum(-1).sqrt().mean() / 64**0.5
print(f"its encodings are {error:.0e} (relative) from the definition")
assert error < net.encode.eps
