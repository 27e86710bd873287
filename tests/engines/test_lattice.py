"""The lattice: the quadrature is the Gaussian within eps, and no node within reach is missed."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from clouds import CLOUDS
from torch import Generator, Tensor

from veckm.engines.blocks import Blocks, octree
from veckm.engines.curve import Curve
from veckm.engines.lattice import Lattice, candidates, number, reached_nodes

EPSILONS = [0.5, 0.2, 5e-2, 1e-2, 1e-4, 1e-7]


def nodes_near(lattice: Lattice, in_dim: int, reach: float) -> Tensor:
    """All nodes (k + p / 2) a of a cube about the origin, by counting."""
    most = math.ceil(reach / lattice.spacing) + 1
    steps = itertools.product(range(-most, most + 1), repeat=in_dim)
    k = torch.tensor(list(steps), dtype=torch.float64)
    return torch.cat([k, k + 0.5]) * lattice.spacing


def distance(x: Tensor, y: Tensor) -> Tensor:
    """Pairwise and by differences: cdist's matrix product would lose half of the digits."""
    return torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")


def single(pos: Tensor, cell: float = 1.0) -> Blocks:
    def price(sides: Tensor, count: Tensor) -> Tensor:
        return torch.ones_like(count, dtype=torch.float64)

    cloud = torch.zeros(len(pos), dtype=torch.int64)
    return octree(Curve.through(pos, cloud, cell), cell, price)


@pytest.mark.parametrize("in_dim", [1, 2, 3, 4])
@pytest.mark.parametrize("eps", [5e-2, 1e-2, 1e-3])
def test_the_quadrature_is_the_gaussian_within_eps(
    in_dim: int, eps: float, generator: Generator
) -> None:
    beta = 1.7
    lattice = Lattice.for_accuracy(beta, eps, in_dim)
    nodes = nodes_near(lattice, in_dim, 2.2 + 3 / beta if in_dim < 4 else 1.2 + 2 / beta)
    spread = 1.0 if in_dim < 4 else 0.4
    x, y = (spread * CLOUDS["volume"](40, in_dim, generator) for _ in range(2))
    s, t = (torch.exp(-(beta**2) * distance(points, nodes).square()) for points in (x, y))
    kernel = torch.exp(-(beta**2) * distance(x, y).square() / 2)
    error = lattice.scale * s @ t.mT / kernel - 1
    assert float(error.square().mean().sqrt()) <= eps  # a root mean square over places
    assert float(error.abs().max()) <= 4 * eps


@pytest.mark.parametrize("in_dim", [1, 2, 3, 4])
def test_the_density_is_that_of_the_nodes(in_dim: int) -> None:
    lattice = Lattice.for_accuracy(1.0, 1e-2, in_dim)
    nodes = nodes_near(lattice, in_dim, 4 * lattice.spacing)
    inside = (nodes > -3 * lattice.spacing) & (nodes <= 3 * lattice.spacing)
    count = int(inside.all(1).sum())
    assert count / (6 * lattice.spacing) ** in_dim == pytest.approx(lattice.density)


@pytest.mark.parametrize("in_dim", [1, 2, 3, 4])
def test_a_better_accuracy_has_a_finer_lattice_and_a_longer_reach(in_dim: int) -> None:
    made = [Lattice.for_accuracy(2.0, eps, in_dim) for eps in EPSILONS if eps < 0.1]
    for coarse, fine in itertools.pairwise(made):
        assert fine.spacing < coarse.spacing
        assert fine.reach > coarse.reach


@pytest.mark.parametrize("in_dim", [1, 2, 3])
@pytest.mark.parametrize("eps", EPSILONS)
def test_no_point_is_out_of_reach_of_all_nodes(
    in_dim: int, eps: float, generator: Generator
) -> None:
    lattice = Lattice.for_accuracy(1.0, eps, in_dim)
    pos = 3 * lattice.spacing * CLOUDS["volume"](2000, in_dim, generator)
    nodes = nodes_near(lattice, in_dim, 3 * lattice.spacing)
    nearest = distance(pos, nodes).amin(1)
    assert float(nearest.max()) <= lattice.reach


@pytest.mark.parametrize("scale", [0.5, 2.0, 1000.0])
def test_the_lattice_scales_with_beta(scale: float) -> None:
    one, other = (Lattice.for_accuracy(beta, 1e-2, 3) for beta in (1.0, scale))
    assert other.spacing * scale == pytest.approx(one.spacing)
    assert other.reach * scale == pytest.approx(one.reach)
    assert other.scale == pytest.approx(one.scale)


@pytest.mark.parametrize("in_dim", [1, 2, 3])
def test_a_block_gets_every_node_within_reach_of_its_points_and_each_once(
    in_dim: int, generator: Generator
) -> None:
    pos = 0.4 * CLOUDS["surface"](30, in_dim, generator)
    blocks, lattice = single(pos, 10.0), Lattice.for_accuracy(3.0, 1e-2, in_dim)
    nodes = reached_nodes(blocks, lattice)
    assert len(blocks.count) == 1
    got = nodes.local.double() + blocks.center
    every = nodes_near(lattice, in_dim, 0.5 + lattice.reach)
    needed = every[(distance(every, pos) <= lattice.reach).any(1)]
    assert float(distance(needed, got).amin(1).max()) < 1e-12
    apart = distance(got, got) + 10 * torch.eye(len(got))
    assert float(apart.min()) >= 0.49 * lattice.spacing
    assert nodes.count.tolist() == [len(got)]
    assert len(got) <= candidates(blocks, lattice)


def test_the_keys_of_a_node_are_its_cloud_and_twice_its_coordinates(generator: Generator) -> None:
    pos, lattice = CLOUDS["volume"](60, 3, generator), Lattice.for_accuracy(4.0, 1e-2, 3)
    of = torch.arange(3).repeat_interleave(20)

    def price(sides: Tensor, count: Tensor) -> Tensor:
        return 1.0 + count.double().square()

    blocks = octree(Curve.through(pos, of, lattice.spacing), lattice.spacing, price)
    nodes = reached_nodes(blocks, lattice)
    assert torch.equal(nodes.key[:, 0], blocks.cloud[nodes.block])
    where = nodes.local.double() + blocks.center[nodes.block]
    torch.testing.assert_close(nodes.key[:, 1:].double() * (lattice.spacing / 2), where)
    parity = nodes.key[:, 1:] % 2
    assert torch.equal(parity, parity[:, :1].expand_as(parity))  # both grids, nothing between


@pytest.mark.parametrize("far", [1, 10**4, 10**13])
def test_numbering_gives_equal_keys_equal_rows_and_no_gaps(far: int, generator: Generator) -> None:
    keys = torch.randint(-4, 5, (500, 3), generator=generator) * far
    rows, count = number(keys)
    distinct = {tuple(key) for key in keys.tolist()}
    assert count == len(distinct)
    assert set(rows.tolist()) == set(range(count))
    pairs = {(tuple(key), row) for key, row in zip(keys.tolist(), rows.tolist(), strict=True)}
    assert len(pairs) == count


def test_no_keys_have_no_rows() -> None:
    rows, count = number(torch.zeros(0, 4, dtype=torch.int64))
    assert (len(rows), count) == (0, 0)


def test_more_nodes_than_can_be_numbered_say_what_to_do() -> None:
    keys = 10**4 * torch.arange(6000)[:, None].expand(-1, 5)  # as many layers along each axis
    with pytest.raises(ValueError, match=r"radius is too small for the extent .* Use engine="):
        number(keys)
