"""Normals as users call them: right, the same in any units and order, and defined everywhere."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import veckm
from veckm.data import shapes
from veckm.tasks.normals import estimate, estimate_normals
from veckm.tasks.normals.evaluate import angle_error, rmse

METHODS = ("network", "best", "moments")


def error(a: Tensor, b: Tensor) -> float:
    return float(rmse(angle_error(a, b)))


@pytest.fixture(scope="module")
def scan() -> shapes.Shape:
    return shapes.statue(8000, seed=3)


@pytest.fixture(scope="module")
def normals(scan: shapes.Shape) -> Tensor:
    return estimate_normals(scan.pos.double())


@pytest.mark.parametrize(
    ("name", "worst"),
    [
        ("sphere", {"network": 3.0, "moments": 3.0}),
        ("torus", {"network": 4.0, "moments": 4.0}),
        ("cylinder", {"network": 9.0, "moments": 13.0}),  # windows round its edges
    ],
)
@pytest.mark.parametrize("method", METHODS)
def test_right_on_known_shapes(method: str, name: str, worst: dict[str, float]) -> None:
    shape = getattr(shapes, name)(6000)
    found = estimate_normals(shape.pos, method=method)  # type: ignore[arg-type]
    torch.testing.assert_close(found.norm(dim=-1), torch.ones(6000))
    assert error(found, shape.normal) < worst["moments" if method == "moments" else "network"]


def test_network_keeps_edges_sharp() -> None:
    box = shapes.box(10_000)
    assert error(estimate_normals(box.pos), box.normal) < 0.8 * error(
        estimate_normals(box.pos, method="moments"), box.normal
    )


def test_the_mean_of_two_estimates_is_better_than_either(scan: shapes.Shape) -> None:
    noise = 0.01 * torch.randn(scan.pos.shape, generator=torch.Generator().manual_seed(0))
    for pos in (scan.pos, scan.pos + noise):
        one, best = (estimate(pos, method=method) for method in ("network", "best"))  # type: ignore[arg-type]
        assert error(best.normal, scan.normal) < 0.995 * error(one.normal, scan.normal)
        assert 0.9 < float(best.error.mean() / one.error.mean()) < 1.1


@pytest.mark.parametrize(("scale", "shift"), [(1e-3, 0.0), (1e3, 0.0), (1.0, 1e6), (1.0, 0.0)])
def test_units_and_place_do_not_matter(
    scan: shapes.Shape, normals: Tensor, scale: float, shift: float
) -> None:
    moved = scan.pos.double() * scale + shift
    assert error(estimate_normals(moved), normals) < 0.2


def test_order_does_not_matter(scan: shapes.Shape, normals: Tensor) -> None:
    order = torch.randperm(len(scan.pos), generator=torch.Generator().manual_seed(0))
    assert error(estimate_normals(scan.pos[order].double()), normals[order]) < 0.2


def test_turning_turns_the_normals(scan: shapes.Shape, normals: Tensor) -> None:
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))[0]
    assert error(estimate_normals(scan.pos.double() @ turn.t()), normals @ turn.t()) < 2.0


@pytest.mark.parametrize(("level", "less"), [(0.005, 0.96), (0.01, 0.985), (0.02, 0.985)])
def test_expected_error_in_even_noise(scan: shapes.Shape, level: float, less: float) -> None:
    """Chance makes most of the error there, which nobody can expect: the rest has to be told."""
    noise = torch.randn(scan.pos.shape, generator=torch.Generator().manual_seed(0))
    found = estimate(scan.pos + level * noise)
    wrong = angle_error(found.normal, scan.normal)
    sure = found.error <= found.error.quantile(0.8)
    assert float(rmse(wrong[sure])) < less * float(rmse(wrong))
    assert float(found.error.mean()) == pytest.approx(float(wrong.mean()), rel=0.5)


def test_expected_error_tells_good_points_from_bad() -> None:
    """On a noisy box the bad points are at the edges: without them the error falls by a quarter."""
    box = shapes.box(8000, seed=3)
    noise = torch.randn(box.pos.shape, generator=torch.Generator().manual_seed(0))
    found = estimate(box.pos + 0.005 * noise)
    wrong = angle_error(found.normal, box.normal)
    sure = found.error <= found.error.quantile(0.8)
    assert float(rmse(wrong[sure])) < 0.75 * float(rmse(wrong))
    assert 0.5 < float(found.error.mean() / wrong.mean()) < 2


def test_batches_are_clouds_of_their_own() -> None:
    a, b = shapes.sphere(1000).pos, shapes.torus(700).pos
    batch = torch.tensor([0] * 1000 + [4] * 700)
    flat = estimate_normals(torch.cat([a, b]), batch=batch)
    torch.testing.assert_close(flat, torch.cat([estimate_normals(a), estimate_normals(b)]))
    stacked = estimate_normals(torch.stack([a, 2 * a]))
    assert stacked.shape == (2, 1000, 3)


def test_orientation_and_curvature() -> None:
    sphere = shapes.sphere(5000)
    out = estimate(sphere.pos, orient="consistent", curvature=True)
    assert float((out.normal * sphere.normal).sum(-1).min()) > 0.5
    assert float(out.mean_curvature.median()) == pytest.approx(1.0, rel=0.1)
    assert float(out.gaussian_curvature.median()) == pytest.approx(1.0, rel=0.2)
    up = estimate_normals(sphere.pos, orient="up")
    assert float(up[:, 2].min()) >= 0
    eye = torch.tensor([0.0, 0.0, 5.0])
    seen = estimate_normals(sphere.pos, orient="viewpoint", viewpoint=eye)
    assert float(((eye - sphere.pos) * seen).sum(-1).min()) >= 0


def test_a_scanner_may_have_a_place_for_each_point() -> None:
    sphere = shapes.sphere(2000)
    eyes = 3 * sphere.normal * torch.where(sphere.pos[:, :1] > 0, 1.0, -1.0)
    pos, batch = torch.cat([sphere.pos, sphere.pos]), torch.arange(2).repeat_interleave(2000)
    seen = estimate_normals(
        pos, batch=batch, orient="viewpoint", viewpoint=torch.cat([eyes, -eyes])
    )
    toward = torch.cat([eyes - sphere.pos, -eyes - sphere.pos])
    assert float((toward * seen).sum(-1).min()) >= 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 17])
def test_few_points(method: str, n: int) -> None:
    out = estimate(shapes.sphere(max(n, 1)).pos[:n], method=method)  # type: ignore[arg-type]
    assert out.normal.shape == (n, 3)
    torch.testing.assert_close(out.normal.norm(dim=-1), torch.ones(n))
    assert torch.isfinite(out.error).all()
    if 0 < n < 3:
        assert (out.error == 60).all()


@pytest.mark.parametrize("method", METHODS)
def test_points_on_a_line_and_duplicates(method: str) -> None:
    line = torch.linspace(0, 1, 200)[:, None] * torch.tensor([[1.0, 2.0, 0.5]])
    found = estimate(line, method=method)  # type: ignore[arg-type]
    out = found.normal
    torch.testing.assert_close(out.norm(dim=-1), torch.ones(200))
    assert (found.error == 60).all()
    along = (out * torch.tensor([1.0, 2.0, 0.5])).sum(-1).abs()
    assert float(along.max()) < 0.05
    same = estimate_normals(torch.ones(50, 3), method=method)  # type: ignore[arg-type]
    torch.testing.assert_close(same.norm(dim=-1), torch.ones(50))
    twice = shapes.sphere(2000).pos.repeat(2, 1)
    doubled = estimate_normals(twice, method=method)  # type: ignore[arg-type]
    assert error(doubled, torch.nn.functional.normalize(twice, dim=-1)) < 8


@pytest.mark.parametrize("method", METHODS)
def test_a_thin_cloud_with_a_crowd_in_it(method: str) -> None:
    """The spacing is that of the crowd: windows of its size hold nobody elsewhere."""
    crowd = 1e-3 * shapes.sphere(2000).pos.double()
    plane = torch.rand(500, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plane[:, 2] = 5.0
    found = estimate_normals(torch.cat([crowd, 10 * plane]), method=method)  # type: ignore[arg-type]
    torch.testing.assert_close(found.norm(dim=-1), torch.ones(2500, dtype=torch.float64))
    assert error(found[:2000], crowd / crowd.norm(dim=1, keepdim=True)) < 8


@pytest.mark.parametrize(
    ("pos", "options", "words"),
    [
        (torch.rand(10, 2), {}, "3 coordinates"),
        (torch.rand(10), {}, "shape"),
        (torch.full((10, 3), torch.nan), {}, "NaN"),
        (torch.zeros(10, 3, dtype=torch.int64), {}, "dtype"),
        (torch.rand(10, 3), {"method": "magic"}, "method"),
        (torch.rand(10, 3), {"orient": "viewpoint"}, "viewpoint"),
        (torch.rand(10, 3), {"orient": "sideways"}, "sideways"),
        (torch.rand(10, 3), {"viewpoint": torch.zeros(3)}, "viewpoint"),
        (torch.rand(10, 3), {"batch": torch.tensor([1, 0] * 5)}, "not sorted"),
        (torch.rand(2, 10, 3), {"batch": torch.zeros(10)}, "batch"),
    ],
)
def test_bad_input_is_said(pos: Tensor, options: dict[str, object], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        estimate_normals(pos, **options)  # type: ignore[arg-type]


def test_public_name() -> None:
    assert veckm.estimate_normals is estimate_normals
