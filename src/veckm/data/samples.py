"""Labeled clouds for networks: one sample, a batch of them, and datasets to draw from.

A dataset is a sequence of :class:`Sample`. Training draws with a generator, which may choose other
points every time; without one a sample is always the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

#: The label of points that losses and metrics ignore.
IGNORE = -1


@dataclass(frozen=True, eq=False)
class Sample:
    """One labeled cloud."""

    name: str  #: for messages
    pos: Tensor  #: (N, 3) float32
    label: Tensor  #: () or (N,) int64, of the cloud or of every point; -1 (``IGNORE``) is ignored
    features: Tensor | None = None  #: (N, C) float32, such as normals or colors
    category: int | None = None  #: of the object, for part segmentation

    def select(self, rows: Tensor) -> Sample:
        """Some of the points, by index."""
        label = self.label[rows] if self.label.dim() else self.label
        features = None if self.features is None else self.features[rows]
        return replace(self, pos=self.pos[rows], label=label, features=features)


@dataclass(frozen=True, eq=False)
class Batch:
    """B clouds of N points each."""

    pos: Tensor  #: (B, N, 3) float32
    label: Tensor  #: (B,) or (B, N) int64
    features: Tensor | None = None  #: (B, N, C) float32
    category: Tensor | None = None  #: (B,) int64

    def __len__(self) -> int:
        return len(self.pos)

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on another device."""
        return Batch(**{name: t.to(device) for name, t in vars(self).items() if t is not None})


def collate(samples: Sequence[Sample]) -> Batch:
    """One dense batch of samples with equally many points and the same fields."""
    if not len(samples):
        raise ValueError("a batch needs at least one sample, got none")
    first = samples[0]
    for other in samples:
        if _described(other) != _described(first):
            raise ValueError(
                f"{other.name} has {_described(other)}, but {first.name} has {_described(first)}: "
                "the clouds of a batch must have the same number of points and the same fields; "
                "draw equally many points of each, or use a batch of 1"
            )
    features = [s.features for s in samples if s.features is not None]
    categories = [s.category for s in samples if s.category is not None]
    return Batch(
        torch.stack([s.pos for s in samples]),
        torch.stack([s.label for s in samples]),
        torch.stack(features) if features else None,
        torch.tensor(categories, dtype=torch.int64) if categories else None,
    )


def _described(sample: Sample) -> str:
    channels = 0 if sample.features is None else sample.features.shape[-1]
    labels = f"{sample.label.numel()} labels" if sample.label.dim() else "one label"
    category = "no category" if sample.category is None else "a category"
    return f"{len(sample.pos)} points, {channels} features, {labels} and {category}"


class Samples(Sequence[Sample]):
    """A dataset of labeled clouds, indexed by whole numbers.

    A subclass that chooses points at random, or makes its samples of something else, overrides
    :meth:`draw`.

    Args:
        entries: the clouds, of any number of points each, or what a subclass makes them of.
        classes: the names of the labels, in their order.
        checksum: of the names and sizes of its files, and of the selection from them.
    """

    def __init__(self, entries: Sequence[Any], classes: Sequence[str], checksum: str = "") -> None:
        self.entries, self.classes, self.checksum = entries, tuple(classes), checksum

    def draw(self, index: int, generator: torch.Generator | None = None) -> Sample:  # noqa: ARG002
        """Sample ``index``; with a generator its points may be chosen at random."""
        sample: Sample = self.entries[index]
        return sample

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: int) -> Sample:  # type: ignore[override]  # no slices
        if not -len(self) <= index < len(self):
            raise IndexError(f"there are {len(self)} samples, asked for number {index}")
        return self.draw(index % len(self))

    @property
    def in_channels(self) -> int:
        """C, the number of features of a point."""
        features = self[0].features
        return 0 if features is None else features.shape[-1]


class Subset(Samples):
    """Some samples of a dataset, in a given order."""

    def __init__(self, whole: Samples, indices: Sequence[int]) -> None:
        chosen = hashlib.sha256(repr(list(indices)).encode()).hexdigest()[:16]
        super().__init__(indices, whole.classes, f"{whole.checksum}/{chosen}")
        self.whole = whole

    def draw(self, index: int, generator: torch.Generator | None = None) -> Sample:
        """Sample ``index`` of the subset."""
        return self.whole.draw(self.entries[index], generator)


def hold_out(samples: Samples, share: float, seed: int = 0) -> tuple[Subset, Subset]:
    """Split a dataset into a training and a validation part, by the seed alone.

    Args:
        samples: the training split.
        share: of the samples that go to validation, in (0, 1); at least one on either side.
        seed: of the choice.
    """
    if not 0 < share < 1 or len(samples) < 2:
        raise ValueError(
            f"a validation part needs a share in (0, 1) and two samples or more, "
            f"got {share!r} of {len(samples)}"
        )
    order = torch.randperm(len(samples), generator=generator_of(seed, "hold out")).tolist()
    count = min(max(1, round(share * len(samples))), len(samples) - 1)
    return Subset(samples, sorted(order[count:])), Subset(samples, sorted(order[:count]))


def take(samples: Samples, count: int, seed: int = 0) -> Subset:
    """``count`` samples chosen by the seed, or all if there are fewer."""
    if count < 1:
        raise ValueError(f"at least one sample is needed, asked for {count}")
    order = torch.randperm(len(samples), generator=generator_of(seed, "take")).tolist()
    return Subset(samples, sorted(order[:count]))


def generator_of(*key: int | str) -> torch.Generator:
    """A generator on the CPU that depends on the key alone, however close two keys are."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def pick_points(sample: Sample, count: int, generator: torch.Generator) -> Sample:
    """``count`` points of a sample: a random choice, or all of them in order and some repeated.

    Repeated points have the label :data:`IGNORE`, so that none counts twice.
    """
    n = len(sample.pos)
    if n > count:
        return sample.select(torch.randperm(n, generator=generator)[:count])
    more = torch.randint(n, (count - n,), generator=generator)
    picked = sample.select(torch.cat((torch.arange(n), more)))
    if picked.label.dim():
        picked.label[n:] = IGNORE
    return picked
