"""VecKM the module: its parameters, its scales, its engines, and what a user does with it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from clouds import surface
from tolerance import ROUNDING, mean_error, whole_error
from torch import Generator, Tensor, nn
from torch.utils.data import DataLoader, Dataset
from twins import by_definition, by_random_features

from veckm import VecKM, encode, frequencies
from veckm.frequencies import authors_standard_normal
from veckm.nn import FeatureBlock


def small(dim: int = 16, **options: Any) -> VecKM:
    """A small encoder, alpha = 12 and beta = 3 unless said otherwise."""
    sized = "beta" in options or "radius" in options
    return VecKM(dim, p=64, **({} if sized else {"alpha": 12.0, "beta": 3.0}), **options)


def test_alpha_and_beta_or_radius_and_detail_name_the_same_encoder(generator: Generator) -> None:
    pos = surface(50, 3, generator)
    paper = small(alpha=60.0, beta=10.0)
    user = small(radius=0.18, detail=60.0 * 0.18)
    assert paper.radius == pytest.approx((0.18,))
    assert user.alpha == pytest.approx((60.0,))
    assert user.beta == pytest.approx((10.0,))
    torch.testing.assert_close(paper(pos), user(pos), rtol=1e-5, atol=1e-5)


def test_a_radius_alone_has_the_detail_of_the_authors() -> None:
    assert small(radius=0.5).alpha == pytest.approx((12.0,))
    assert small(radius=(0.5, 0.1)).alpha == pytest.approx((12.0, 60.0))
    assert small(radius=0.5, alpha=7.0).alpha == (7.0,)
    assert small(beta=1.8, detail=6.0).alpha == pytest.approx((6.0,))


def test_sizes_may_be_numbers_of_numpy_or_torch() -> None:
    plain = small(alpha=6.0, beta=2.0)
    for kind in (np.float32, np.float64, np.int64, torch.tensor):
        other = small(alpha=kind(6), beta=kind(2))
        assert (other.alpha, other.beta) == (plain.alpha, plain.beta)
    assert small(alpha=np.array([6.0, 7.0]), beta=2.0).alpha == (6.0, 7.0)


def test_several_scales_stand_side_by_side(generator: Generator) -> None:
    pos, enc = surface(60, 3, generator), small(alpha=60.0, beta=(10, 20, 5))
    G = enc(pos)
    assert enc.alpha == (60.0, 60.0, 60.0)
    assert (G.shape, enc.out_dim) == ((60, 48), 48)
    for i, beta in enumerate((10, 20, 5)):
        assert torch.equal(G[:, 16 * i : 16 * i + 16], encode(pos, enc.A[i], beta=beta))


def test_the_scales_have_frequencies_of_their_own_and_of_their_size() -> None:
    enc = VecKM(256, alpha=(30, 60), beta=(5, 10), p=512)
    assert enc.A.shape == (2, 3, 256)
    assert enc.B.shape == (2, 3, 512)
    torch.testing.assert_close(enc.A.std(-1, correction=0), torch.tensor([[30.0] * 3, [60.0] * 3]))
    torch.testing.assert_close(enc.B.std(-1, correction=0), torch.tensor([[5.0] * 3, [10.0] * 3]))
    assert not torch.allclose(2 * enc.A[0], enc.A[1])


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({}, "give either beta or radius"),
        ({"beta": 1.0, "radius": 1.0}, "give either beta or radius, not both"),
        ({"alpha": 1.0, "detail": 1.0, "beta": 1.0}, "give either alpha or detail, not both"),
        ({"beta": 1.0}, r"give alpha \(or detail\) beside beta"),
        ({"alpha": (1, 2, 3), "beta": (1, 2)}, "alpha has 3 values but beta .* has 2: give one"),
        ({"detail": (1, 2, 3), "radius": (1, 2)}, "detail has 3 values but beta .* has 2"),
        ({"radius": ()}, "radius is empty: give at least one scale"),
        ({"radius": 1.0, "dim": 0}, "dim must be at least 1, got 0"),
        ({"radius": 1.0, "p": 0}, "p must be at least 1, got 0"),
        ({"radius": 1.0, "in_dim": 0}, "in_dim must be at least 1, got 0"),
        ({"radius": 1.0, "draw": "sobol"}, "unknown draw 'sobol'"),
        ({"radius": 1.0, "A": torch.zeros(2, 8)}, r"A must have shape \(3, columns\) .* \(2, 8\)"),
        ({"radius": 1.0, "A": torch.zeros(3, 0)}, r"A must have .* got \(3, 0\)"),
        ({"radius": 1.0, "A": torch.zeros(3, 8).int()}, "A must have .* float .* torch.int32"),
        ({"radius": 1.0, "B": torch.zeros(2, 8)}, r"B must have shape \(3, columns\) .* \(2, 8\)"),
        ({"radius": 1.0, "A": torch.ones(3, 9)}, "dim = 8, but the given A has 9 columns"),
        ({"radius": 1.0, "alpha": 2.0, "A": torch.ones(3, 8)}, "A is given, .* leave out alpha"),
        ({"radius": 1.0, "detail": 2.0, "A": torch.ones(3, 8)}, "A is given, .* leave out alpha"),
        ({"radius": (1, 2), "A": torch.zeros(3, 3, 8)}, r"A must have .* got \(3, 3, 8\)"),
        ({"radius": 1.0, "A": torch.full((3, 8), torch.inf)}, "A has NaN or infinite values"),
        ({"radius": 1.0, "engine": "fast"}, "unknown engine 'fast'"),
        ({"radius": 1.0, "window": "box"}, "unknown window 'box'"),
        ({"radius": 1.0, "norm": "l2"}, "unknown norm 'l2'"),
        ({"radius": 1.0, "engine": "gird"}, r"unknown engine 'gird': use 'auto' or .* 'grid'\]"),
        ({"radius": 1.0, "engine": None}, "unknown engine None"),
        (
            {"radius": 1.0, "engine": "grid", "window": "ball"},
            r"engine 'grid' cannot compute the ball window; use one of \['dense', 'neighbors'\]",
        ),
        ({"radius": 1.0, "engine": "random", "window": "ball"}, "engine 'random' cannot compute"),
        ({"radius": 1.0, "eps": 2.0}, "must be at most 0.5, got 2.0"),
        ({"radius": 1.0, "eps": 0.0}, r"eps = 0\.0 is below"),
        ({"radius": 1.0, "eps": torch.nan}, "must be at most 0.5, got nan"),
    ],
)
def test_the_constructor_refuses_options_that_make_no_encoder(
    options: dict[str, Any], match: str
) -> None:
    with pytest.raises(ValueError, match=match):
        VecKM(**{"dim": 8, "p": 4, **options})


@pytest.mark.parametrize("name", ["dim", "p", "in_dim"])
@pytest.mark.parametrize("value", [8.0, True, "8"])
def test_sizes_that_are_no_whole_numbers_are_refused(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a whole number, got {value!r}"):
        VecKM(**{"radius": 1.0, name: value})


def test_the_frequencies_are_buffers_and_learn_nothing(generator: Generator) -> None:
    enc, pos = small(), surface(40, 3, generator).float().requires_grad_()
    assert list(enc.parameters()) == []
    assert [name for name, _ in enc.named_buffers()] == ["A"]
    enc(pos).abs().square().sum().backward()
    assert pos.grad is not None
    assert enc.A.grad is None
    assert not enc.A.requires_grad


def test_the_seed_decides_and_the_global_generator_does_not() -> None:
    before = torch.get_rng_state()
    first, again, other = small(seed=3), small(seed=3), small(seed=4)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.A, again.A)
    assert torch.equal(first.B, again.B)
    assert not torch.equal(first.A, other.A)


def test_the_frequencies_of_the_default_seed_are_these_on_every_machine() -> None:
    enc = VecKM(4, alpha=60, beta=(60, 60), p=4)
    a, b = 81.77371978759766, 22.650793075561523
    first = [[-a, -b, a, b], [-a, b, a, -b], [a, b, -a, -b]]  # as ever since the first version
    second = [[-a, b, a, -b], [b, -b, -a, a], [-a, -b, a, b]]
    torch.testing.assert_close(enc.A, torch.tensor([first, second]))
    first = [[a, -a, -b, b], [a, -a, -b, b], [a, b, -b, -a]]
    second = [[-b, b, a, -a], [-b, b, -a, a], [-a, b, -b, a]]
    torch.testing.assert_close(enc.B, torch.tensor([first, second]))


def test_the_frequencies_of_a_scale_do_not_depend_on_what_else_is_drawn() -> None:
    one = VecKM(8, alpha=6.0, beta=3.0, p=4, seed=5)
    many = VecKM(8, alpha=6.0, beta=(3.0, 3.0, 3.0), p=16, seed=5, engine="random")
    assert torch.equal(one.A[0], many.A[0])
    two = VecKM(8, alpha=6.0, beta=(3.0, 3.0), p=7, seed=5)
    drawn = two.B  # on the way, and of another size
    assert torch.equal(two.A, many.A[:2])
    assert torch.equal(drawn[0], VecKM(2, alpha=1.0, beta=3.0, p=7, seed=5).B[0])
    matrices = [*many.A, *many.B[:, :, :8]]
    assert len({tuple(m.flatten().tolist()) for m in matrices}) == 6


def test_b_is_drawn_when_it_is_first_needed_and_stays() -> None:
    enc = small(engine="grid")
    with torch.inference_mode():
        first = enc.B
    assert first is enc.B
    assert not first.is_inference()
    assert torch.equal(first, small(engine="random").B)
    enc.double()
    assert enc.B.dtype == torch.float64
    assert torch.equal(enc.B, first.double())
    assert torch.equal(small().double().B, first.double())  # drawn after the move


def test_an_engine_without_random_features_never_draws_b(monkeypatch: pytest.MonkeyPatch) -> None:
    columns: list[int] = []
    draw = frequencies.standard_normal

    def counted(rows: int, count: int, **options: Any) -> Tensor:
        columns.append(count)
        return draw(rows, count, **options)

    monkeypatch.setattr(frequencies, "standard_normal", counted)
    small(16, engine="auto")(torch.zeros(4, 3))
    assert columns == [16]


def test_a_default_device_does_not_change_the_draw() -> None:
    with torch.device("meta"):
        inside = small()
    assert torch.equal(inside.A, small().A)


@pytest.mark.parametrize("window", ["gaussian", "ball"])
def test_all_engines_agree(window: str, generator: Generator) -> None:
    pos = surface(300, 3, generator)
    truth = small(window=window, engine="dense")(pos)
    assert mean_error(small(window=window)(pos), truth) <= 1e-2
    assert mean_error(small(window=window, engine="neighbors")(pos), truth) <= 1e-2
    if window == "gaussian":
        assert mean_error(small(engine="grid")(pos), truth) <= 1e-2
        random = VecKM(beta=3.0, p=20_000, A=small().A, engine="random")
        assert mean_error(random(pos), truth) <= 0.1


def test_every_shape_of_input_reaches_the_engine(generator: Generator) -> None:
    pos, enc = surface(60, 3, generator), small(engine="dense", beta=(3.0, 5.0), alpha=9.0)
    weights = torch.rand(60, generator=generator, dtype=torch.float64)
    stack = enc(pos.view(3, 20, 3), weights=weights.view(3, 20))
    assert stack.shape == (3, 20, 32)
    batch = torch.arange(3).repeat_interleave(20)
    torch.testing.assert_close(stack.flatten(0, 1), enc(pos, batch, weights=weights))
    asked = enc(pos, batch, queries=pos[::2], query_batch=batch[::2], weights=weights)
    torch.testing.assert_close(asked, enc(pos, batch, weights=weights)[::2])


@pytest.mark.parametrize("in_dim", [1, 2, 4])
def test_points_may_have_other_than_three_coordinates(in_dim: int, generator: Generator) -> None:
    enc = small(in_dim=in_dim, engine="dense")
    pos = surface(40, in_dim, generator)
    truth = by_definition(pos, enc.A[0].double(), beta=3.0)
    assert mean_error(enc(pos), truth) <= ROUNDING[torch.float64]


def test_the_frequencies_of_the_authors_can_be_loaded(generator: Generator) -> None:
    """Their encoder: points over the radius, alpha = 6, a ball of radius one, unit norm."""
    pos, radius = surface(80, 3, generator), 0.5
    theirs = by_definition(
        pos / radius, 6.0 * authors_standard_normal(3, 32), radius=1.0, window="ball"
    )
    A = 6.0 / radius * authors_standard_normal(3, 32)
    enc = VecKM(radius=radius, A=A, window="ball", p=4)
    assert (enc.A.dtype, enc.out_dim) == (torch.float64, 32)
    assert mean_error(enc(pos), theirs) <= 1e-6
    trained = VecKM(32, radius=radius, window="ball", p=4).double()
    trained.load_state_dict({"A": A[None], "B": trained.B})
    assert mean_error(trained(pos), theirs) <= 1e-6


def test_given_frequencies_decide_the_size_and_alpha(generator: Generator) -> None:
    A = 7.0 * torch.randn(2, 3, 40, generator=generator)
    enc = VecKM(beta=(1.0, 2.0), A=A)
    assert (enc.dim, enc.in_dim, enc.out_dim) == (40, 3, 80)
    assert VecKM(40, beta=(1.0, 2.0), A=A).out_dim == 80
    measured = A.square().mean((1, 2)).sqrt().tolist()
    assert enc.alpha == pytest.approx(tuple(measured))
    assert f"alpha=({measured[0]:g}, {measured[1]:g})" in repr(enc)
    shared = VecKM(radius=(1.0, 2.0), A=A[0])
    assert shared.alpha == pytest.approx((measured[0], measured[0]))
    assert VecKM(256, alpha=6.0, beta=1.0).dim == VecKM(alpha=6.0, beta=1.0).dim == 256


def test_a_parameter_stays_the_parameter_and_learns(generator: Generator) -> None:
    pos = surface(30, 3, generator)
    for shape in ((3, 8), (2, 3, 8)):
        A = nn.Parameter(9.0 * torch.randn(shape, generator=generator, dtype=torch.float64))
        enc = VecKM(beta=(3.0, 5.0), A=A, engine="dense")
        assert enc.A is A
        assert list(enc.parameters()) == [A]
        assert enc.out_dim == 16
        target = torch.randn(30, 16, generator=generator, dtype=torch.complex128)
        (enc(pos).conj() * target).real.sum().backward()
        assert A.grad is not None
        twin = A.detach().clone().requires_grad_()
        each = twin.expand(2, 3, 8)
        truth = [by_definition(pos, each[i], beta=beta) for i, beta in enumerate((3.0, 5.0))]
        (torch.cat(truth, dim=-1).conj() * target).real.sum().backward()
        assert twin.grad is not None
        torch.testing.assert_close(A.grad, twin.grad)


@pytest.mark.parametrize("engine", ["dense", "neighbors", "grid", "random"])
def test_the_gradient_of_a_parameter_is_that_of_the_definition(
    engine: str, generator: Generator
) -> None:
    pos = surface(200, 3, generator)
    A = nn.Parameter(6.0 * torch.randn(1, 3, 8, generator=generator, dtype=torch.float64))
    enc = VecKM(beta=3.0, A=A, engine=engine, eps=1e-6, p=64).double()  # type: ignore[arg-type]
    target = torch.randn(200, 8, generator=generator, dtype=torch.complex128)
    (enc(pos).conj() * target).real.sum().backward()
    twin = A.detach().clone().requires_grad_()
    middle = pos - (pos.amin(0) + pos.amax(0)) / 2
    if engine == "random":
        truth = by_random_features(middle, twin[0], enc.B[0])
    else:
        truth = by_definition(middle, twin[0], beta=3.0)
    (truth.conj() * target).real.sum().backward()
    assert A.grad is not None
    assert twin.grad is not None
    assert whole_error(A.grad, twin.grad) <= 1e-4


def test_a_parameter_that_does_not_learn_stays_so(generator: Generator) -> None:
    A = nn.Parameter(torch.randn(3, 8, generator=generator), requires_grad=False)
    enc = VecKM(beta=3.0, A=A)  # as the authors hold their frequencies
    assert enc.A is A
    assert not enc(surface(20, 3, generator).float()).requires_grad


def test_given_frequencies_are_copied_and_may_serve_all_scales(generator: Generator) -> None:
    A = torch.randn(3, 8, generator=generator)
    enc = VecKM(beta=(1.0, 2.0), A=A, p=4)
    assert torch.equal(enc.A, torch.stack([A, A]))
    A.zero_()
    assert bool(enc.A.any())


class Encoded(Dataset[Tensor]):
    """Clouds that are encoded where they are loaded."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(6)
        self.clouds = [surface(60, 3, generator).float() for _ in range(6)]
        self.enc = small(engine="grid")

    def __len__(self) -> int:
        return len(self.clouds)

    def __getitem__(self, index: int) -> Tensor:
        G: Tensor = self.enc(self.clouds[index])
        return G


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_data_loader_may_encode_in_its_worker() -> None:
    data = Encoded()
    loaded = torch.cat(list(DataLoader(data, batch_size=3, num_workers=1)))
    torch.testing.assert_close(loaded, torch.stack([data[i] for i in range(6)]))


@pytest.mark.parametrize("engine", ["dense", "neighbors", "grid", "random"])
def test_threads_may_share_an_encoder(engine: str, generator: Generator) -> None:
    enc = small(engine=engine)
    clouds = [surface(n, 3, generator) for n in (50, 500, 1500, 3000, 800, 200)]
    alone = [enc(pos) for pos in clouds]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(enc, clouds))
    for first, second in zip(alone, together, strict=True):
        torch.testing.assert_close(first, second)


def test_a_network_on_top_learns_and_passes_gradients_to_the_points(generator: Generator) -> None:
    enc, pos = small(engine="grid"), surface(60, 3, generator).float().requires_grad_()
    net = nn.Sequential(enc, FeatureBlock(16, 8, 8), nn.Linear(8, 2))
    net(pos).square().sum().backward()
    assert pos.grad is not None
    assert bool(torch.isfinite(pos.grad).all())
    assert bool(pos.grad.any())
    assert all(p.grad is not None and bool(p.grad.any()) for p in net[2].parameters())
