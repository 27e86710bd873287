"""The forward passes of the authors' six networks, slowly and from their formulas.

A network is its state: numbers under the names of the authors' program. Channels stand last,
(B, N, C). Results are logits; what their program appends, a logarithm of the softmax, is left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import torch
from cloud_twins import ball_in_order_twin, farthest_twin, interpolate_twin, over_batch
from torch import Tensor

CLASSES = {"classification": 40, "part-segmentation": 50}
CATEGORIES = 16


@dataclass
class Twin:
    """A network in evaluation, or in training without dropout."""

    name: str
    task: str
    state: dict[str, Tensor]
    training: bool = False
    beta: float = field(init=False)

    def __post_init__(self) -> None:
        parts = self.task == "part-segmentation"
        self.beta = 9.0 if parts and self.name != "pointnet" else 6.0

    def __call__(self, pos: Tensor, category: Tensor) -> Tensor:  # (B, N, 3), (B,)
        one_hot = torch.eye(CATEGORIES).to(pos)[category]
        out: Tensor = getattr(self, f"{self.name}_{self.task[:4]}")(pos, one_hot)
        return out

    def linear(self, x: Tensor, name: str) -> Tensor:
        weight = self.state[f"{name}.weight"]
        y = x @ weight.reshape(weight.shape[:2]).t()
        bias = self.state.get(f"{name}.bias")
        return y if bias is None else y + bias

    def norm(self, x: Tensor, name: str) -> Tensor:
        """Over all but the channels; training changes the running statistics, by a tenth."""
        s = {key: self.state[f"{name}.{key}"] for key in ("weight", "bias")}
        running = [f"{name}.running_{key}" for key in ("mean", "var")]
        mean, var = (self.state[key] for key in running)
        if self.training:
            rows = x.reshape(-1, x.shape[-1])
            for key, seen in zip(running, (rows.mean(0), rows.var(0)), strict=True):
                self.state[key] = 0.9 * self.state[key] + 0.1 * seen
            mean, var = rows.mean(0), rows.var(0, unbiased=False)
        return (x - mean) / (var + 1e-5).sqrt() * s["weight"] + s["bias"]

    def layer(self, x: Tensor, linear: str, norm: str, slope: float = 0.0) -> Tensor:
        y = self.norm(self.linear(x, linear), norm)
        return torch.where(y > 0, y, slope * y)

    def complex_layer(self, z: Tensor, name: str) -> Tensor:
        re = self.linear(z.real, f"{name}.fc_r") - self.linear(z.imag, f"{name}.fc_i")
        im = self.linear(z.imag, f"{name}.fc_r") + self.linear(z.real, f"{name}.fc_i")
        return re + 1j * im

    def encoding(self, pos: Tensor) -> Tensor:  # (B, N, 3) -> (B, N, C)
        A = self.state["vkm_feat.0.A"]
        away = (pos[:, :, None] - pos[:, None]).square().sum(-1)
        E = torch.exp(1j * (pos @ A))
        G = (torch.exp(-(self.beta**2) / 2 * away) + 0j) @ E / E
        G = G / G.abs().square().sum(-1, keepdim=True).sqrt() * A.shape[1] ** 0.5
        if "vkm_feat.0.P" in self.state:
            G = G + torch.exp(1j * (pos @ self.state["vkm_feat.0.P"]))
        z = self.complex_layer(G, "vkm_feat.1")
        z = self.complex_layer(z.real.clamp_min(0) + 1j * z.imag.clamp_min(0), "vkm_feat.3")
        return z.abs().square()

    def stack(self, x: Tensor, name: str, count: int) -> Tensor:
        for i in range(count):
            x = self.layer(x, f"{name}.mlp_convs.{i}", f"{name}.mlp_bns.{i}")
        return x

    def attention(self, x: Tensor, name: str) -> Tensor:  # (B, N, C) -> (B, N, C)
        key, value = self.linear(x, f"{name}.k_conv"), self.linear(x, f"{name}.v_conv")
        A = (key @ key.mT).softmax(-1)  # from the row's point to the column's
        A = A / (1e-9 + A.sum(1, keepdim=True))
        offset = x - A.mT @ value
        return x + self.layer(offset, f"{name}.trans_conv", f"{name}.after_norm")

    def attentions(self, x: Tensor, name: str) -> Tensor:
        outputs = []
        for i in range(4):
            x = self.attention(x, f"{name}{i + 1}")
            outputs.append(x)
        return torch.cat(outputs, -1)

    def pointnet_clas(self, pos: Tensor, _: Tensor) -> Tensor:
        x = self.encoding(pos).amax(1)
        x = self.layer(x, "clf1", "bn_clf1")
        return self.linear(self.layer(x, "clf2", "bn_clf2"), "clf3")

    def pointnet_part(self, pos: Tensor, category: Tensor) -> Tensor:
        x = self.encoding(pos)
        of_cloud = torch.cat((x.amax(1), category), -1)[:, None].expand(-1, pos.shape[1], -1)
        x = torch.cat((of_cloud, x), -1)
        for i in (1, 2, 3):
            x = self.layer(x, f"conv{i}", f"bn{i}")
        return self.linear(x, "conv4")

    def abstractions(self, pos: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features of all points, 128 points and theirs, the vector of the cloud."""
        x = self.encoding(pos)
        picks = over_batch(farthest_twin, pos, count=128)
        coarse = torch.stack([p[i] for p, i in zip(pos, picks, strict=True)])
        clouds = []
        for p, features, centers in zip(pos, x, coarse, strict=True):
            near = ball_in_order_twin(p, centers, 0.4, 64)  # (128, 64)
            clouds.append(torch.cat((p[near] - centers[:, None], features[near]), -1))
        y = self.stack(torch.stack(clouds), "sa2", 3).amax(2)
        return x, coarse, y, self.stack(torch.cat((coarse, y), -1), "sa3", 3).amax(1)

    def pointnet2_clas(self, pos: Tensor, _: Tensor) -> Tensor:
        x = self.abstractions(pos)[-1]
        return self.linear(self.layer(self.layer(x, "fc1", "bn1"), "fc2", "bn2"), "fc3")

    def pointnet2_part(self, pos: Tensor, category: Tensor) -> Tensor:
        x, coarse, y, z = self.abstractions(pos)
        y = self.stack(torch.cat((y, z[:, None].expand(-1, 128, -1)), -1), "fp3", 2)
        x = self.stack(torch.cat((x, over_batch(interpolate_twin, y, coarse, pos)), -1), "fp2", 2)
        x = over_batch(interpolate_twin, x, pos, pos)  # by 1e-8 of the neighbors
        x = torch.cat((category[:, None].expand(-1, pos.shape[1], -1), pos, pos, x), -1)
        x = self.stack(x, "fp1", 3)
        return self.linear(self.layer(x, "conv1", "bn1"), "conv2")

    def pct_clas(self, pos: Tensor, _: Tensor) -> Tensor:
        x = own = self.encoding(pos)
        for i in (1, 2):
            x = self.layer(x, f"pt_last.conv{i}", f"pt_last.bn{i}")
        x = torch.cat((self.attentions(x, "pt_last.sa"), own), -1)
        x = self.layer(x, "conv_fuse.0", "conv_fuse.1", 0.2).amax(1)
        x = self.layer(self.layer(x, "linear1", "bn6", 0.2), "linear2", "bn7", 0.2)
        return self.linear(x, "linear3")

    def pct_part(self, pos: Tensor, category: Tensor) -> Tensor:
        x = self.encoding(pos) * (category @ self.state["lbl_emb"])[:, None]
        x = self.layer(x, "feat_trans.0", "feat_trans.1")
        x = self.norm(self.linear(x, "feat_trans.3"), "feat_trans.4")
        x = self.layer(self.attentions(x, "attn"), "conv_fuse.0", "conv_fuse.1")
        return self.linear(self.layer(x, "conv1", "bn1"), "conv2")


#: Layers as (name, norm, inputs, outputs), and whether they have a bias.
Layers = list[tuple[str, str, int, int, bool]]


def _attention(name: str, c: int) -> Layers:
    one = (f"{name}.k_conv", "", c, c // 4, False)
    more = (
        (f"{name}.v_conv", "", c, c, True),
        (f"{name}.trans_conv", f"{name}.after_norm", c, c, True),
    )
    return [one, *more]


def _stack(name: str, *sizes: int) -> Layers:
    pairs = enumerate(pairwise(sizes))
    return [(f"{name}.mlp_convs.{i}", f"{name}.mlp_bns.{i}", a, b, True) for i, (a, b) in pairs]


_ABSTRACTIONS = [*_stack("sa2", 131, 128, 128, 256), *_stack("sa3", 259, 256, 512, 1024)]

#: Hidden and last channels of the encoding, whether it has a position, and the layers.
LAYOUTS: dict[tuple[str, str], tuple[int, int, bool, Layers]] = {
    ("pointnet", "classification"): (
        256,
        1024,
        True,
        [
            ("clf1", "bn_clf1", 1024, 512, True),
            ("clf2", "bn_clf2", 512, 256, True),
            ("clf3", "", 256, 40, True),
        ],
    ),
    ("pointnet", "part-segmentation"): (
        256,
        1024,
        True,
        [
            ("conv1", "bn1", 2064, 256, True),
            ("conv2", "bn2", 256, 256, True),
            ("conv3", "bn3", 256, 128, True),
            ("conv4", "", 128, 50, True),
        ],
    ),
    ("pointnet2", "classification"): (
        128,
        128,
        False,
        [
            *_ABSTRACTIONS,
            ("fc1", "bn1", 1024, 512, True),
            ("fc2", "bn2", 512, 256, True),
            ("fc3", "", 256, 40, True),
        ],
    ),
    ("pointnet2", "part-segmentation"): (
        128,
        128,
        False,
        [
            *_ABSTRACTIONS,
            *_stack("fp3", 1280, 256, 256),
            *_stack("fp2", 384, 256, 128),
            *_stack("fp1", 150, 128, 128, 128),
            ("conv1", "bn1", 128, 128, True),
            ("conv2", "", 128, 50, True),
        ],
    ),
    ("pct", "classification"): (
        256,
        256,
        True,
        [
            *[(f"pt_last.conv{i}", f"pt_last.bn{i}", 256, 256, False) for i in (1, 2)],
            *[layer for i in (1, 2, 3, 4) for layer in _attention(f"pt_last.sa{i}", 256)],
            ("conv_fuse.0", "conv_fuse.1", 1280, 1024, False),
            ("linear1", "bn6", 1024, 512, False),
            ("linear2", "bn7", 512, 256, True),
            ("linear3", "", 256, 40, True),
        ],
    ),
    ("pct", "part-segmentation"): (
        256,
        256,
        True,
        [
            ("feat_trans.0", "feat_trans.1", 256, 128, False),
            ("feat_trans.3", "feat_trans.4", 128, 128, False),
            *[layer for i in (1, 2, 3, 4) for layer in _attention(f"attn{i}", 128)],
            ("conv_fuse.0", "conv_fuse.1", 512, 128, False),
            ("conv1", "bn1", 128, 128, True),
            ("conv2", "", 128, 50, True),
        ],
    ),
}


def random_state(name: str, task: str, generator: torch.Generator) -> dict[str, Tensor]:
    """Random numbers under all names of their network, running statistics included."""

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    hidden, channels, position, layers = LAYOUTS[name, task]
    state = {"vkm_feat.0.A": 30 * draw(3, 256)}
    if position:
        state["vkm_feat.0.P"] = draw(3, 256)
    for at, (a, b) in ((1, (256, hidden)), (3, (hidden, channels))):
        for part in ("fc_r", "fc_i"):
            state[f"vkm_feat.{at}.{part}.weight"] = draw(b, a) * a**-0.5
            state[f"vkm_feat.{at}.{part}.bias"] = draw(b)
    if (name, task) == ("pct", "part-segmentation"):
        state["lbl_emb"] = draw(CATEGORIES, 256)
    for linear, norm, a, b, bias in layers:
        size = () if linear.startswith(("clf", "fc", "linear")) else (1, 1)
        size = size if "sa2." in linear or "sa3." in linear else size[:1]
        state[f"{linear}.weight"] = draw(b, a, *size) * a**-0.5
        if bias:
            state[f"{linear}.bias"] = draw(b)
        if norm:
            state |= {f"{norm}.{key}": draw(b) for key in ("weight", "bias", "running_mean")}
            state[f"{norm}.running_var"] = draw(b).square() + 0.5
            state[f"{norm}.num_batches_tracked"] = torch.tensor(7)
    shared = {k.replace("k_conv", "q_conv"): x for k, x in state.items() if "k_conv" in k}
    # In steps that float32 has, also of sums: what is converted is then exact.
    return {k: (4096 * x).round() / 4096 if x.dim() else x for k, x in (state | shared).items()}
