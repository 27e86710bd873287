"""VecKM as a part of a network, and the counterparts that the paper builds with it."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

from veckm import VecKM
from veckm.models import (
    Classifier,
    Encoding,
    EncodingConfig,
    PartSegmenter,
    SemanticSegmenter,
    create_model,
    default_encoding,
)
from veckm.models.clouds import Clouds
from veckm.models.layers import seeded
from veckm.nn import ComplexBatchNorm


def clouds(generator: Generator) -> Tensor:
    x = torch.randn(2, 60, 3, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(x, dim=-1)


def exact() -> Encoding:
    settings = EncodingConfig(dim=32, hidden=16, channels=8, engine="dense")
    return seeded(lambda: Encoding(settings), 0).double()


def test_the_features_are_the_block_of_the_encoding(generator: Generator) -> None:
    encoding, pos = exact(), clouds(generator)
    z = pos[:, None] - pos[:, :, None]  # x_j - x_i
    phase = z @ encoding.veckm.A[0]
    window = torch.exp(-(6.0**2) * z.square().sum(-1, keepdim=True) / 2)
    G = (window * torch.exp(1j * phase)).sum(2)
    G = G / torch.linalg.vector_norm(G, dim=-1, keepdim=True) * 32**0.5
    assert encoding.P is not None
    place = torch.exp(1j * (pos @ encoding.P))
    torch.testing.assert_close(encoding(pos), encoding.block(G + place))


def test_the_largest_are_those_of_all_points(generator: Generator) -> None:
    encoding, pos = exact(), clouds(generator)
    dense = Clouds.of(pos)
    torch.testing.assert_close(encoding.maxpool(dense), encoding(pos).amax(1))
    ragged = Clouds.of(pos[0], torch.arange(2).repeat_interleave(torch.tensor([20, 40])))
    alone = torch.stack([encoding(part).amax(0) for part in pos[0].split([20, 40])])
    torch.testing.assert_close(encoding.maxpool(ragged), alone)


@pytest.mark.parametrize("queries", [None, 20])
def test_under_autocast_the_products_are_rounded_where_eps_allows(
    queries: int | None, generator: Generator
) -> None:
    pos = clouds(generator).float()
    asked = None if queries is None else pos[:, :queries]
    for eps, low, high in ((1e-2, 1e-3, 5e-3), (1e-3, 0.0, 0.0)):
        config = EncodingConfig(dim=32, hidden=16, channels=8, engine="dense", eps=eps)
        encoding = seeded(lambda: Encoding(config), 0)  # noqa: B023 - called at once
        exact = encoding.encode(pos, queries=asked)
        with torch.autocast("cpu", torch.bfloat16):
            found = encoding.encode(pos, queries=asked)
            graph = encoding.encode(pos.clone().requires_grad_(), queries=asked)
        for other in (found, graph.detach()):
            assert other.dtype == torch.complex64
            error = float((other - exact).norm() / exact.norm())
            assert low <= error <= high + 1e-6
        grads = []
        for mixed in (False, True):
            at = pos.clone().requires_grad_()
            with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
                G = encoding.encode(at, queries=asked)
            grads.append(torch.autograd.grad(G.real.sum() + G.imag.square().sum(), at)[0])
        assert float((grads[1] - grads[0]).norm() / grads[0].norm()) <= 4 * high + 1e-5


@pytest.mark.parametrize("engine", ["auto", "dense"])
def test_a_cpu_that_multiplies_bfloat16_itself_rounds_where_auto_may(
    engine: Any, generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    pos = clouds(generator).float()
    config = EncodingConfig(dim=32, hidden=16, channels=8, engine=engine)
    encoding = seeded(lambda: Encoding(config), 0)
    found = []
    for native in (False, True):
        monkeypatch.setattr("veckm.engines.device.native_bfloat16", lambda n=native: n)
        found.append(encoding.encode(pos))
    error = float((found[1] - found[0]).norm() / found[0].norm())
    assert 1e-3 < error < 5e-3 if engine == "auto" else error == 0.0


def test_a_network_with_several_scales_trains(generator: Generator) -> None:
    config = default_encoding("pointnet", alpha=(30.0, 20.0), radius=(0.3, 0.2), dim=32, hidden=16)
    assert config.beta == (1.8 / 0.3, 1.8 / 0.2)
    model = create_model("pointnet", veckm=True, num_classes=4, encoding=config, dropout=0.0)
    assert isinstance(model.encoding, Encoding)
    assert model.encoding.veckm.out_dim == 64
    pos, label = torch.rand(4, 40, 3, generator=generator), torch.arange(4)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=2e-3), []
    for _ in range(25):
        loss = torch.nn.functional.cross_entropy(model(pos).logits, label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.1 < losses[0]


def test_the_size_is_given_as_beta_or_as_radius() -> None:
    assert EncodingConfig().beta == 6.0
    assert EncodingConfig(radius=0.2).beta == pytest.approx(9.0)
    assert default_encoding("pct", radius=0.3) == default_encoding("pct", beta=1.8 / 0.3)
    assert replace(EncodingConfig(radius=0.2), dim=8).beta == pytest.approx(9.0)
    with pytest.raises(ValueError, match="give either beta or radius, not both"):
        EncodingConfig(beta=9.0, radius=0.2)


@pytest.mark.parametrize("change", [lambda m: m.half(), lambda m: m.to(torch.bfloat16)])
def test_half_precision_is_refused_before_anything_has_changed(change: Any) -> None:
    for model in (
        VecKM(8, radius=0.2),
        Encoding(EncodingConfig(dim=8, hidden=4, channels=4)),
        create_model("pointnet", num_classes=4),
        create_model("pct", veckm=True, num_classes=4),
    ):
        with pytest.raises(TypeError, match=rf"{type(model).__name__} cannot.*autocast.*bfloat16"):
            change(model)
        assert {x.dtype for x in model.state_dict().values()} <= {
            torch.float32,
            torch.float64,
            torch.int64,
        }


def test_several_scales_are_joined(generator: Generator) -> None:
    config = EncodingConfig(alpha=(30.0, 20.0), beta=(6.0, 9.0), dim=16, hidden=8, channels=4)
    assert Encoding(config)(clouds(generator).float()).shape == (2, 60, 4)


def test_a_network_may_whiten_what_is_between_its_two_layers(generator: Generator) -> None:
    config = default_encoding("pointnet", batch_norm=True, engine="dense")
    model = create_model("pointnet", veckm=True, num_classes=5, encoding=config)
    model.double()
    assert isinstance(model.encoding, Encoding)
    norms = [m for m in model.encoding.modules() if isinstance(m, ComplexBatchNorm)]
    assert len(norms) == 1
    pos = clouds(generator)
    model(pos).logits.sum().backward()
    assert all(p.grad is not None for p in norms[0].parameters())
    model.eval()  # after one step of statistics, and by those alone
    torch.testing.assert_close(model(pos).logits[:1], model(pos[:1]).logits)
    pooled = model.encoding.maxpool(Clouds.of(pos))
    torch.testing.assert_close(pooled, model.encoding(pos).amax(1))


def test_the_normalization_of_the_encoding_can_be_chosen(generator: Generator) -> None:
    pos = clouds(generator)
    for norm in ("unit", "mean", None):
        config = default_encoding("pointnet", norm=norm, position=0.0)
        model = create_model("pointnet", veckm=True, num_classes=5, encoding=config)
        encoding = model.encoding
        assert isinstance(encoding, Encoding)
        assert encoding.veckm.norm == norm
        assert not any(isinstance(m, ComplexBatchNorm) for m in encoding.modules())
        if norm == "mean":
            assert float(encoding.encode(pos).abs().max()) <= 1 + 1e-6
    config = EncodingConfig(norm="batch")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown norm 'batch'"):
        create_model("pointnet", veckm=True, num_classes=5, encoding=config)


def test_a_network_refuses_the_weights_of_another_radius() -> None:
    state = create_model("pointnet", veckm=True, num_classes=5).state_dict()
    config = default_encoding("pointnet", beta=9.0)
    other = create_model("pointnet", veckm=True, num_classes=5, encoding=config)
    with pytest.raises(RuntimeError, match=r"encoding\.veckm: the state is of .*beta=\(6\)"):
        other.load_state_dict(state)


def test_features_go_in_beside_the_encoding(generator: Generator) -> None:
    settings = EncodingConfig(dim=32, hidden=16, channels=8, engine="dense")
    encoding = seeded(lambda: Encoding(settings, in_channels=2), 0).double()
    pos = clouds(generator)
    features = torch.randn(2, 60, 2, generator=generator, dtype=torch.float64)
    joint = torch.cat((encoding.encode(pos), features + 0j), dim=-1)
    torch.testing.assert_close(encoding(pos, features), encoding.block(joint))


def test_at_some_points_it_is_what_it_is_there_at_all_points(generator: Generator) -> None:
    encoding, pos = exact(), clouds(generator)
    picks, few = Clouds.of(pos).sample(lambda _: 20)
    there = encoding(pos, queries=few.dense(few.pos))
    torch.testing.assert_close(there.flatten(0, 1), encoding(pos).flatten(0, 1)[picks])


def test_the_sizes_are_those_of_the_paper() -> None:
    kinds = (Classifier, PartSegmenter, SemanticSegmenter)
    defaults = {kind.task: kind.default_encoding for kind in kinds}
    sizes = {task: (s.alpha, s.beta, s.dim, s.channels) for task, s in defaults.items()}
    assert sizes == {
        "classification": (30.0, 6.0, 256, 128),
        "part-segmentation": (30.0, 9.0, 256, 128),
        "semantic-segmentation": (30.0, 9.0, 256, 64),
    }
    assert defaults["semantic-segmentation"].p == 2048


def names(name: str, task: str, veckm: bool) -> set[str]:
    model = create_model(name, task=task, veckm=veckm, num_classes=5)  # type: ignore[arg-type]
    return {key.split(".")[0] for key, _ in model.named_parameters()}


def test_the_counterparts_replace_what_the_paper_says_they_replace() -> None:
    objects, scenes = "classification", "semantic-segmentation"
    for name, task, gone in (
        ("pointnet", objects, {"input_transform", "feature_transform", "before", "after"}),
        ("pointnet2", objects, {"first"}),
        ("pct", objects, {"embedding"}),
        ("pointnet2", scenes, set()),
    ):
        plain, with_veckm = names(name, task, False), names(name, task, True)
        assert plain - with_veckm == gone
        assert with_veckm - plain == {"encoding"}
    blocks = [
        len(create_model("point_transformer", veckm=v, num_classes=5).blocks[0])  # type: ignore
        for v in (False, True)
    ]
    assert blocks == [1, 0]


def test_alpha_and_beta_can_be_chosen() -> None:
    config = default_encoding("pointnet", alpha=20.0, beta=4.0)
    model = create_model("pointnet", veckm=True, num_classes=5, encoding=config)
    encoding = model.encoding
    assert isinstance(encoding, Encoding)
    assert encoding.veckm.alpha == (20.0,)
    assert encoding.veckm.beta == (4.0,)


@pytest.mark.filterwarnings("default")  # the compiler itself raises some
@pytest.mark.parametrize("name", ["pointnet", "pct"])
def test_a_compiled_training_step_has_the_same_gradients(name: str, generator: Generator) -> None:
    # With the values checked, compiled code would be interrupted at every check.
    encoding = default_encoding(name, engine="dense", dim=32, hidden=16, channels=32)
    options: dict[str, Any] = {"dropout": 0.0, "validate": False, "encoding": encoding}
    pos, label = clouds(generator), torch.tensor([2, 0])
    gradients = []
    torch.compiler.reset()
    for wrap in (lambda step: step, lambda step: torch.compile(step, backend="aot_eager")):
        model = create_model(name, veckm=True, num_classes=4, **options).double()

        def loss(pos: Tensor, model: nn.Module = model) -> Tensor:
            return nn.functional.cross_entropy(model(pos).logits, label)

        wrap(loss)(pos).backward()
        gradients.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(*gradients)
