"""The encodings that the normal network reads: exact on the design, turning with the cloud."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import veckm
from veckm import knn
from veckm.data import shapes
from veckm.tasks.normals import encodings, estimate
from veckm.tasks.normals.encodings import DIRECTIONS, RINGS, SHELLS, SIGMA, WEIGHTS
from veckm.tasks.normals.network import NormalNet
from veckm.tasks.normals.stats import stats_of


def unit(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(*shape, 3, generator=generator), dim=-1)


def windows(pos: Tensor) -> tuple[Tensor, np.ndarray]:
    x = stats_of(pos).scaled(pos.double().numpy())
    return encodings.encode_windows(torch.from_numpy(x), torch.arange(len(x))), x


@pytest.mark.parametrize("degree", [2, 4, 6, 8])
def test_the_design_integrates_polynomials_up_to_degree_nine(degree: int) -> None:
    torch.testing.assert_close(DIRECTIONS.norm(dim=1), torch.ones(len(DIRECTIONS)))
    mean = (unit(20) @ DIRECTIONS.t()).pow(degree) @ WEIGHTS
    torch.testing.assert_close(mean, torch.full((20,), 1 / (degree + 1)))


def test_windows_are_the_encodings_of_the_package() -> None:
    found, x = windows(shapes.statue(3000).pos)
    for s, sigma in enumerate(SIGMA):
        for ring, rho in enumerate(SHELLS):
            A = DIRECTIONS.t().double() * rho / sigma
            G = veckm.encode(torch.from_numpy(x), A, beta=1 / sigma, norm="mean", engine="dense")
            parts = torch.complex(found[:, s, 0, ring].double(), found[:, s, 1, ring].double())
            assert float((parts - G).abs().mean()) < encodings.EPS * float(G.abs().mean())


def test_some_rows_of_a_part_are_those_of_the_whole() -> None:
    whole, x = windows(shapes.statue(20_000).pos)
    row = int(np.argmax(x[:, 2]))
    near = np.flatnonzero(np.linalg.norm(x - x[row], axis=1) < encodings.window_reach())
    assert len(near) < 0.8 * len(x)
    part = encodings.encode_windows(
        torch.from_numpy(x[near]), torch.tensor([int((near < row).sum())])
    )
    torch.testing.assert_close(part[(near < row).sum()], whole[row], atol=2e-3, rtol=0)


def test_the_peak_of_a_noisy_plane_is_its_normal() -> None:
    generator = torch.Generator().manual_seed(0)
    flat = torch.rand(4000, 3, generator=generator)
    flat[:, 2] = 0.02 * torch.randn(4000, generator=generator)
    found, _ = windows(flat)
    inside = ((flat[:, :2] - 0.5).abs() < 0.2).all(1)
    top, _ = encodings.peaks(found[inside].float())  # (3, S, B)
    assert float(top[2].abs().median()) > math.cos(math.radians(3))


def test_numbers_stay_and_vectors_turn_when_the_cloud_is_turned() -> None:
    generator = torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(3, 3, generator=generator))[0]
    pos, n = shapes.statue(5000).pos, unit(5000)
    G, _ = windows(pos)
    turned, _ = windows(pos @ turn.t())
    numbers, V = encodings.seen_from(G.float(), n.t().contiguous())
    same, W = encodings.seen_from(turned.float(), (n @ turn.t()).t().contiguous())
    assert float((numbers - same).abs().median()) < 0.02 * float(numbers.abs().mean())
    back = torch.einsum("ij,jvb->ivb", turn.t(), W)
    assert float((back - V).norm(dim=0).median()) < 0.05 * float(V.norm(dim=0).mean())


def test_the_sign_of_the_normal_does_not_matter() -> None:
    G, _ = windows(shapes.statue(2000).pos)
    n = unit(2000).t().contiguous()
    numbers, V = encodings.seen_from(G.float(), n)
    same, W = encodings.seen_from(G.float(), -n)
    torch.testing.assert_close(same, numbers, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(W, -V, atol=1e-5, rtol=1e-4)
    assert V.shape[1] == 2 * 2 * RINGS * len(SIGMA)


def test_expected_errors_are_read_off_the_calibration() -> None:
    net = NormalNet(hidden=4, context=8)
    knots = net.calibration.shape[1]
    at = torch.linspace(-3, 2, knots)
    net.calibration = torch.stack((at, torch.linspace(-1, 1, knots).pow(3)))
    some = torch.linspace(-4, 3, 50)
    expected = np.interp(some.numpy(), *net.calibration.numpy())
    torch.testing.assert_close(net.calibrated(some), torch.from_numpy(expected).float())


def test_normals_orientation_and_curvature_share_their_trees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[int] = []

    class Counted(knn.cKDTree):  # type: ignore[misc]
        def __init__(self, data: np.ndarray, *args: object, **kwargs: object) -> None:
            super().__init__(data, *args, **kwargs)
            built.append(len(data))

    monkeypatch.setattr(knn, "cKDTree", Counted)
    two = torch.cat((shapes.statue(4000).pos, 3 + shapes.torus(4000).pos))
    estimate(two, orient="consistent", curvature=True)
    # One for the spacing, one for each level, and one of few points between separate pieces.
    assert len(built) == 5
    assert min(built) < 300
