"""The cloud at several scales: nested, permutation-proof, and right about planes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch

from veckm.data import shapes
from veckm.tasks.normals.pyramid import (
    LEVELS,
    NEIGHBORS,
    NORMAL,
    POSITION,
    ROUGHNESS,
    make_pyramid,
)
from veckm.tasks.normals.stats import stats_of


def test_neighbors_are_the_nearest_of_the_cloud() -> None:
    pos = shapes.torus(3000, seed=1).pos
    levels = make_pyramid(pos)
    distance = torch.cdist(pos.double(), pos.double())
    expected = distance.topk(NEIGHBORS, largest=False).values
    found = distance.gather(1, levels.index[:, 0].long())
    torch.testing.assert_close(found.sort(1).values, expected.sort(1).values)


def test_levels_are_nested_and_four_times_sparser() -> None:
    levels = make_pyramid(shapes.sphere(20_000).pos)
    members = [set(levels.index[:, level].flatten().tolist()) for level in range(LEVELS)]
    for fine, coarse in pairwise(members):
        assert coarse <= fine
        assert len(coarse) / len(fine) == pytest.approx(0.25, rel=0.15)


def test_planes_of_a_flat_cloud() -> None:
    generator = torch.Generator().manual_seed(0)
    flat = torch.rand(5000, 3, generator=generator)
    flat[:, 2] = 0.25
    levels = make_pyramid(flat)
    torch.testing.assert_close(levels.table[..., NORMAL][..., 2].abs(), torch.ones(5000, LEVELS))
    assert float(levels.table[..., ROUGHNESS].max()) < 1e-2
    torch.testing.assert_close(levels.table[..., 2], levels.table[:, :1, 2].expand(-1, LEVELS))


def test_members_stand_for_the_points_around_them() -> None:
    """Of a level the means of the clusters: by brute force, and with less noise."""
    clean = shapes.sphere(20_000).pos
    noise = 0.01 * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))
    levels = make_pyramid(clean + noise)
    pos = levels.table[:, 0, POSITION]
    size = float((clean + noise).norm(dim=1).mean() / pos.norm(dim=1).mean())
    spread = []
    for k in range(LEVELS):
        owner = levels.index[:, k, 0].long()
        member = int(owner[0])
        mean = pos[owner == member].mean(0)
        torch.testing.assert_close(levels.table[member, k, POSITION], mean, atol=1e-4, rtol=1e-4)
        members = torch.unique(owner)
        spread.append(float((levels.table[members, k, POSITION].norm(dim=1) * size).std()))
    assert spread[0] == pytest.approx(0.01, rel=0.1)
    assert spread[1] < 0.8 * spread[0]
    assert spread[2] < 0.8 * spread[1]


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_spacing_follows_the_units(scale: float) -> None:
    pos = shapes.sphere(5000).pos.double()
    assert stats_of(pos * scale).spacing == pytest.approx(scale * stats_of(pos).spacing)


def test_order_of_the_points_does_not_matter() -> None:
    pos = shapes.statue(8000).pos
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(pos)))
    shuffled, plain = (make_pyramid(x).table[..., NORMAL] for x in (pos[order], pos))
    torch.testing.assert_close(shuffled.abs(), plain[order].abs(), atol=1e-4, rtol=0)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 40])
def test_few_points(n: int) -> None:
    levels = make_pyramid(shapes.sphere(n).pos)
    assert levels.index.shape == (n, LEVELS, NEIGHBORS)
    assert torch.isfinite(levels.table).all()
