"""PCA and jets against slow twins and known surfaces, and on points that say nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from experiments.jets import jet, jet_normals
from torch import Generator, Tensor

from veckm.data import shapes
from veckm.tasks.normals.classical import pca_normals
from veckm.tasks.normals.curvature import frame, graph_curvatures

Estimator = Callable[..., Tensor]
both = pytest.mark.parametrize("estimate", [pca_normals, jet_normals])

UP = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)


def angles(n: Tensor, m: Tensor) -> Tensor:
    """Degrees between lines, exact for small angles too."""
    n, m = n.double(), m.double()
    across = torch.linalg.vector_norm(torch.linalg.cross(n, m), dim=-1)
    return torch.rad2deg(torch.atan2(across, (n * m).sum(-1).abs()))


def unit(n: Tensor) -> bool:
    length = torch.linalg.vector_norm(n.double(), dim=-1)
    return bool(((length - 1).abs() < 1e-6).all())


def nearest(pos: Tensor, i: int, k: int) -> np.ndarray:
    """The k nearest of point i about it, by all distances."""
    d = pos.double().numpy() - pos[i].double().numpy()
    return d[np.argsort((d**2).sum(1), kind="stable")[:k]]


def slow_pca(pos: Tensor, i: int, k: int) -> Tensor:
    d = nearest(pos, i, k)
    return torch.from_numpy(np.linalg.eigh(np.cov(d.T))[1][:, 0].copy())


def slow_jet(pos: Tensor, i: int, k: int) -> tuple[Tensor, Tensor]:
    """z = c0 + c1 u + c2 v + c3 u^2 + c4 u v + c5 v^2 in the PCA frame; curvatures from I^-1 II."""
    d = nearest(pos, i, k)
    axes = np.linalg.eigh(np.cov(d.T))[1]
    z, u, v = (d @ axes).T
    rows = np.stack((np.ones(k), u, v, u**2, u * v, v**2), 1)
    c = np.linalg.lstsq(rows, z, rcond=None)[0]
    normal = axes @ np.array([1.0, -c[1], -c[2]])
    first = np.array([[1 + c[1] ** 2, c[1] * c[2]], [c[1] * c[2], 1 + c[2] ** 2]])
    second = np.array([[2 * c[3], c[4]], [c[4], 2 * c[5]]]) / np.sqrt(1 + c[1] ** 2 + c[2] ** 2)
    curvature = np.sort(-np.linalg.eigvals(np.linalg.solve(first, second)).real)[::-1]
    return torch.from_numpy(normal / np.linalg.norm(normal)), torch.from_numpy(curvature.copy())


def test_pca_is_its_slow_twin() -> None:
    pos = shapes.statue(3000).pos
    fast = pca_normals(pos, 20)
    for i in range(0, 3000, 200):
        assert float(angles(fast[i], slow_pca(pos, i, 20))) < 1e-4


def test_a_jet_is_its_slow_twin() -> None:
    pos = shapes.statue(3000).pos.double()
    normal, curvature = jet(pos, 25)
    for i in range(0, 3000, 200):
        n, expected = slow_jet(pos, i, 25)
        assert float(angles(normal[i], n)) < 1e-6
        # the curvatures go with the sign of the normal
        expected = expected if float(n @ normal[i]) > 0 else -expected.flip(0)
        torch.testing.assert_close(curvature[i], expected, rtol=1e-6, atol=1e-6)


@both
def test_a_plane_in_any_direction_has_its_normal(estimate: Estimator, generator: Generator) -> None:
    for _ in range(10):
        axes = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))[0]
        flat = torch.rand(300, 2, generator=generator, dtype=torch.float64) @ axes[:2]
        assert float(angles(estimate(flat, 12), axes[2].expand(300, 3)).max()) < 1e-6


def test_jets_see_the_curvature_of_a_sphere_and_a_torus() -> None:
    _, curvature = jet(4 * shapes.sphere(10_000).pos, 30)
    size = curvature * curvature[:, :1].sign()  # the sign is that of the normal
    assert float((size - 0.25).abs().median()) < 2e-3
    pos = shapes.torus(20_000).pos
    gaussian = jet(pos, 30)[1].prod(-1)
    cos = (pos[:, :2].norm(dim=-1) - 0.7) / 0.3
    expected = cos / (0.3 * (0.7 + 0.3 * cos))
    assert float((gaussian - expected).abs().median()) < 0.1
    assert float(expected.abs().median()) > 2


def test_the_curvatures_of_a_jet_are_sorted_and_go_with_its_normal() -> None:
    pos = shapes.sphere(2000).pos
    normal, curvature = jet(pos, 30)
    outward = (normal * pos).sum(-1) > 0
    assert 0 < int(outward.sum()) < 2000
    assert bool((curvature[:, 0] >= curvature[:, 1]).all())
    assert torch.equal(curvature.sum(-1) > 0, outward)


def test_a_jet_of_higher_order_is_closer_on_a_clean_surface() -> None:
    shape = shapes.statue(10_000)
    errors = [float(angles(jet_normals(shape.pos, 60, o), shape.normal).mean()) for o in (1, 2, 4)]
    assert errors[2] < 0.3 * errors[1] < 0.3 * errors[0]
    assert not bool(jet(shape.pos, 60, 1)[1].any())


def test_noise_wants_more_neighbors_and_a_clean_cloud_fewer(generator: Generator) -> None:
    clean, at = shapes.statue(20_000), torch.arange(0, 20_000, 20)
    noise = torch.randn(clean.pos.shape, generator=generator)
    noisy = clean.pos + 0.01 * noise
    for pos, better, worse in ((clean.pos, 12, 200), (noisy, 200, 12)):
        good, bad = (angles(pca_normals(pos, k, at), clean.normal[at]) for k in (better, worse))
        assert float(good.mean()) < 0.6 * float(bad.mean())


@both
def test_a_subset_of_the_rows_gets_the_same_answers(estimate: Estimator) -> None:
    pos = shapes.box(5000).pos
    at = torch.tensor([4999, 3, 3, 17, 2500])
    assert float(angles(estimate(pos, 20, at=at), estimate(pos, 20)[at]).max()) < 1e-6
    assert estimate(pos, 20, at=at[:0]).shape == (0, 3)


@both
def test_more_neighbors_than_points_are_all_points(estimate: Estimator) -> None:
    pos = shapes.sphere(50).pos
    assert float(angles(estimate(pos, 1000), estimate(pos, 50)).max()) == 0


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_normals_are_unit_and_of_the_dtype_of_the_points(
    estimate: Estimator, dtype: torch.dtype
) -> None:
    pos = shapes.lidar(5000).pos.to(dtype)
    normal = estimate(pos, 15)
    assert normal.dtype == dtype
    assert unit(normal)


@both
def test_moving_scaling_and_shuffling_the_cloud_change_nothing(
    estimate: Estimator, generator: Generator
) -> None:
    pos = shapes.statue(5000).pos.double()
    normal = estimate(pos, 20)
    assert float(angles(estimate(pos + 1e6, 20), normal).max()) < 1e-4
    for scale in (1e-3, 1e3, 1e-12, 1e12):
        assert float(angles(estimate(scale * pos, 20), normal).max()) < 1e-6
    order = torch.randperm(5000, generator=generator)
    assert float(angles(estimate(pos[order], 20), normal[order]).max()) < 1e-6


@both
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 6, 7])
def test_a_handful_of_points_gets_unit_normals(estimate: Estimator, n: int) -> None:
    pos = shapes.sphere(8).pos[:n]
    normal = estimate(pos, 10)
    assert normal.shape == (n, 3)
    assert unit(normal)


@both
def test_one_place_faces_up(estimate: Estimator) -> None:
    for pos in (torch.rand(1, 3), torch.full((40, 3), 0.1), torch.full((40, 3), 1e6)):
        torch.testing.assert_close(estimate(pos, 10), UP.float().expand(len(pos), 3))


@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_a_line_has_the_normal_across_it_nearest_to_up(
    estimate: Estimator, dtype: torch.dtype, offset: float
) -> None:
    for line in ([1.0, 0.0, 0.0], [1.0, 2.0, 3.0], [-3.0, 1.0, 0.2], [0.0, 1.0, 1.0]):
        along = torch.nn.functional.normalize(torch.tensor(line, dtype=torch.float64), dim=0)
        pos = (offset + torch.linspace(0, 10, 100, dtype=torch.float64)[:, None] * along).to(dtype)
        expected = torch.nn.functional.normalize(UP - along[2] * along, dim=0)
        for k in (2, 10, 100):
            off = (estimate(pos, k).double() - expected).norm(dim=-1)
            # far from the origin float32 knows the direction of few points only roughly
            assert float(off.max()) < (1e-5 if offset == 0 or dtype == torch.float64 else 5e-3)


@both
def test_a_vertical_line_faces_along_x(estimate: Estimator) -> None:
    pos = torch.rand(1, 3) + torch.linspace(0, 1, 50)[:, None] * UP.float()
    torch.testing.assert_close(estimate(pos, 10), torch.eye(3)[:1].expand(50, 3))


@both
def test_duplicates_only_make_the_neighborhood_smaller(estimate: Estimator) -> None:
    shape = shapes.sphere(2000)
    normal = estimate(shape.pos.repeat(3, 1), 60)
    assert float(angles(normal, shape.normal.repeat(3, 1)).mean()) < 3
    hidden = estimate(shape.pos.repeat_interleave(20, 0), 10)  # all neighbors in one place
    torch.testing.assert_close(hidden, UP.float().expand(40_000, 3))


def test_a_frame_is_orthonormal_and_right_handed(generator: Generator) -> None:
    n = torch.randn(1000, 3, generator=generator, dtype=torch.float64)
    n = torch.nn.functional.normalize(torch.cat((n, torch.eye(3).double(), -torch.eye(3))), dim=-1)
    axes = frame(n)
    eye = torch.eye(3, dtype=torch.float64).expand_as(axes)
    torch.testing.assert_close(axes.mT @ axes, eye)
    torch.testing.assert_close(torch.linalg.det(axes), eye[:, 0, 0])
    assert torch.equal(axes[:, :, 2], n)


def test_a_sphere_bends_alike_wherever_it_is_looked_at() -> None:
    u, v = (0.9 * torch.rand(2, 500, generator=Generator().manual_seed(0)).double() - 0.45) * 2
    z = (4 - u * u - v * v).sqrt()  # a sphere of radius 2
    first = torch.stack((-u / z, -v / z), -1)
    second = torch.stack((-(z * z + u * u) / z**3, -u * v / z**3, -(z * z + v * v) / z**3), -1)
    torch.testing.assert_close(graph_curvatures(first, second), torch.full((500, 2), 0.5).double())


def test_a_slope_bends_less_than_its_second_derivative() -> None:
    # z = u + u^2: curvature 2 / (1 + 1)^(3/2), towards the normal
    k = graph_curvatures(torch.tensor([[1.0, 0.0]]), torch.tensor([[2.0, 0.0, 0.0]]))
    torch.testing.assert_close(k, torch.tensor([[0.0, -(2**-0.5)]]))


@both
def test_bad_input_says_what_was_got(estimate: Estimator) -> None:
    pos = shapes.sphere(10).pos
    bad = pos.clone()
    bad[3, 1] = torch.nan
    with pytest.raises(ValueError, match="NaN or infinite values in 1 of 10 rows"):
        estimate(bad, 5)
    with pytest.raises(ValueError, match=r"must have shape \(N, 3\).*got \(10, 2\)"):
        estimate(pos[:, :2], 5)
    with pytest.raises(ValueError, match=r"must have shape \(N, 3\).*got \(1, 10, 3\)"):
        estimate(pos[None], 5)
    with pytest.raises(ValueError, match="number of neighbors, must be at least 1, got 0"):
        estimate(pos, 0)
    with pytest.raises(TypeError, match=r"number of neighbors, must be a whole number, got 2\.5"):
        estimate(pos, 2.5)
    with pytest.raises(IndexError, match="index 10 is out of bounds"):
        estimate(pos, 5, at=torch.tensor([10, 4]))


def test_an_order_beyond_four_is_a_clear_error() -> None:
    for order in (0, 5):
        with pytest.raises(ValueError, match=f"1 to 4, got {order}"):
            jet_normals(shapes.sphere(100).pos, 20, order)
