"""Gradients to points, queries and weights: those of the definition, and those of the numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from clouds import CLOUDS, frequencies
from tolerance import ROUNDING, whole_error
from torch import Generator, Tensor

EPS = 1e-5
BETA = 3.0
NORMS = ["unit", "mean", None]


class GradientConformance:
    """Mixed into the conformance test case."""

    def encode(self, pos: Tensor, A: Tensor, **options: Any) -> Tensor:
        raise NotImplementedError

    def truth(self, pos: Tensor, A: Tensor, **options: Any) -> Tensor:
        raise NotImplementedError

    def error(self, eps: float, window: str) -> float:
        raise NotImplementedError

    def gradient_error(self, eps: float, window: str) -> float:
        """Differentiating a wave of the quadrature brings down its wave number: a few times eps."""
        return 10 * self.error(eps, window)

    def compare(self, window: str, pos: Tensor, A: Tensor, **options: Any) -> None:
        """Gradients to all float tensors among the inputs, against the truth's."""
        names = [k for k, v in options.items() if isinstance(v, Tensor) and v.is_floating_point()]
        leaves = [pos, *(options[k] for k in names)]
        grads = []
        for call in (self.encode, self.truth):
            inputs = [leaf.detach().clone().requires_grad_() for leaf in leaves]
            given = {**options, **dict(zip(names, inputs[1:], strict=True))}
            G = call(inputs[0], A, window=window, eps=EPS, **given)
            cotangent = complex_normal(G.shape)
            grads.append(torch.autograd.grad(G, inputs, cotangent))
        for mine, true in zip(*grads, strict=True):
            bound = self.gradient_error(EPS, window)
            assert whole_error(mine, true) <= bound + ROUNDING[torch.float64]

    @pytest.mark.parametrize(("cloud", "norm"), list(zip(CLOUDS, NORMS, strict=True)))
    def test_gradients_to_points_and_weights_are_those_of_the_definition(
        self, cloud: str, norm: str | None, window: str, generator: Generator
    ) -> None:
        pos, A = CLOUDS[cloud](200, 3, generator), frequencies(3, 16, 9.0, generator)
        weights = 0.5 + torch.rand(200, generator=generator, dtype=torch.float64)
        self.compare(window, pos, A, beta=BETA, norm=norm, weights=weights)

    @pytest.mark.parametrize("norm", NORMS)
    def test_gradients_to_queries_are_those_of_the_definition(
        self, norm: str | None, window: str, generator: Generator
    ) -> None:
        pos, A = CLOUDS["surface"](200, 3, generator), frequencies(3, 16, 9.0, generator)
        queries = pos[::2] + 0.02
        weights = 0.5 + torch.rand(200, generator=generator, dtype=torch.float64)
        self.compare(window, pos, A, beta=BETA, norm=norm, weights=weights, queries=queries)

    @pytest.mark.parametrize(("in_dim", "beta"), [(1, 6.0), (2, 4.0), (4, 1.5)])
    def test_gradients_are_right_in_any_dimension(
        self, in_dim: int, beta: float, window: str, generator: Generator
    ) -> None:
        pos = CLOUDS["clusters"](80, in_dim, generator)
        A = frequencies(in_dim, 16, 3 * beta, generator)
        self.compare(window, pos, A, beta=beta, queries=pos[::2] + 0.02)

    def test_gradients_of_a_batch_are_those_of_the_definition(
        self, window: str, generator: Generator
    ) -> None:
        pos, A = CLOUDS["surface"](200, 3, generator), frequencies(3, 16, 9.0, generator)
        batch = torch.tensor([0, 1, 3]).repeat_interleave(torch.tensor([120, 1, 79]))
        self.compare(window, pos + 10.0 * batch[:, None], A, beta=BETA, batch=batch)
        self.compare(window, pos.view(4, 50, 3), A, beta=BETA, queries=pos.view(4, 50, 3)[:, :20])

    def test_each_input_may_ask_for_its_gradient_alone(
        self, window: str, generator: Generator
    ) -> None:
        pos, A = CLOUDS["surface"](120, 3, generator), frequencies(3, 16, 9.0, generator)
        inputs = {"pos": pos, "queries": pos[::2] + 0.02, "weights": pos[:, 0].abs() + 0.5}

        def gradients(*asked: str) -> list[Tensor]:
            leaves = {k: v.clone().requires_grad_(k in asked) for k, v in inputs.items()}
            G = self.encode(A=A, beta=BETA, window=window, eps=EPS, **leaves)
            wanted = [leaves[k] for k in asked]
            return list(torch.autograd.grad(G, wanted, complex_normal(G.shape)))

        for name, together in zip(inputs, gradients(*inputs), strict=True):
            alone = gradients(name)[0]
            assert whole_error(alone, together) <= ROUNDING[torch.float64]

    def test_float32_gradients_are_those_of_float64(
        self, window: str, generator: Generator
    ) -> None:
        pos, A = CLOUDS["surface"](200, 3, generator), frequencies(3, 16, 9.0, generator)
        grads = []
        for dtype in ROUNDING:
            x = pos.float().to(dtype).requires_grad_()
            G = self.encode(x, A, beta=BETA, window=window, eps=EPS)
            cotangent = complex_normal(G.shape).to(G.dtype)
            grads.append(torch.autograd.grad(G, x, cotangent)[0])
        assert grads[0].dtype == torch.float32
        assert whole_error(*grads) <= 10 * ROUNDING[torch.float32]

    def test_a_graph_does_not_change_the_values(self, window: str, generator: Generator) -> None:
        pos, A = CLOUDS["surface"](200, 3, generator), frequencies(3, 16, 9.0, generator)
        options = {"beta": BETA, "window": window, "eps": 1e-2}
        plain = self.encode(pos, A, **options)
        with_graph = self.encode(pos.clone().requires_grad_(), A, **options)
        assert with_graph.requires_grad
        assert whole_error(with_graph.detach(), plain) <= ROUNDING[torch.float64]

    def test_gradients_match_finite_differences(self, window: str, generator: Generator) -> None:
        pos, A = CLOUDS["volume"](7, 2, generator), frequencies(2, 3, 3.0, generator)
        queries = CLOUDS["volume"](3, 2, generator)
        weights = 0.5 + torch.rand(7, generator=generator, dtype=torch.float64)

        def call(pos: Tensor, queries: Tensor, weights: Tensor) -> Tensor:
            return self.encode(
                pos, A, queries=queries, weights=weights, beta=1.5, window=window, eps=1e-10
            )

        leaves = tuple(t.requires_grad_() for t in (pos, queries, weights))
        assert torch.autograd.gradcheck(call, leaves, atol=1e-4, rtol=1e-4, fast_mode=True)


def complex_normal(shape: torch.Size) -> Tensor:
    """The same random cotangent for every call with the same shape."""
    generator = torch.Generator().manual_seed(7)
    return torch.randn(shape, generator=generator, dtype=torch.complex128)
