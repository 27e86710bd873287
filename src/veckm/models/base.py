"""What every network has: one way to be called, one place of checks, and its settings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import torch
from torch import Tensor, nn

from veckm import inputs

#: Points of a forward pass without gradients, as whole clouds: a batch of any size takes no more
#: memory than one of so many. Parts of 4,096 were slower for every network.
_TOGETHER = 32768

Task = Literal["classification", "part-segmentation", "semantic-segmentation"]


class PointModel(nn.Module, ABC):
    """A network from clouds to logits.

    Args:
        num_classes: logits of a cloud, or of a point.
        in_channels: channels of ``features``; 0 if there are none.
        num_categories: of objects in part segmentation; 0 where no category is given.

    Attributes:
        settings: what :func:`veckm.create_model` made the network from.
        validate: whether a call checks values (finite, in range); shapes are checked always. The
            check is one pass over the input, and on a GPU a wait for it. Inside, nothing is
            checked again.
        penalty: what the last forward pass in training wants added to the loss, if anything.

    Shapes:
        - pos: (B, N, 3)
        - features: (B, N, in_channels)
        - category: (B,) int64
        - output: (B, num_classes) for classification, (B, N, num_classes) for segmentation
    """

    settings: dict[str, Any]
    penalty: Tensor | None
    validate: bool

    def __init__(self, num_classes: int, in_channels: int = 0, num_categories: int = 0) -> None:
        super().__init__()
        for name, value, least in (
            ("num_classes", num_classes, 1),
            ("in_channels", in_channels, 0),
            ("num_categories", num_categories, 0),
        ):
            inputs.check_count(value, name, least)
        self.num_classes = num_classes
        self.in_channels = in_channels
        self.num_categories = num_categories
        self.settings = {}
        self.penalty = None
        self.validate = True

    def __getstate__(self) -> dict[str, Any]:
        """Without the penalty: it hangs on a graph, which neither copies nor pickles."""
        return {**self.__dict__, "penalty": None}

    def forward(
        self,
        pos: Tensor,  # (B, N, 3)
        features: Tensor | None = None,  # (B, N, C)
        category: Tensor | None = None,  # (B,) int64
    ) -> Tensor:  # (B, classes), or (B, N, classes)
        """The logits."""
        self._check_pos(pos)
        features, category = self._checked_features(pos, features), self._one_hot(pos, category)
        if self.training or torch.is_grad_enabled() or pos.device.type != "cpu":
            return self.logits(pos, features, category)
        # Without batch norms that learn, clouds do not know of each other.
        few = max(1, _TOGETHER // pos.shape[1])
        parts = zip(pos.split(few), features.split(few), category.split(few), strict=True)
        return torch.cat([self.logits(*part) for part in parts])

    @abstractmethod
    def logits(
        self,
        pos: Tensor,  # (B, N, 3)
        features: Tensor,  # (B, N, C), C may be 0
        category: Tensor,  # (B, num_categories) one-hot, no columns where there is no category
    ) -> Tensor:  # (B, classes), or (B, N, classes)
        """The network itself, on input that has been checked."""

    def _check_pos(self, pos: Tensor) -> None:
        inputs.check_points(pos, "pos", values=self.validate)
        if pos.dim() != 3 or pos.shape[2] != 3 or not pos.shape[0] or not pos.shape[1]:
            raise ValueError(
                "pos must be a batch of clouds of shape (B, N, 3) with at least one point, got "
                f"{tuple(pos.shape)}; use pos[None] for a single cloud"
            )

    def _checked_features(self, pos: Tensor, features: Tensor | None) -> Tensor:
        wanted = (*pos.shape[:2], self.in_channels)
        if features is None and not self.in_channels:
            return pos.new_empty(wanted)
        if features is None:
            raise ValueError(
                f"this network was built with in_channels={self.in_channels} and got no features; "
                f"pass features of shape {wanted}"
            )
        if tuple(features.shape) != wanted:
            raise ValueError(
                f"features must have shape {wanted}, got {tuple(features.shape)}; "
                "build the network with in_channels of that size, or pass other features"
            )
        if self.validate and features.numel():
            inputs.check_finite(features, "features")
        return features.to(pos)

    def _one_hot(self, pos: Tensor, category: Tensor | None) -> Tensor:
        if not self.num_categories:
            return pos.new_empty(pos.shape[0], 0)
        if category is None:
            raise ValueError(
                "part segmentation is told what the object is: pass category (B,) int64, the "
                f"number of each cloud's category, below {self.num_categories}"
            )
        if category.dtype != torch.int64 or tuple(category.shape) != (pos.shape[0],):
            raise ValueError(
                f"category must be int64 of shape ({pos.shape[0]},), one number a cloud, got "
                f"{category.dtype} of shape {tuple(category.shape)}"
            )
        if self.validate:
            self._check_range(category)
        return nn.functional.one_hot(category, self.num_categories).to(pos)

    def _check_range(self, category: Tensor) -> None:
        low, high = int(category.min()), int(category.max())
        if low < 0 or high >= self.num_categories:
            raise ValueError(
                f"category must be from 0 to {self.num_categories - 1}, got {low} to {high}; "
                "build the network with num_categories of that size"
            )
