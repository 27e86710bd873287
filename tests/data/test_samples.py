"""Samples and batches, and sets that are parted and drawn from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from releases import stored

from veckm.data.augment import Augment
from veckm.data.reading import cached, checksum
from veckm.data.samples import (
    IGNORE,
    Sample,
    collate,
    generator_of,
    hold_out,
    pick_points,
    take,
)


def sample(n: int = 8, seed: int = 0) -> Sample:
    g = generator_of(seed, "sample")
    normal = torch.nn.functional.normalize(torch.randn(n, 3, generator=g), dim=-1)
    return Sample("one", torch.randn(n, 3, generator=g), torch.arange(n), normal, category=3)


def test_a_batch_has_every_field_of_its_samples() -> None:
    batch = collate([sample(seed=0), sample(seed=1)])
    assert batch.pos.shape == batch.features.shape == (2, 8, 3)
    assert batch.label.shape == (2, 8)
    assert batch.category.tolist() == [3, 3]
    assert len(batch.to("cpu")) == 2


def test_samples_that_are_not_alike_are_named() -> None:
    with pytest.raises(ValueError, match=r"two has 9 points.*but one has 8 points"):
        collate([sample(8), replace(sample(9), name="two")])
    with pytest.raises(ValueError, match="no category"):
        collate([sample(), replace(sample(), category=None)])
    with pytest.raises(ValueError, match="at least one"):
        collate([])


def test_validation_is_the_same_for_the_same_seed_and_shares_nothing_with_training() -> None:
    data = stored(20)
    train, val = hold_out(data, 0.25, seed=3)
    assert sorted(train.entries + val.entries) == list(range(20))
    assert len(val) == 5
    assert val.entries == hold_out(data, 0.25, seed=3)[1].entries
    assert val.entries != hold_out(data, 0.25, seed=4)[1].entries
    assert val.checksum != train.checksum
    assert val[0].name == f"cloud {val.entries[0]}"
    assert len(take(data, 7)) == 7
    assert len(take(data, 70)) == 20
    with pytest.raises(ValueError, match=r"share in \(0, 1\)"):
        hold_out(data, 1.0)


def test_a_set_is_a_sequence() -> None:
    data = stored(3)
    assert [s.name for s in data] == ["cloud 0", "cloud 1", "cloud 2"]
    assert data[-1].name == "cloud 2"
    assert data.in_channels == 0
    with pytest.raises(IndexError, match="there are 3 samples"):
        data[3]


def test_keys_give_generators_of_their_own() -> None:
    first = [torch.rand(1, generator=generator_of(0, e, "order")).item() for e in range(50)]
    assert len(set(first)) == 50
    assert first[7] == torch.rand(1, generator=generator_of(0, 7, "order")).item()


def test_points_that_are_taken_twice_do_not_count() -> None:
    more = pick_points(sample(8), 11, generator_of(0))
    assert sorted(more.label[:8].tolist()) == list(range(8))
    assert (more.label[8:] == IGNORE).all()
    fewer = pick_points(sample(8), 5, generator_of(0))
    assert len(set(fewer.label.tolist())) == 5
    assert torch.equal(fewer.pos, sample(8).pos[fewer.label])
    assert torch.equal(fewer.features, sample(8).features[fewer.label])


@pytest.mark.parametrize("per_axis", [True, False])
def test_augmentation_scales_and_moves_within_its_ranges(per_axis: bool) -> None:
    s = sample(30)
    seen = []
    for seed in range(100):
        moved = Augment(per_axis=per_axis)(s, generator_of(seed, "augment"))
        size = moved.pos.std(0) / s.pos.std(0)
        shift = moved.pos.mean(0) - size * s.pos.mean(0)
        seen.append(torch.cat((size, shift)))
        assert torch.equal(moved.label, s.label)
        if not per_axis:
            torch.testing.assert_close(size, size[:1].expand(3))
    scale, shift = torch.stack(seen).split(3, 1)
    assert 0.669 < float(scale.min()) < 0.72
    assert 1.42 < float(scale.max()) < 1.501
    assert 0.19 < float(shift.abs().max()) < 0.2001


def test_dropped_points_are_gone_with_all_that_is_theirs() -> None:
    s = sample(40)
    augment = Augment(translation=0, scale=(1, 1), drop=0.8)
    shares = [augment.share(generator_of(seed)) for seed in range(60)]
    assert 0 <= min(shares) < 0.1
    assert 0.7 < max(shares) <= 0.8
    for seed, share in enumerate(shares):
        thin = augment(s, generator_of(seed), share)
        assert len(thin.pos) == 40 - int(share * 40)
        apart = (thin.pos[:, None] == s.pos).all(-1)  # every row is one of the sample, and once
        assert torch.equal(apart.sum(1), torch.ones(len(thin.pos), dtype=torch.int64))
        assert int(apart.sum(0).max()) == 1
        assert torch.equal(thin.features, s.features[apart.int().argmax(1)])
    assert Augment().share(generator_of(0)) == 0
    assert torch.equal(augment(s, generator_of(0)).pos, s.pos)
    with pytest.raises(ValueError, match="share of the points"):
        Augment(drop=1.0)


def test_dropped_points_may_move_to_the_first() -> None:
    s = sample(400)
    augment = Augment(translation=0, scale=(1, 1), drop=0.8, keep_dropped=True)
    assert augment.share(generator_of(0)) == 0  # every cloud draws its own
    shares = []
    for seed in range(60):
        moved = augment(s, generator_of(seed))
        kept = (moved.pos == s.pos).all(-1)
        assert torch.equal(moved.pos[~kept], s.pos[:1].expand(int((~kept).sum()), 3))
        assert torch.equal(moved.features[~kept], s.features[:1].expand(int((~kept).sum()), -1))
        shares.append(1 - float(kept.float().mean()))
    assert min(shares) < 0.1
    assert 0.7 < max(shares) < 0.9


def test_augmentation_is_of_its_generator_and_turns_normals_with_the_surface() -> None:
    s = sample()
    one, two = (Augment()(s, generator_of(5)) for _ in range(2))
    assert torch.equal(one.pos, two.pos)
    moved = Augment(normals=True)(s, generator_of(5))
    torch.testing.assert_close(moved.features.norm(dim=-1), torch.ones(8))
    scale = (one.pos[0] - one.pos[1]) / (s.pos[0] - s.pos[1])
    tangent = torch.linalg.cross(s.features[0], torch.tensor([0.3, 0.5, 0.8]))
    assert abs(float(moved.features[0] @ (tangent * scale))) < 1e-5
    with pytest.raises(ValueError, match="range of positive numbers"):
        Augment(scale=(1.5, 0.67))


def test_a_cache_is_made_once_for_a_key_and_again_if_it_is_broken(tmp_path) -> None:
    calls = []

    def make() -> dict[str, np.ndarray]:
        calls.append(1)
        return {"a": np.arange(3)}

    for _ in range(2):
        assert cached(tmp_path / "c", "set", {"points": 3}, make)["a"].tolist() == [0, 1, 2]
    assert len(calls) == 1
    (path,) = (tmp_path / "c").iterdir()
    assert path.name.startswith("set-")
    path.write_bytes(path.read_bytes()[:40])
    cached(tmp_path / "c", "set", {"points": 3}, make)
    cached(tmp_path / "c", "set", {"points": 4}, make)
    cached(None, "set", {"points": 3}, make)
    assert len(calls) == 4
    assert len(list((tmp_path / "c").iterdir())) == 2


def test_the_checksum_is_of_names_and_sizes(tmp_path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("12")
    files = [tmp_path / "a", tmp_path / "b"]
    first = checksum(tmp_path, files)
    assert checksum(tmp_path, files[::-1]) == first
    (tmp_path / "b").write_text("123")
    assert checksum(tmp_path, files) != first
