"""VecKM in front of your own network, in ten lines: here a perceptron of 40 classes."""

import torch
from torch import nn

from veckm.models import Encoding, EncodingConfig

front = Encoding(
    EncodingConfig()
)  # the paper's: alpha = 30, beta = 6, D = 256; 128 real features out
yours = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 40))
optimizer = torch.optim.Adam([*front.parameters(), *yours.parameters()], lr=1e-3)

pos, label = torch.rand(4, 256, 3) - 0.5, torch.tensor([3, 1, 4, 1])  # clouds in the unit ball
for _ in range(5):
    loss = nn.functional.cross_entropy(yours(front(pos).amax(1)), label)  # (4, 256, 128) -> (4, 40)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.2f} after five steps")
assert loss < torch.tensor(40.0).log()  # better than a guess
