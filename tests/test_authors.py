"""The frequencies of networks trained with the authors' code, as the guide says to load them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from clouds import surface
from scipy.stats import norm
from tolerance import mean_error
from torch import Generator, Tensor, nn

from veckm import VecKM
from veckm.frequencies import authors_standard_normal

#: Theirs is float32 throughout, and divides by exp(i x A) where ours works with offsets.
CLOSE = 1e-5


def shuffled_quantiles(columns: int, random: np.random.RandomState) -> Tensor:
    """Phi^-1(k / (columns + 1)), k = 1 .. columns, in random order."""
    values = norm.ppf(np.linspace(0, 1, columns + 2)[1:-1])
    random.shuffle(values)
    return torch.from_numpy(values).float()


class AppendixB(nn.Module):
    """Appendix B of the paper: matrices that scale as alpha and beta, points as they are.

    G = (E_B (E_B^T E_A)) / E_A,   E_A = exp(i x A),   E_B = [cos(x B), sin(x B)],   |G| = sqrt(d)
    """

    def __init__(self, d: int, alpha: float, beta: float, p: int) -> None:
        super().__init__()
        random = np.random.RandomState(4)
        A = alpha * torch.stack([shuffled_quantiles(d, random) for _ in range(3)])
        B = beta * torch.stack([shuffled_quantiles(p, random) for _ in range(3)])
        self.A, self.B = (nn.Parameter(matrix, requires_grad=False) for matrix in (A, B))

    def forward(self, pos: Tensor) -> Tensor:
        e_A = torch.exp(1j * (pos @ self.A))
        e_B = torch.cat([torch.cos(pos @ self.B), torch.sin(pos @ self.B)], dim=-1) + 0j
        return unit(e_B @ (e_B.mT @ e_A) / e_A)


class Objects(AppendixB):
    """Their networks for objects: the same, with the Gaussian window itself (Theorem 1)."""

    def __init__(self, d: int, alpha: float, beta: float) -> None:
        super().__init__(d, alpha, beta, p=1)
        self.beta = beta

    def forward(self, pos: Tensor) -> Tensor:
        e_A = torch.exp(1j * (pos @ self.A))
        squared = (pos[..., :, None, :] - pos[..., None, :, :]).square().sum(-1)
        return unit((torch.exp(-(self.beta**2) * squared / 2) + 0j) @ e_A / e_A)


class Package(nn.Module):
    """Their installable package: points over the radius, alpha = 6, beta = 1.8, or a ball."""

    def __init__(self, d: int, radius: float, p: int | None) -> None:
        super().__init__()
        self.radius = radius
        self.A = 6.0 * authors_standard_normal(3, d).float()
        self.B = None if p is None else 1.8 * authors_standard_normal(3, p).float()

    def forward(self, pos: Tensor) -> Tensor:
        x = pos / self.radius
        e_A = torch.exp(1j * (x @ self.A))
        if self.B is None:
            return unit(((torch.cdist(x, x) < 1) + 0j) @ e_A / e_A)
        e_B = torch.exp(1j * (x @ self.B))
        return unit(((e_B @ e_B.mH).real + 0j) @ e_A / e_A)


def unit(G: Tensor) -> Tensor:
    return G / torch.linalg.vector_norm(G, dim=-1, keepdim=True) * G.shape[-1] ** 0.5


def test_networks_for_objects(generator: Generator) -> None:
    pos = torch.stack([surface(300, 3, generator).float() for _ in range(2)])
    theirs = Objects(64, alpha=30.0, beta=6.0)
    state = theirs.state_dict()
    enc = VecKM(beta=6.0, A=state["A"], engine="dense")
    assert mean_error(enc(pos), theirs(pos)) <= CLOSE
    assert mean_error(VecKM(beta=6.0, A=state["A"])(pos), theirs(pos)) <= 1e-2
    # Their matrices are not in units of the radius: divided by it, they encode something else.
    wrong = VecKM(radius=0.3, A=state["A"] / 0.3, window="ball")
    assert mean_error(wrong(pos), theirs(pos)) > 0.5


def test_networks_for_normals_and_appendix_b(generator: Generator) -> None:
    pos = surface(300, 3, generator).float()
    theirs = AppendixB(64, alpha=60.0, beta=18.0, p=512)
    state = theirs.state_dict()
    enc = VecKM(beta=18.0, A=state["A"], B=state["B"], engine="random")
    assert (enc.dim, enc.B.shape) == (64, (1, 3, 512))
    assert mean_error(enc(pos), theirs(pos)) <= CLOSE


@pytest.mark.parametrize("radius", [0.3, 40.0])
def test_the_package_with_its_two_encoders(radius: float, generator: Generator) -> None:
    pos = radius / 0.3 * surface(300, 3, generator).float()
    exact = Package(64, radius, p=None)
    ball = VecKM(radius=radius, A=exact.A / radius, window="ball")
    assert mean_error(ball(pos), exact(pos)) <= CLOSE
    fast = Package(64, radius, p=512)
    assert fast.B is not None
    enc = VecKM(radius=radius, A=fast.A / radius, B=fast.B / radius, engine="random")
    assert mean_error(enc(pos), fast(pos)) <= CLOSE
    assert torch.equal(enc.A[0], (6.0 * authors_standard_normal(3, 64).float()) / radius)


def test_their_parameters_may_be_passed_as_they_are(generator: Generator) -> None:
    theirs, pos = Objects(64, alpha=30.0, beta=6.0), surface(100, 3, generator).float()
    enc = VecKM(beta=6.0, A=theirs.A, engine="dense")
    assert not enc(pos).requires_grad
    assert mean_error(enc(pos), theirs(pos)) <= CLOSE
    assert enc.alpha == pytest.approx((30.0,), rel=0.1)  # measured; their draw has less than 30
