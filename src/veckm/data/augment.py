"""The paper's augmentation: random scaling and translation, and optionally dropped points."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from veckm.data.samples import Sample, pick_points


@dataclass(frozen=True)
class Augment:
    r"""Random scaling, then random translation.

    .. math:: x' = s \odot x + t, \qquad s_k \sim U[a, b], \quad t_k \sim U[-c, c]

    Sections 4.2 and 4.3 of the VecKM paper: c = 0.2, a = 0.67, b = 1.5. The paper does not say
    whether the axes are scaled independently; here they are, as is usual on these data.
    """

    translation: float = 0.2  #: c
    scale: tuple[float, float] = (0.67, 1.5)  #: a and b
    per_axis: bool = True  #: one factor per axis; False for one per cloud
    normals: bool = False  #: the first three features are normals, which transform by 1 / s
    #: The largest share of its points that a cloud may lose. The paper's text has none; its
    #: authors' program has 0.875 for objects and moves dropped points to the first one. Here they
    #: are removed, equally many of all clouds of a batch, unless ``keep_dropped``.
    drop: float = 0.0
    keep_dropped: bool = False  #: as the authors: every cloud loses a share of its own

    def __post_init__(self) -> None:
        if self.translation < 0 or not 0 < self.scale[0] <= self.scale[1]:
            raise ValueError(
                f"translation must not be negative and scale a range of positive numbers, "
                f"got {self.translation!r} and {self.scale!r}"
            )
        if not 0 <= self.drop < 1:
            raise ValueError(f"drop is a share of the points, from 0 to below 1, got {self.drop!r}")

    def share(self, generator: torch.Generator) -> float:
        """The share of points that the clouds of a batch lose, from U[0, drop]."""
        if not self.drop or self.keep_dropped:
            return 0.0
        return self.drop * float(torch.rand((), generator=generator))

    def __call__(self, sample: Sample, generator: torch.Generator, share: float = 0.0) -> Sample:
        """The sample without a share of its points, scaled and translated."""
        if share:
            count = len(sample.pos)
            sample = pick_points(sample, count - int(share * count), generator)
        elif self.drop and self.keep_dropped:
            sample = self._moved_to_first(sample, generator)
        low, high = self.scale
        draw = torch.rand(3 if self.per_axis else 1, generator=generator)
        scale = low + (high - low) * draw
        shift = self.translation * (2 * torch.rand(3, generator=generator) - 1)
        features = sample.features
        if self.normals and features is not None:
            normal = torch.nn.functional.normalize(features[:, :3] / scale, dim=-1)
            features = torch.cat((normal, features[:, 3:]), 1)
        return replace(sample, pos=sample.pos * scale + shift, features=features)

    def _moved_to_first(self, sample: Sample, generator: torch.Generator) -> Sample:
        """Each point is, with a probability from U[0, drop], the first point instead."""
        n = len(sample.pos)
        share = self.drop * torch.rand((), generator=generator)
        gone = torch.rand(n, generator=generator) < share
        return sample.select(torch.where(gone, 0, torch.arange(n)))
