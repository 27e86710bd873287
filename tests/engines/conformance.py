"""The test case that every engine inherits: same sums, same result, whatever the engine.

An engine says its name, its windows, the accuracies it heeds, and how far it may be from the truth.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from clouds import CLOUDS, frequencies
from gradients import GradientConformance
from invariance import InvarianceConformance
from tolerance import ROUNDING, assert_rounding, mean_error
from torch import Generator, Tensor

from veckm import encode

NORMS = ["unit", "mean", None]


class EngineConformance(InvarianceConformance, GradientConformance):
    """Values against the definition in float64; invariances and gradients are inherited."""

    name: str
    windows: tuple[str, ...] = ("gaussian", "ball")
    accuracies: tuple[float, ...] = (1e-2,)
    size = 1500  # of the largest cloud

    def truth(self, pos: Tensor, A: Tensor, **options: Any) -> Tensor:
        """What the engine should give, in float64: the definition, unless said otherwise."""
        return encode(pos, A, engine="dense", **options)

    def encode(self, pos: Tensor, A: Tensor, **options: Any) -> Tensor:
        return encode(pos, A, engine=self.name, **self.extra(pos.shape[-1]), **options)

    def extra(self, in_dim: int) -> dict[str, Any]:
        """Further options that this engine needs."""
        return {}

    def error(self, eps: float, window: str) -> float:
        """Mean relative error that the engine may make in float64."""
        return ROUNDING[torch.float64]

    @pytest.mark.parametrize("cloud", CLOUDS)
    def test_the_mean_error_is_at_most_what_was_asked_for(
        self, cloud: str, window: str, eps: float, generator: Generator
    ) -> None:
        pos, A = CLOUDS[cloud](self.size // 2, 3, generator), frequencies(3, 48, 24.0, generator)
        options = {"beta": 4.0, "window": window}
        G = self.encode(pos, A, eps=eps, **options)
        assert mean_error(G, self.truth(pos, A, **options)) <= self.error(eps, window)

    def test_the_error_is_kept_at_the_scales_of_the_paper(
        self, window: str, eps: float, generator: Generator
    ) -> None:
        pos, A = CLOUDS["surface"](self.size, 3, generator), frequencies(3, 48, 60.0, generator)
        for beta in (10.0, 20.0):
            G = self.encode(pos, A, beta=beta, window=window, eps=eps)
            truth = self.truth(pos, A, beta=beta, window=window)
            assert mean_error(G, truth) <= self.error(eps, window)

    @pytest.mark.parametrize("cloud", CLOUDS)
    @pytest.mark.parametrize(("in_dim", "beta"), [(1, 6.0), (2, 4.0), (3, 3.0), (4, 1.5)])
    def test_points_may_have_one_to_four_coordinates(
        self, cloud: str, in_dim: int, beta: float, window: str, generator: Generator
    ) -> None:
        pos, eps = CLOUDS[cloud](200, in_dim, generator), 1e-2
        A = frequencies(in_dim, 32, 4 * beta, generator)
        G = self.encode(pos, A, beta=beta, window=window, eps=eps)
        truth = self.truth(pos, A, beta=beta, window=window)
        assert mean_error(G, truth) <= self.error(eps, window)

    @pytest.mark.parametrize("norm", NORMS)
    def test_every_norm_is_that_of_the_definition(
        self, norm: str | None, window: str, generator: Generator
    ) -> None:
        pos, A = CLOUDS["surface"](300, 3, generator), frequencies(3, 24, 12.0, generator)
        options = {"beta": 3.0, "window": window, "norm": norm}
        G = self.encode(pos, A, eps=1e-3, **options)
        assert mean_error(G, self.truth(pos, A, **options)) <= 2 * self.error(1e-3, window)

    def test_unit_encodings_have_length_sqrt_of_d(self, window: str, generator: Generator) -> None:
        pos, A = CLOUDS["volume"](300, 3, generator), frequencies(3, 24, 12.0, generator)
        G, sums = (
            self.encode(pos, A, beta=3.0, window=window, norm=norm) for norm in ("unit", None)
        )
        length = torch.linalg.vector_norm(sums, dim=-1, keepdim=True)
        assert_rounding(G, sums / length * 24**0.5)

    @pytest.mark.parametrize("dtype", ROUNDING)
    @pytest.mark.parametrize("norm", NORMS)
    def test_float32_and_float64_agree(
        self, dtype: torch.dtype, norm: str | None, window: str, generator: Generator
    ) -> None:
        pos = CLOUDS["surface"](300, 3, generator).float()
        A = frequencies(3, 24, 12.0, generator).float()
        radius = clear_radius(pos.double(), 0.6)
        options = {"radius": radius, "window": window, "norm": norm}
        G = self.encode(pos.to(dtype), A, eps=1e-5, **options)
        assert G.dtype == (torch.complex64 if dtype == torch.float32 else torch.complex128)
        truth = self.truth(pos.double(), A, **options)
        assert mean_error(G, truth) <= 2 * self.error(1e-5, window) + ROUNDING[dtype]

    def test_queries_may_be_anywhere(self, window: str, generator: Generator) -> None:
        pos, A = CLOUDS["clusters"](300, 3, generator), frequencies(3, 24, 12.0, generator)
        queries = 1.2 * CLOUDS["volume"](200, 3, generator)
        options = {"beta": 2.0, "window": window, "queries": queries, "norm": None}
        G, truth = self.encode(pos, A, eps=1e-4, **options), self.truth(pos, A, **options)
        # Far queries see next to nothing: the error is relative to the largest encoding.
        size = torch.linalg.vector_norm(truth, dim=-1).max()
        off = torch.linalg.vector_norm(G - truth, dim=-1).max()
        assert float(off / size) <= 10 * self.error(1e-4, window)

    def test_queries_may_be_in_clouds_and_may_ask_for_a_cloud_without_points(
        self, window: str, generator: Generator
    ) -> None:
        pos, A = CLOUDS["surface"](300, 3, generator), frequencies(3, 24, 12.0, generator)
        queries = CLOUDS["surface"](90, 3, generator)
        batch = torch.tensor([0, 2, 3]).repeat_interleave(torch.tensor([150, 100, 50]))
        query_batch = torch.tensor([0, 1, 3, 4]).repeat_interleave(torch.tensor([40, 10, 30, 10]))
        options = {"beta": 2.0, "window": window, "batch": batch}
        G = self.encode(pos, A, eps=1e-4, queries=queries, query_batch=query_batch, **options)
        assert not G[(query_batch == 1) | (query_batch == 4)].any()
        for cloud in (0, 3):
            mine, asked = pos[batch == cloud], queries[query_batch == cloud]
            truth = self.truth(mine, A, beta=2.0, window=window, queries=asked)
            assert mean_error(G[query_batch == cloud], truth) <= self.error(1e-4, window)


def clear_radius(pos: Tensor, near: float) -> float:
    """A radius that no distance comes close to, so that rounding cannot move a point across it."""
    distance = torch.cdist(pos, pos).flatten().sort().values
    distance = distance[(distance > 0.9 * near) & (distance < 1.1 * near)]
    widest = int(distance.diff().argmax())
    return float(distance[widest : widest + 2].mean())
