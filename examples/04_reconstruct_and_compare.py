"""What an encoding knows: where its neighbors are, and which neighborhoods look alike."""

import torch

import veckm
from veckm.data import shapes

cloud = shapes.box(4000)
pos = cloud.pos
enc = veckm.VecKM(dim=2048, radius=0.25, detail=4, norm="mean")
G = enc(pos)

# Proposition 1: ask the encoding of one point for the density about it. `alpha` is the sharpness.
k = 0
offsets = torch.linspace(-0.2, 0.2, 9)[:, None] * cloud.normal[k]  # along the normal
density = veckm.reconstruct(G[k], offsets, enc.A[0])
print("density along the normal:", " ".join(f"{d:5.2f}" for d in density.tolist()))
assert density.argmax() == 4  # most of it on the surface itself

# Proposition 2: similarity. A place on a face is more like another on that face than like an edge.
unit = torch.nn.functional.normalize(G, dim=1) * 2048**0.5
depth = (pos.abs() - torch.tensor([0.7, 0.55, 0.4])).abs().sort(dim=1).values  # to each face
inside = ((depth[:, 1] > 0.3) & (cloud.normal[:, 2] == 1)).nonzero()[:, 0]
edge = ((depth[:, 1] < 0.03) & (cloud.normal[:, 2] == 1)).nonzero()[:, 0]
face, other = (veckm.similarity(unit[inside[0]], unit[i]).mean() for i in (inside[1:], edge))
print(f"a place on a face: similarity {face:.2f} to that face, {other:.2f} to its edges")
assert face > other

# The slow way: the kernel mixture itself, a sum of Gaussians over the weighted neighbors.
z = pos - pos[k]
weights = torch.exp(-0.5 * (enc.beta[0] * z.norm(dim=1)) ** 2)
mixture = veckm.kernel_mixture(z, offsets, enc.alpha[0], weights)
print("the kernel mixture:      ", " ".join(f"{d:5.2f}" for d in mixture.tolist()))
assert (density - mixture).abs().max() < 0.03  # falls like 1 / sqrt(dim)
