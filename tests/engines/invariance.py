"""What must not change the encoding: where the cloud is, the order, the company, the layout."""

from __future__ import annotations

from typing import Any

import torch
from clouds import CLOUDS, frequencies
from tolerance import assert_rounding, mean_error
from torch import Generator, Tensor

from veckm.sizes import make_window

EPS = 1e-4
BETA = 3.0


class InvarianceConformance:
    """Mixed into the conformance test case."""

    def encode(self, pos: Tensor, A: Tensor, **options: Any) -> Tensor:
        raise NotImplementedError

    def truth(self, pos: Tensor, A: Tensor, **options: Any) -> Tensor:
        raise NotImplementedError

    def error(self, eps: float, window: str) -> float:
        raise NotImplementedError

    def tile_error(self, window: str) -> float:
        """How far a cloud that was cut into tiles may be from the whole one."""
        return 3 * self.error(EPS, window)

    def assert_same(self, G: Tensor, other: Tensor, window: str) -> None:
        """Two answers of the engine, each with its own error."""
        assert mean_error(G, other) <= 2 * self.error(EPS, window)

    def test_moving_the_cloud_changes_nothing(self, window: str, generator: Generator) -> None:
        pos, A = CLOUDS["surface"](300, 3, generator), frequencies(3, 24, 12.0, generator)
        options = {"beta": BETA, "window": window, "eps": EPS}
        shift = torch.tensor([3.0, -7.25, 11.0], dtype=torch.float64)
        moved = pos + shift
        self.assert_same(
            self.encode(moved, A, **options), self.encode(moved - shift, A, **options), window
        )

    def test_millimetres_survive_coordinates_of_five_million(
        self, window: str, generator: Generator
    ) -> None:
        patch = CLOUDS["volume"](500, 3, generator) * torch.tensor([0.02, 0.02, 0.001])
        far = patch + torch.tensor([5e6, -5e6, 500.0], dtype=torch.float64)
        near = far - torch.tensor([5e6, -5e6, 500.0], dtype=torch.float64)  # exact
        A = frequencies(3, 24, 6 / 0.005, generator)
        options = {"radius": 0.005, "window": window}
        G, truth = self.encode(far, A, eps=EPS, **options), self.truth(near, A, **options)
        assert mean_error(G, truth) <= self.error(EPS, window)

    def test_a_far_outlier_costs_the_others_no_accuracy(
        self, window: str, generator: Generator
    ) -> None:
        pos, A = CLOUDS["surface"](200, 3, generator), frequencies(3, 24, 12.0, generator)
        pos[17] = torch.tensor([1e7, -3e5, 40.0])
        options = {"beta": BETA, "window": window}
        G, truth = self.encode(pos, A, eps=EPS, **options), self.truth(pos, A, **options)
        # Coordinates of 5e6 about the middle of the cloud have steps of 1e-9.
        assert mean_error(G, truth) <= max(self.error(EPS, window), 1e-6)

    def test_the_order_of_the_points_does_not_matter(
        self, window: str, generator: Generator
    ) -> None:
        pos, A = CLOUDS["clusters"](300, 3, generator), frequencies(3, 24, 12.0, generator)
        weights = torch.rand(300, generator=generator, dtype=torch.float64)
        options = {"beta": BETA, "window": window, "eps": EPS}
        order = torch.randperm(300, generator=generator)
        shuffled = self.encode(pos[order], A, weights=weights[order], **options)
        self.assert_same(shuffled, self.encode(pos, A, weights=weights, **options)[order], window)

    def test_a_mirrored_cloud_has_the_conjugate_encoding(
        self, window: str, generator: Generator
    ) -> None:
        pos, A = CLOUDS["surface"](300, 3, generator), frequencies(3, 24, 12.0, generator)
        options = {"beta": BETA, "window": window, "eps": EPS}
        mirrored = self.encode(-pos, A, **options)
        self.assert_same(mirrored, self.encode(pos, A, **options).conj(), window)

    def test_a_batch_vector_is_a_loop_over_the_clouds(
        self, window: str, generator: Generator
    ) -> None:
        pos, A = CLOUDS["surface"](300, 3, generator), frequencies(3, 24, 12.0, generator)
        batch = torch.tensor([0, 1, 3, 6]).repeat_interleave(torch.tensor([170, 1, 29, 100]))
        pos = pos + 100.0 * batch[:, None]  # as scans come: not about a common origin
        options = {"beta": BETA, "window": window, "eps": EPS}
        loop = [self.encode(pos[batch == c], A, **options) for c in batch.unique()]
        self.assert_same(self.encode(pos, A, batch=batch, **options), torch.cat(loop), window)

    def test_clouds_in_one_place_do_not_see_each_other(
        self, window: str, generator: Generator
    ) -> None:
        pos, A = CLOUDS["volume"](200, 3, generator), frequencies(3, 24, 12.0, generator)
        options = {"beta": BETA, "window": window, "eps": EPS}
        batch = torch.arange(3).repeat_interleave(200)
        G = self.encode(pos.repeat(3, 1), A, batch=batch, **options)
        self.assert_same(G, self.encode(pos, A, **options).repeat(3, 1), window)

    def test_a_stack_of_clouds_is_a_loop_over_the_clouds(
        self, window: str, generator: Generator
    ) -> None:
        pos = torch.stack([make(120, 3, generator) for make in CLOUDS.values()])
        queries, A = pos[:, ::3].clone(), frequencies(3, 24, 12.0, generator)
        weights = torch.rand(3, 120, generator=generator, dtype=torch.float64)
        options = {"beta": BETA, "window": window, "eps": EPS}
        for q in (None, queries):
            stack = self.encode(pos, A, weights=weights, queries=q, **options)
            loop = [
                self.encode(x, A, weights=w, queries=None if q is None else q[i], **options)
                for i, (x, w) in enumerate(zip(pos, weights, strict=True))
            ]
            assert stack.shape == (*(pos if q is None else q).shape[:2], 24)
            self.assert_same(stack, torch.stack(loop), window)

    def test_queries_that_are_some_of_the_points_get_their_encodings(
        self, window: str, generator: Generator
    ) -> None:
        pos, A = CLOUDS["surface"](300, 3, generator), frequencies(3, 24, 12.0, generator)
        options = {"beta": BETA, "window": window, "eps": EPS}
        some = torch.randperm(300, generator=generator)[:70]
        G = self.encode(pos, A, queries=pos[some], **options)
        self.assert_same(G, self.encode(pos, A, **options)[some], window)

    def test_whole_number_weights_are_points_that_occur_so_often(
        self, window: str, generator: Generator
    ) -> None:
        pos, A = CLOUDS["surface"](200, 3, generator), frequencies(3, 24, 12.0, generator)
        times = torch.randint(0, 4, (200,), generator=generator)
        options = {"beta": BETA, "window": window, "eps": EPS, "queries": pos, "norm": "mean"}
        G = self.encode(pos, A, weights=times.double(), **options)
        repeated = pos.repeat_interleave(times, dim=0)
        self.assert_same(G, self.encode(repeated, A, **options), window)

    def test_a_point_of_weight_zero_is_not_there(self, window: str, generator: Generator) -> None:
        pos, A = CLOUDS["clusters"](300, 3, generator), frequencies(3, 24, 12.0, generator)
        keep = torch.rand(300, generator=generator) < 0.7
        options = {"beta": BETA, "window": window, "eps": EPS}
        G = self.encode(pos, A, weights=keep.double(), **options)[keep]
        self.assert_same(G, self.encode(pos[keep], A, **options), window)

    def test_the_sums_are_linear_in_the_weights(self, window: str, generator: Generator) -> None:
        pos, A = CLOUDS["volume"](300, 3, generator), frequencies(3, 24, 12.0, generator)
        first, second = torch.randn(2, 300, generator=generator, dtype=torch.float64)
        options = {"beta": BETA, "window": window, "eps": EPS, "norm": None}
        both = self.encode(pos, A, weights=2 * first - second, **options)
        parts = [self.encode(pos, A, weights=w, **options) for w in (first, second)]
        assert_rounding(both, 2 * parts[0] - parts[1])

    def test_tiles_with_a_halo_give_the_whole(self, window: str, generator: Generator) -> None:
        pos, A = CLOUDS["surface"](600, 3, generator), frequencies(3, 24, 12.0, generator)
        options = {"beta": BETA, "window": window, "eps": EPS}
        halo = make_window(window, BETA, None).reach(EPS / 10, 3)
        whole = self.encode(pos, A, **options)
        tiled = torch.zeros_like(whole)
        for sign in (-1, 1):
            inside, reached = sign * pos[:, 0] >= 0, sign * pos[:, 0] >= -halo
            tiled[inside] = self.encode(pos[reached], A, queries=pos[inside], **options)
        assert mean_error(tiled, whole) <= self.tile_error(window)

    def test_strided_and_expanded_tensors_are_as_good_as_contiguous_ones(
        self, window: str, generator: Generator
    ) -> None:
        pos, A = CLOUDS["surface"](200, 3, generator), frequencies(3, 24, 12.0, generator)
        one = torch.ones(1, dtype=torch.float64)
        options = {"beta": BETA, "window": window, "eps": EPS}
        plain = self.encode(pos, A, weights=one.repeat(200), queries=pos[::2].clone(), **options)
        strided = self.encode(
            pos.t().contiguous().t(),
            A.t().contiguous().t(),
            weights=one.expand(200),
            queries=torch.stack([pos, pos], 1).flatten(0, 1)[::4],
            **options,
        )
        assert_rounding(strided, plain)

    def test_an_expanded_point_is_as_many_equal_points(
        self, window: str, generator: Generator
    ) -> None:
        A = frequencies(3, 24, 12.0, generator)
        point = torch.tensor([[0.3, -2.0, 7.0]], dtype=torch.float64).expand(50, 3)
        G = self.encode(point, A, beta=BETA, window=window, eps=EPS, norm=None)
        truth = torch.full((50, 24), 50.0 + 0j, dtype=torch.complex128)
        # Three times, because eps is a mean over places and this may be the worst of all.
        assert mean_error(G, truth) <= 3 * self.error(EPS, window)
