"""Move points until their encodings match a target: the encoder is differentiable in its points."""

import torch

import veckm
from veckm.data import shapes

target = shapes.torus(400).pos.double()
generator = torch.Generator().manual_seed(0)
moved = target + 0.03 * torch.randn(target.shape, generator=generator, dtype=torch.float64)

# norm="mean": the local characteristic function, smooth in the points and bounded by 1.
enc = veckm.VecKM(dim=64, radius=0.4, detail=4, norm="mean", engine="grid")
wanted = enc(target, queries=target)

pos = moved.clone().requires_grad_()
optimizer = torch.optim.Adam([pos], lr=2e-3)
losses = []
for _ in range(40):
    optimizer.zero_grad()
    loss = (enc(pos, queries=target) - wanted).abs().square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())

before, after = ((x - target).norm(dim=1).mean().item() for x in (moved, pos.detach()))
print(
    f"loss {losses[0]:.1e} -> {losses[-1]:.1e}; distance to the target {before:.3f} -> {after:.3f}"
)
assert losses[-1] < losses[0] / 10
assert after < before

# The slow way: the same gradient by the definition.
gradients = []
for engine in ("grid", "dense"):
    enc.engine = engine
    x = moved.clone().requires_grad_()
    loss = (enc(x, queries=target) - wanted).abs().square().mean()
    gradients.append(torch.autograd.grad(loss, x)[0])
error = (gradients[0] - gradients[1]).norm() / gradients[1].norm()
print(f"gradient of grid against dense: {error:.2%} apart")
assert error < 0.05
