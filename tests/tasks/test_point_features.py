"""Named features: against the definition, in tiles, as fields of files, in scikit-learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import veckm
from veckm import scan
from veckm.cli import main
from veckm.data import shapes
from veckm.tasks.features import EIGEN_COLUMNS, HEIGHT, FeatureConfig, suggest_radii

RADIUS = 0.3


def street(count: int = 3000) -> Tensor:  # (N, 3) float64
    return shapes.lidar(count, seed=3).pos.double()


def by_definition(pos: Tensor, radius: float) -> dict[str, np.ndarray]:
    """All pairs, one point after the other, with NumPy's own eigenvalues."""
    x, beta = pos.numpy(), 1.8 / radius
    rows = []
    for q in x:
        d = x - q
        w = np.exp(-(beta**2) * (d**2).sum(1) / 2)
        mean = w @ d / w.sum()
        values, vectors = np.linalg.eigh((d - mean).T @ ((d - mean) * w[:, None]) / w.sum())
        l3, l2, l1 = values.clip(0)
        e, n = values.clip(1e-300) / values.sum(), vectors[:, 0]
        rows.append(
            (
                (l1 - l2) / l1,
                (l2 - l3) / l1,
                l3 / l1,
                (l1 - l3) / l1,
                e.prod() ** (1 / 3),
                -(e * np.log(e)).sum(),
                e[0],
                1 - abs(n[2]),
                beta**2 * abs(mean @ n),
                w.sum() * beta**2 / (2 * np.pi),
            )
        )
    return dict(zip(EIGEN_COLUMNS, np.array(rows).T, strict=True))


def test_features_are_those_of_the_definition() -> None:
    pos = street(800)
    found = veckm.features(pos, RADIUS, invariants="none", height=False, eps=1e-4)
    for name, expected in by_definition(pos, RADIUS).items():
        off = np.abs(found[f"{name}_{RADIUS:g}"].numpy() - expected)
        assert np.median(off) <= 1e-3 * np.abs(expected).max(), name
        assert np.quantile(off, 0.98) <= 1e-2 * np.abs(expected).max(), name


def test_a_plane_is_planar_and_a_line_linear() -> None:
    side = torch.linspace(-1, 1, 41, dtype=torch.float64)
    u, v = torch.meshgrid(side, side, indexing="ij")
    middle = 41 * 20 + 20
    plane = torch.stack((u.flatten(), v.flatten(), 0 * v.flatten()), 1)
    flat = veckm.features(plane, RADIUS, invariants="none")
    assert flat[f"planarity_{RADIUS}"][middle] > 0.99
    assert flat[f"verticality_{RADIUS}"][middle] < 1e-6
    wall = veckm.features(plane[:, [0, 2, 1]], RADIUS, invariants="none")
    assert wall[f"verticality_{RADIUS}"][middle] > 1 - 1e-6
    per_area = flat[f"density_{RADIUS}"][middle] * (2 / 40) ** 2
    assert abs(per_area - 1) < 0.02
    line = torch.stack((side, 0 * side, 0 * side), 1)
    assert veckm.features(line, RADIUS, invariants="none")[f"linearity_{RADIUS}"][20] > 0.99


def test_the_curvature_of_a_sphere_is_one_over_its_radius() -> None:
    generator = torch.Generator().manual_seed(0)
    ball = torch.nn.functional.normalize(
        torch.randn(20_000, 3, generator=generator, dtype=torch.float64), dim=1
    )
    found = veckm.features(2 * ball, 0.3, invariants="none", height=False)["curvature_0.3"]
    assert abs(float(found.median()) - 0.5) < 0.02


def test_height_is_above_the_lowest_nearby_and_a_single_low_point_does_not_count() -> None:
    side = torch.linspace(0, 10, 51, dtype=torch.float64)
    u, v = torch.meshgrid(side, side, indexing="ij")
    ground = torch.stack((u.flatten(), v.flatten(), 0.05 * u.flatten()), 1)
    pole = torch.tensor([[5.0, 5.0, 2.25], [1.0, 9.0, -30.0]], dtype=torch.float64)
    found = veckm.features(torch.cat((ground, pole)), 0.2, invariants="none")[HEIGHT]
    assert 1.9 < float(found[-2]) < 2.25
    assert float(found[:-2].min()) >= 0
    assert float(found[:-2].max()) < 0.2


@pytest.mark.parametrize("invariants", ["gravity", "rotation"])
def test_turning_about_the_vertical_changes_nothing(invariants: str) -> None:
    pos, angle = street(1500), torch.tensor(0.7, dtype=torch.float64)
    turn = torch.eye(3, dtype=torch.float64)
    turn[:2, :2] = torch.tensor([[angle.cos(), -angle.sin()], [angle.sin(), angle.cos()]])
    options = {"invariants": invariants, "height": False, "eps": 1e-4}
    before = veckm.features(pos, RADIUS, **options)  # type: ignore[arg-type]
    after = veckm.features(pos @ turn.t(), RADIUS, **options)  # type: ignore[arg-type]
    for name, values in before.items():
        scale = float(values.abs().max()) or 1.0
        assert float((values - after[name]).abs().median()) < 5e-3 * scale, name


def test_tiles_have_the_features_of_the_whole(tmp_path: Path) -> None:
    pos = street(6000).numpy() + np.array([431_000.0, 5_400_000.0, 250.0])
    np.save(tmp_path / "cloud.npy", pos)
    config = FeatureConfig((0.15, RADIUS), eps=1e-3)
    scan.run(tmp_path / "cloud.npy", tmp_path / "out.ply", scan.Features(config), tile=1500)
    found = veckm.read(tmp_path / "out.ply").fields
    whole = veckm.features(torch.from_numpy(pos), config.radii, eps=config.eps)
    assert list(whole) == [name for name in config.columns]
    for name, values in whole.items():
        scale = float(values.abs().quantile(0.99)) or 1.0
        off = np.abs(found[name] - values.numpy())
        assert np.quantile(off, 0.99) <= 0.02 * scale, name
        if name == HEIGHT:
            np.testing.assert_allclose(found[name], values.numpy(), atol=1e-4)


def test_the_verb_adds_extra_fields(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cloud = veckm.PointCloud(street(500).numpy())
    veckm.write(tmp_path / "a.laz", cloud)
    out = tmp_path / "out.laz"
    assert main(["features", str(tmp_path / "a.laz"), "-o", str(out), "--radii", "0.2", "0.5"]) == 0
    assert "planarity" in capsys.readouterr().out
    fields = veckm.read(out).fields
    assert {"planarity_0.2", "density_0.5", "veckm0_0.2", HEIGHT} <= set(fields)
    assert np.isfinite(fields["planarity_0.5"]).all()


def test_suggested_radii_scale_with_the_cloud() -> None:
    pos = street(1000)
    small, large = suggest_radii(pos), suggest_radii(1000 * pos)
    np.testing.assert_allclose(np.array(large) / np.array(small), 1000, rtol=0.01)


@pytest.mark.parametrize(
    ("radii", "words"), [((), "radii is empty"), ((0.0,), "radii"), ((1.0, 1.0), "differ")]
)
def test_bad_radii_are_refused(radii: tuple[float, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        veckm.features(street(10), radii)


def test_it_is_a_step_of_a_pipeline() -> None:
    pytest.importorskip("sklearn", reason="sklearn is not installed")
    from sklearn.base import clone
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.pipeline import make_pipeline

    from veckm.tasks.transformer import FeatureTransformer

    pos = street(1500).numpy()
    high = pos[:, 2] > np.median(pos[:, 2])
    step = clone(FeatureTransformer(radii=(0.2,), invariants="none"))
    model = make_pipeline(step, RandomForestClassifier(20, random_state=0)).fit(pos, high)
    assert model.score(pos, high) > 0.9
    names = model[0].get_feature_names_out()
    assert names[-1] == HEIGHT
    assert model[0].transform(pos).shape == (1500, len(names))
