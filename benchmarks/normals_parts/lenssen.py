"""The network of Lenssen et al. (CVPR 2020), from a checkout of its authors' repository.

github.com/nnaisense/deep-iterative-surface-normal-estimation has no license, so nothing of it is
here: the layers and the weights are imported from the folder that the user gives. What its CUDA
extensions and its libraries did is plain torch and scipy.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from scipy.spatial import cKDTree
from torch import Tensor

K, ITERATIONS = 64, 4
NAME = f"Lenssen et al., k = {K}"
_CHUNK = 8192  # points at a time: each has K + 1 rows of 64 numbers


def estimator(folder: Path) -> Callable[[Tensor], Tensor]:  # (N, 3) -> (N, 3)
    """Normals by iteration: the network weighs the neighbors, a plane is fitted, and again."""
    net = load(folder)

    @torch.inference_mode()
    def normals(pos: Tensor) -> Tensor:
        x = pos.double() - pos.double().mean(0)
        x = (x / x.abs().max()).float()  # between -1 and 1, as its clouds were
        near = torch.from_numpy(_nearest(x, min(K + 1, len(x))))
        size = float((x[near[:, :17]] - x[:, None]).square().mean().sqrt())
        weights = torch.full(near.shape, 1 / K)
        found = _planes(x, near, torch.ones_like(weights))
        for _ in range(ITERATIONS):
            weights = _weights(net, x, near, weights, found, size)
            found = _planes(x, near, weights)
        return found

    return normals


def load(folder: Path) -> Any:
    """Its layers with its weights; its libraries are not needed for these neighborhoods."""
    path = folder / "trained_models" / f"network_k{K}.pt"
    if not path.is_file():
        raise ValueError(
            f"{folder}: has no trained_models/{path.name}; give a checkout of "
            "github.com/nnaisense/deep-iterative-surface-normal-estimation"
        )
    nothing = SimpleNamespace(reset=lambda _: None, scatter_add=None, scatter_mean=None)
    for name in ("torch_geometric", "torch_geometric.nn", "torch_geometric.nn.inits"):
        _stand_in(name, nothing)
    _stand_in("torch_scatter", nothing)
    sys.path.insert(0, str(folder))
    try:
        gnn = importlib.import_module("networks.gnn")
    finally:
        sys.path.remove(str(folder))
    gnn.QuatToMat = SimpleNamespace(apply=_rotations)  # type: ignore[attr-defined]
    net = gnn.GNNFixedK()
    state = torch.load(path, map_location="cpu", weights_only=True)
    net.load_state_dict({name.removeprefix("stepWeights."): w for name, w in state.items()})
    return net.eval()


def _stand_in(name: str, content: SimpleNamespace) -> None:
    """A module under this name unless there is one."""
    package = name.partition(".")[0]
    ours = package in sys.modules and sys.modules[package].__spec__ is None  # from a call before
    if ours or find_spec(package) is None:
        module = ModuleType(name)
        module.__dict__.update(vars(content))
        sys.modules.setdefault(name, module)


def _nearest(x: Tensor, k: int) -> Any:  # (N, 3) -> (N, k)
    return cKDTree(x.numpy()).query(x.numpy(), k, workers=torch.get_num_threads())[1]


class _Rolled:
    """Rows of a tensor counted from `start` around, as if there were only `count` of them."""

    def __init__(self, rows: Tensor, start: int, count: int) -> None:
        self.rows, self.start, self.count = rows, start, count

    def __getitem__(self, at: Tensor) -> Tensor:
        return self.rows[(at + self.start) % len(self.rows)]

    def size(self, _: int) -> int:
        """Of the chunk."""
        return self.count

    def view(self, *_: int) -> Tensor:
        """The chunk itself."""
        return self.rows[self.start : self.start + self.count]


def _weights(
    net: Any,
    x: Tensor,  # (N, 3)
    near: Tensor,  # (N, k)
    weights: Tensor,  # (N, k)
    normal: Tensor,  # (N, 3)
    size: float,
) -> Tensor:  # (N, k)
    """The network on all points, some at a time: it asks for whole clouds, whose edges at 100,000
    points take several GB, so it is given a cloud that begins with the chunk."""
    out = []
    for start in range(0, len(x), _CHUNK):
        part = near[start : start + _CHUNK]
        m, k = part.shape
        rows = torch.arange(m).repeat_interleave(k)
        edges = torch.stack((rows, (part.reshape(-1) - start) % len(x)))
        chunk = [_Rolled(t, start, m) for t in (x, normal)]
        out.append(net(chunk[0], weights[start : start + m], chunk[1], edges, part, size))
    return torch.cat(out)


def _planes(x: Tensor, near: Tensor, weights: Tensor) -> Tensor:  # (N, 3)
    """Normals of the weighted planes."""
    out = []
    for part in torch.arange(len(x)).split(_CHUNK):
        w = weights[part, :, None] / weights[part].sum(1)[:, None, None]
        d = x[near[part]] - x[part][:, None]
        d = d - (w * d).sum(1, keepdim=True)
        out.append(torch.linalg.eigh((w * d).mT @ d)[1][:, :, 0])
    return torch.cat(out)


def _rotations(q: Tensor) -> Tensor:  # (N, 4) unit, the real part first -> (N, 9)
    a, b, c, d = q.unbind(-1)
    return torch.stack(
        [
            1 - 2 * (c * c + d * d), 2 * (b * c - a * d), 2 * (b * d + a * c),
            2 * (b * c + a * d), 1 - 2 * (b * b + d * d), 2 * (c * d - a * b),
            2 * (b * d - a * c), 2 * (c * d + a * b), 1 - 2 * (b * b + c * c),
        ],
        dim=-1,
    )  # fmt: skip
