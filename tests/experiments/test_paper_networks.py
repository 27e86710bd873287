"""The paper's network and its rivals: each against its formula, and all in the one frame."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from experiments.table1.baselines import DGCNN, KPConv, PointNet, spread_points
from experiments.table1.paper import (
    DenseNormalNet,
    LocalEncoder,
    VecKMEncoder,
    paper_network,
    unit_ball,
    unoriented_loss,
)
from torch import Tensor

from veckm.data.sampling import make_generator, rotation
from veckm.data.shapes import sphere, statue
from veckm.models.layers import seeded
from veckm.nn import ComplexLinear

N = 300

ENCODERS: dict[str, Callable[[], LocalEncoder]] = {
    "veckm": lambda: VecKMEncoder(hidden=16, dim=32),
    "pointnet": lambda: PointNet(20, (16, 32), chunk=64),
    "kpconv": lambda: KPConv(8, 40, 0.5, (16, 32)),
    "dgcnn": lambda: DGCNN(10, N, (8, 8, 16), 32),
}

each = pytest.mark.parametrize("name", ENCODERS)


def cloud(n: int = N) -> Tensor:
    return unit_ball(statue(n).pos)


def network(name: str) -> DenseNormalNet:
    """A small one of the kind, with running statistics that are not those of a fresh start."""

    def make() -> DenseNormalNet:
        encoder = ENCODERS[name]()
        return DenseNormalNet(encoder, encoder.dim, () if name == "veckm" else (16,))

    net = seeded(make, 3)
    with torch.no_grad():
        net.train()(sphere(200).pos)
    return net.eval()


@each
@torch.no_grad()
def test_an_encoder_gives_every_point_one_real_vector(name: str) -> None:
    encoder = network(name).encoder
    out = encoder(cloud())
    assert out.shape == (N, encoder.dim)
    assert out.dtype == torch.float32
    assert float(out.std(0).max()) > 1e-3


@each
@torch.no_grad()
def test_rows_asked_for_are_rows_of_the_whole(name: str) -> None:
    net, pos = network(name), cloud()
    at = torch.tensor([7, 299, 0, 31])
    torch.testing.assert_close(net(pos, at), net(pos)[at], rtol=1e-3, atol=1e-3)


@each
@torch.no_grad()
def test_normals_have_length_one_and_follow_the_points_when_permuted(name: str) -> None:
    net, pos = network(name), cloud()
    normal = net(pos)
    torch.testing.assert_close(normal.norm(dim=-1), torch.ones(N))
    order = torch.randperm(N, generator=make_generator(0))
    torch.testing.assert_close(net(pos[order]), normal[order], rtol=1e-3, atol=2e-3)


@each
@torch.no_grad()
def test_units_and_place_of_the_cloud_do_not_matter(name: str) -> None:
    net, pos = network(name), cloud().double()
    torch.testing.assert_close(net(1000 * pos + 5e4), net(pos), rtol=1e-3, atol=5e-3)


@each
def test_training_lowers_the_loss(name: str) -> None:
    net, shape = network(name).train(), sphere(200)
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    losses = []
    for _ in range(25):
        loss = unoriented_loss(net(shape.pos), shape.normal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert min(losses[-5:]) < 0.6 * losses[0]


@each
def test_gather_and_features_are_the_encoder_in_two_steps(name: str) -> None:
    encoder, pos = network(name).encoder, cloud()
    assert not any(value.requires_grad for value in [encoder.gather(pos, torch.arange(N))])
    at = torch.arange(40, 90)
    split = encoder.features(encoder.gather(pos, at))[: len(at)]
    torch.testing.assert_close(split, encoder(pos, at), rtol=1e-3, atol=1e-3)


# --- the frame


def test_the_loss_does_not_see_the_direction() -> None:
    n = torch.tensor([[1.0, 0, 0], [0, 1.0, 0]])
    assert float(unoriented_loss(n, -n)) == 0
    assert float(unoriented_loss(n, n.flip(0))) == 1
    half = torch.tensor([[0.6, 0.8, 0], [0, -0.6, 0.8]])
    assert float(unoriented_loss(n, half)) == pytest.approx(0.4)


def test_the_unit_ball_is_about_the_mean_with_the_farthest_point_at_one() -> None:
    pos = torch.tensor([[1.0, 1, 1], [3, 1, 1], [2, 4, 1]], dtype=torch.float64)
    ball = unit_ball(pos)
    assert ball.dtype == torch.float32
    torch.testing.assert_close(ball.mean(0), torch.zeros(3), atol=1e-7, rtol=0)
    assert float(ball.norm(dim=-1).max()) == pytest.approx(1)
    assert torch.equal(unit_ball(torch.ones(4, 3)), torch.zeros(4, 3))


@pytest.mark.parametrize("shape", [(0, 3), (5, 2), (2, 5, 3)])
def test_a_cloud_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"pos must be one cloud of shape \(N, 3\)"):
        unit_ball(torch.zeros(shape))


def test_the_seed_decides_the_weights_and_the_global_generator_is_kept() -> None:
    before = torch.get_rng_state()
    first, again, other = (seeded(paper_network, seed) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    for (name, a), b, c in zip(
        first.named_parameters(), again.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(a, b)
        assert "bias" in name or not torch.equal(a, c)


# --- VecKM


def test_the_paper_network_has_the_sizes_of_the_paper() -> None:
    net = paper_network()
    assert isinstance(net.encoder, VecKMEncoder)
    encoding = net.encoder.encoding
    assert encoding.alpha == (60.0, 60.0)
    assert encoding.beta == (10.0, 20.0)
    assert encoding.A.shape == (2, 3, 256)
    shapes = [tuple(p.shape) for p in net.parameters() if p.numel() > 300]
    assert shapes == [(128, 512, 2), (128, 128, 2), (3, 256)]  # real and imaginary parts


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_the_number_of_layers_counts_the_head(layers: int) -> None:
    matrices = [p for p in paper_network(layers).parameters() if p.dim() == 2]
    assert len(matrices) == layers


def test_no_layer_at_all_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        VecKMEncoder(0)


@torch.no_grad()
def test_the_head_can_say_what_the_last_complex_layer_of_the_authors_says() -> None:
    """Re y + Im y of y = W z + b is a real linear map of (Re z, Im z)."""
    net, pos = network("veckm"), cloud()
    last = ComplexLinear(16, 3)
    last.weight.copy_(torch.randn(3, 16, dtype=torch.complex64, generator=make_generator(0)))
    linear = net.head[-1]
    re, im = last.weight.real, last.weight.imag
    linear.weight.copy_(torch.stack((re + im, re - im), dim=-1).flatten(1))
    linear.bias.zero_()
    features = net.encoder(pos)
    y = last(torch.view_as_complex(features.view(N, 16, 2)))
    torch.testing.assert_close(net.head(features), y.real + y.imag, rtol=1e-4, atol=1e-4)


# --- PointNet


@torch.no_grad()
def test_pointnet_is_the_maximum_over_the_nearest_points() -> None:
    encoder, pos = network("pointnet").encoder, cloud()
    near = torch.cdist(pos, pos).topk(20, largest=False).indices
    expected = torch.stack([encoder.layers(pos[near[i]] - pos[i]).amax(0) for i in range(0, N, 30)])
    torch.testing.assert_close(encoder(pos)[::30], expected, rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_a_cloud_of_fewer_than_k_points_is_taken_whole() -> None:
    for encoder in (PointNet(500, (8, 8)), KPConv(4, 500, 0.5, (8, 8)), DGCNN(500, 50, (8, 8), 8)):
        assert encoder.eval()(cloud(30)).isfinite().all()


# --- KPConv


def test_kernel_points_are_spread_over_the_ball_with_one_in_the_middle() -> None:
    points = spread_points(32)
    assert torch.equal(points[0], torch.zeros(3))
    radius = points.norm(dim=-1)
    assert 0.6 < float(radius.max()) < 1
    apart = torch.cdist(points, points).fill_diagonal_(torch.inf).amin(1)
    assert float(apart.min()) > 0.6 * float(apart.max())
    assert float(points.mean(0).norm()) < 0.1
    assert torch.equal(points, spread_points(32))


@torch.no_grad()
def test_kpconv_gathers_the_sums_of_its_formula() -> None:
    encoder, pos = KPConv(8, 40, 0.5), cloud()
    near = torch.cdist(pos, pos).topk(40, largest=False).indices
    got = encoder.gather(pos, torch.tensor([11]))[0].view(8, 4)
    for p, kernel in enumerate(encoder.kernel):
        total = torch.zeros(4)
        for j in near[11]:
            z = (pos[j] - pos[11]) / 0.5
            weight = max(0.0, 1 - float((z - kernel).norm()) / encoder.sigma)
            total += weight * torch.cat((torch.ones(1), z)) / 40
        torch.testing.assert_close(got[p], total, rtol=1e-3, atol=1e-4)
    assert float(got.abs().max()) > 0


# --- DGCNN


@torch.no_grad()
def test_dgcnn_finds_its_graph_anew_before_each_convolution() -> None:
    encoder, x = network("dgcnn").encoder, cloud()
    assert isinstance(encoder, DGCNN)
    expected, outputs = x, []
    for edge in encoder.edges:
        near = torch.cdist(expected, expected).topk(10, largest=False).indices
        theta, phi = edge.linear.weight.chunk(2, dim=1)
        edges = (expected[near] - expected[:, None]) @ theta.T + (expected @ phi.T)[:, None]
        expected = torch.nn.functional.leaky_relu(edge.norm(edges), 0.2).amax(1)
        outputs.append(expected)
    got = encoder.features(x)
    torch.testing.assert_close(got, encoder.last(torch.cat(outputs, -1)), rtol=1e-3, atol=1e-4)


@torch.no_grad()
def test_dgcnn_answers_a_large_cloud_graph_by_graph() -> None:
    encoder, pos = DGCNN(10, 100, (8, 8), 16).eval(), cloud()
    out = encoder(pos)
    assert out.shape == (N, 16)
    assert float(out.std(0).min()) > 0
    # Ten rows are filled up to one graph of a hundred, in which they stand first.
    graph = encoder.gather(pos, torch.arange(10))
    assert graph.shape == (100, 3)
    assert torch.equal(graph[:10], pos[:10])
    assert len(graph.unique(dim=0)) == 100


@pytest.mark.parametrize("make", [lambda: PointNet(0), lambda: KPConv(1), lambda: DGCNN(points=0)])
def test_impossible_sizes_are_refused(make: Callable[[], LocalEncoder]) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        make()


@torch.no_grad()
def test_a_turned_cloud_is_another_input_for_the_paper_network() -> None:
    """Nothing in it is equivariant: this is why it trains on turned clouds."""
    net, pos = network("veckm"), cloud()
    turn = rotation(make_generator(0)).float()
    cosine = (net(pos @ turn.T) * (net(pos) @ turn.T)).sum(-1).abs()
    assert float(cosine.mean()) < 0.95
