"""Checkpoints of the program of VecKM's authors, as states of the networks of ``authors=True``.

theirs                                   here
fc_r, fc_i of a complex layer            W = R + i S,  b = (r - s) + i (r + s)
a bias that a batch norm subtracts       subtracted from the running mean
columns in the order of their inputs     in the order of ours
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from veckm.models import PointModel, create_model
from veckm.models.config import Task

State = dict[str, Tensor]
Ints = tuple[int, ...]
_STATISTICS = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def load_authors(
    name: str, state: Mapping[str, Any], *, task: Task = "classification"
) -> PointModel:
    """The network of a checkpoint of the authors' program, for evaluation.

    Args:
        name: ``"pointnet"``, ``"pointnet2"`` or ``"pct"``.
        state: what ``torch.load`` returns: the state of their network, as it is or inside of
            ``DataParallel``, or a dictionary that has it as ``"model_state_dict"``.
        task: ``"classification"`` or ``"part-segmentation"``.
    """
    parts = _LAYOUTS.get((name, task))
    if parts is None:
        there = ", ".join(f"{name} for {task}" for name, task in _LAYOUTS)
        raise ValueError(f"the authors have no {name} for {task}; there are {there}")
    theirs = {key.replace("module.", ""): x for key, x in _weights(state).items()}
    expected = {key for part in parts for key in part.keys()}
    if missing := sorted(expected - set(theirs)) or sorted(set(theirs) - expected):
        lacks = "lacks" if expected - set(theirs) else "also has"
        raise ValueError(
            f"this is no state of the authors' {name} for {task}: it {lacks} "
            f"{', '.join(missing[:3])}{f' and {len(missing) - 3} more' * (len(missing) > 3)}; "
            "name the network and the task that it was trained for"
        )
    classes = len(theirs[f"{parts[-1].theirs}.weight"])
    model = create_model(name, task=task, veckm=True, authors=True, num_classes=classes)
    try:
        model.load_state_dict({k: x for part in parts for k, x in part.read(theirs).items()})
    except RuntimeError as error:
        raise ValueError(
            f"the state has other sizes than the authors' {name} for {task}: {error}"
        ) from error
    return model.eval()


def _weights(state: Mapping[str, Any]) -> Mapping[str, Tensor]:
    found = state.get("model_state_dict", state)
    if not isinstance(found, Mapping) or not all(isinstance(x, Tensor) for x in found.values()):
        raise ValueError(
            "state must be a dictionary of tensors, or have one as 'model_state_dict'; pass what "
            "torch.load returns"
        )
    return found


@dataclass(frozen=True)
class _Same:
    """A tensor that is the same in both."""

    ours: str
    theirs: str

    def keys(self) -> list[str]:
        return [self.theirs]

    def read(self, state: State) -> State:
        return {self.ours: state[self.theirs]}


@dataclass(frozen=True)
class _Shared(_Same):
    """A tensor that they store twice."""

    def keys(self) -> list[str]:
        return [self.theirs, self.theirs.replace("k_conv", "q_conv")]

    def read(self, state: State) -> State:
        key, query = self.keys()
        if not torch.equal(state[key], state[query]):
            raise ValueError(f"{key} and {query} differ; the authors' program has them in common")
        return {self.ours: state[key].flatten(1)}


@dataclass(frozen=True)
class _Complex(_Same):
    """A complex layer."""

    def keys(self) -> list[str]:
        return [f"{self.theirs}.fc_{x}" for x in ("r.weight", "i.weight", "r.bias", "i.bias")]

    def read(self, state: State) -> State:
        R, S, r, s = (state[key] for key in self.keys())
        return {
            f"{self.ours}.weight_parts": torch.stack((R, S), dim=-1),
            f"{self.ours}.bias_parts": torch.stack((r - s, r + s), dim=-1),
        }


@dataclass(frozen=True)
class _Layer(_Same):
    """A linear layer or a convolution of size one, and the batch norm after it."""

    norm: str = ""
    bias: bool = True  # whether theirs has one
    keep: bool = False  # whether ours has one too, before a norm
    #: Sizes of blocks of their columns, and the order that ours have.
    blocks: Ints = ()
    order: Ints = ()

    def keys(self) -> list[str]:
        own = [f"{self.theirs}.weight", *[f"{self.theirs}.bias"] * self.bias]
        return own + [f"{self.norm}.{x}" for x in _STATISTICS if self.norm]

    def read(self, state: State) -> State:
        weight = state[f"{self.theirs}.weight"].flatten(1)
        if sum(self.blocks) == weight.shape[1]:
            columns = weight.split(self.blocks, dim=1)
            weight = torch.cat([columns[i] for i in self.order], dim=1)
        linear = f"{self.ours}.linear" if self.norm else self.ours
        out = {f"{linear}.weight": weight}
        if self.bias and (self.keep or not self.norm):
            out[f"{linear}.bias"] = state[f"{self.theirs}.bias"]
        for x in _STATISTICS if self.norm else ():
            out[f"{self.ours}.norm.{x}"] = state[f"{self.norm}.{x}"]
        if self.bias and self.norm and not self.keep:
            mean = f"{self.ours}.norm.running_mean"
            out[mean] = out[mean] - state[f"{self.theirs}.bias"]
        return out


def _encoding(position: bool) -> list[_Same]:
    found: list[_Same] = [_Same("encoding.veckm.A", "vkm_feat.0.A")]
    if position:
        found.append(_Same("encoding.P", "vkm_feat.0.P"))
    block = "encoding.block.linear"
    return [*found, _Complex(f"{block}1", "vkm_feat.1"), _Complex(f"{block}2", "vkm_feat.3")]


def _attention(ours: str, theirs: str) -> list[_Same]:
    return [
        _Shared(f"{ours}.key.weight", f"{theirs}.k_conv.weight"),
        _Layer(f"{ours}.value", f"{theirs}.v_conv"),
        _Layer(f"{ours}.transform", f"{theirs}.trans_conv", f"{theirs}.after_norm", keep=True),
    ]


def _mlp(ours: str, theirs: str, count: int) -> list[_Layer]:
    return [
        _Layer(f"{ours}.{i}", f"{theirs}.mlp_convs.{i}", f"{theirs}.mlp_bns.{i}")
        for i in range(count)
    ]


def _propagation(ours: str, theirs: str, count: int, blocks: Ints, order: Ints) -> list[_Layer]:
    first, *others = _mlp(f"{ours}.layers", theirs, count)
    return [replace(first, blocks=blocks, order=order), *others]


_ABSTRACTIONS = [*_mlp("second.layers", "sa2", 3), *_mlp("third", "sa3", 3)]

#: Every network layer by layer, that to the classes last.
_LAYOUTS: dict[tuple[str, Task], list[_Same]] = {
    ("pointnet", "classification"): [
        *_encoding(True),
        _Layer("widen.0", "clf1", "bn_clf1"),
        _Layer("head.0", "clf2", "bn_clf2", keep=True),
        _Layer("head.1", "clf3"),
    ],
    ("pointnet", "part-segmentation"): [
        *_encoding(True),
        _Layer("head.0", "conv1", "bn1", blocks=(1024, 16, 1024), order=(2, 0, 1)),
        _Layer("head.1", "conv2", "bn2"),
        _Layer("head.2", "conv3", "bn3"),
        _Layer("head.3", "conv4"),
    ],
    ("pointnet2", "classification"): [
        *_encoding(False),
        *_ABSTRACTIONS,
        _Layer("head.0", "fc1", "bn1"),
        _Layer("head.2", "fc2", "bn2"),
        _Layer("head.4", "fc3"),
    ],
    ("pointnet2", "part-segmentation"): [
        *_encoding(False),
        *_ABSTRACTIONS,
        *_mlp("up3", "fp3", 2),
        *_propagation("up2", "fp2", 2, (128, 256), (1, 0)),
        *_propagation("up1", "fp1", 3, (16, 3, 3, 128), (3, 1, 2, 0)),
        _Layer("head.0", "conv1", "bn1"),
        _Layer("head.2", "conv2"),
    ],
    ("pct", "classification"): [
        *_encoding(True),
        _Layer("before.0", "pt_last.conv1", "pt_last.bn1", bias=False),
        _Layer("before.1", "pt_last.conv2", "pt_last.bn2", bias=False),
        *[x for i in range(4) for x in _attention(f"attention.{i}", f"pt_last.sa{i + 1}")],
        _Layer("fuse", "conv_fuse.0", "conv_fuse.1", bias=False, blocks=(1024, 256), order=(1, 0)),
        _Layer("widen.0", "linear1", "bn6", bias=False),
        _Layer("head.0", "linear2", "bn7"),
        _Layer("head.2", "linear3"),
    ],
    ("pct", "part-segmentation"): [
        *_encoding(True),
        _Same("category", "lbl_emb"),
        _Layer("before.0", "feat_trans.0", "feat_trans.1", bias=False),
        _Layer("before.1", "feat_trans.3", "feat_trans.4", bias=False),
        *[x for i in range(4) for x in _attention(f"attention.{i}", f"attn{i + 1}")],
        _Layer("fuse", "conv_fuse.0", "conv_fuse.1", bias=False),
        _Layer("head.0", "conv1", "bn1"),
        _Layer("head.2", "conv2"),
    ],
}
