"""What a cloud is colored by, light and shade, the camera, and two clouds before and after."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("viser", reason="viser is not installed: pip install 'veckm[viewer]'")

import veckm
from veckm.cloud import PointCloud
from veckm.viewer import Alignment, DisplayCloud
from veckm.viewer.alignment import Described, move
from veckm.viewer.camera import UPS, VIEWS, basis, fit
from veckm.viewer.colors import CATEGORIES, SEQUENTIAL
from veckm.viewer.fields import by_field, by_file, choices, first_color
from veckm.viewer.picked import describe_fields
from veckm.viewer.shading import shade

RNG = np.random.default_rng(0)
POS = RNG.random((300, 3))


def cloud(**fields: np.ndarray) -> PointCloud:
    return PointCloud(POS, fields=fields)


def test_the_first_picture_is_of_the_best_that_there_is():
    some, same = RNG.integers(0, 200, 300), np.full(300, 7)
    rgb = {"red": some, "green": some, "blue": some}
    assert first_color(cloud()) == "height"
    assert first_color(cloud(intensity=some)) == "intensity"
    assert first_color(cloud(intensity=some, classification=some % 3)) == "classification"
    assert first_color(cloud(classification=some % 3, **rgb)) == "file"
    flat = {name: np.zeros(300) for name in rgb}  # many files have colors that are all zero
    assert first_color(cloud(classification=same, intensity=some, **flat)) == "intensity"


def test_every_field_that_varies_can_be_chosen():
    some = RNG.random(300)
    found = choices(cloud(time=some, user=np.zeros(300), flags=np.eye(300)[:, :2], curvature=some))
    assert [key for key in found if key not in ("height", "normals", "confidence", "encoding")] == [
        "time", "flags 0", "flags 1", "curvature", "similarity", "match"
    ]  # fmt: skip
    assert found["curvature"] == "curvature of the file"
    assert "file" not in found
    assert "file" in choices(cloud(colors=RNG.random((300, 3))))


def test_classes_have_the_names_of_asprs_and_their_shares():
    values = np.repeat(np.array([2, 5, 6, 99], dtype=np.uint8), [150, 90, 45, 15])
    coloring = by_field("classification", values)
    assert coloring.legend.labels == (
        "2 ground (50.0%)",
        "5 high vegetation (30.0%)",
        "6 building (15.0%)",
        "99  (5.0%)",
    )
    assert len(np.unique(coloring.rgb, axis=0)) == 4
    np.testing.assert_array_equal(coloring.rgb[0], coloring.legend.colors[0])
    page = describe_fields(DisplayCloud.of(cloud(classification=values)), 0)
    assert "classification: 2 ground" in page


def test_few_integers_are_categories_and_many_or_real_values_are_not():
    few, many, real = RNG.integers(1, 5, 300), RNG.integers(0, 9000, 300), RNG.random(300)
    np.testing.assert_array_equal(by_field("returns", few).legend.colors, CATEGORIES[:4])
    assert by_field("returns", many).legend.colors == SEQUENTIAL
    assert by_field("returns", real).legend.colors == SEQUENTIAL
    real[0] = np.nan
    assert by_field("with a gap", real).rgb.shape == (300, 3)


def test_a_legend_lists_the_most_frequent_of_many_labels():
    values = np.concatenate([np.arange(40), np.zeros(20, dtype=int)])
    legend = by_field("label", values).legend
    assert len(legend.labels) == 20
    assert legend.labels[0].startswith("0 ")
    assert legend.note == "and 20 rarer values"


@pytest.mark.parametrize(
    "colors",
    [
        np.array([[255, 128, 0]], dtype=np.uint8),
        np.array([[65535, 32896, 0]], dtype=np.uint16),
        np.array([[1.0, 128 / 255, 0.0]]),
    ],
)
def test_files_colors_come_in_three_ranges(colors):
    np.testing.assert_array_equal(by_file(colors).rgb, [[255, 128, 0]])


def test_faces_of_a_box_differ_in_brightness_and_a_face_is_even():
    u, v = RNG.random((2, 4000))
    faces = [np.stack(np.insert([u, v], axis, 0.0, axis=0), 1) for axis in range(3)]
    at = np.concatenate(faces).astype(np.float32)
    gray = shade(np.full((12000, 3), 200, dtype=np.uint8), at)[:, 0].reshape(3, 4000)
    inner = (np.sort(at, axis=1)[:, 1] > 0.25).reshape(3, 4000)  # away from the edges
    middle = [np.median(face[keep]) for face, keep in zip(gray, inner, strict=True)]
    assert np.diff(np.sort(middle)).min() > 5
    for face, keep, value in zip(gray, inner, middle, strict=True):
        assert np.abs(face[keep].astype(int) - value).max() < 8


@pytest.mark.parametrize("up", UPS)
@pytest.mark.parametrize("view", VIEWS)
def test_each_view_fills_the_page_and_has_up_above(view, up):
    points = RNG.random((5000, 3)) * [10, 4, 1] @ basis(up)
    fov, aspect = 0.9, 1.3
    eye, target = fit(points, view, up, aspect, fov)
    back = (eye - target) / np.linalg.norm(eye - target)
    right = np.cross(basis(up)[2], back)
    right /= np.linalg.norm(right)
    above = np.cross(back, right)
    depth = (eye - points) @ back
    assert depth.min() > 0
    page = np.stack([(points - eye) @ right / aspect, (points - eye) @ above], 1)
    page /= depth[:, None] * np.tan(fov / 2)  # from -1 to 1 is the page
    assert (np.abs(page) <= 1).all(1).mean() > 0.97
    assert np.ptp(np.quantile(page, [0.01, 0.99], axis=0), axis=0).max() > 1.4
    assert above @ basis(up)[2] > 0 or view == "Top"


def test_the_view_ignores_a_few_points_that_are_far_away():
    far = np.concatenate([POS, [[900.0, 0, 0]]])
    np.testing.assert_allclose(fit(far, "Fit")[0], fit(POS, "Fit")[0], atol=0.2)


def turned_pair() -> tuple[DisplayCloud, DisplayCloud, np.ndarray]:
    """A cloud, the same turned and far away, and the transform."""
    R = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = R * np.linalg.det(R), [5e5, 4e6, 100.0]
    moved = PointCloud(POS @ T[:3, :3].T, T[:3, 3])
    return DisplayCloud.of(PointCloud(POS), "a"), DisplayCloud.of(moved, "b"), T


def test_an_alignment_moves_the_first_cloud_onto_the_second():
    first, second, T = turned_pair()
    placed = move(first.at.numpy(), Alignment(T).between(first, second))
    np.testing.assert_allclose(placed, second.at.numpy(), atol=1e-5)


def test_wrong_alignments_are_refused():
    with pytest.raises(ValueError, match="4 x 4"):
        Alignment(np.eye(3))
    with pytest.raises(ValueError, match=r"\(K, 2, 3\)"):
        Alignment(np.eye(4), np.zeros((5, 6)))
    with pytest.raises(ValueError, match="each of the 5 matches"):
        Alignment(np.eye(4), np.zeros((5, 2, 3)), np.ones(4, dtype=bool))


def test_many_matches_are_thinned_with_their_inliers():
    pairs = np.broadcast_to(np.arange(3000.0)[:, None, None], (3000, 2, 3))
    shown, good = Alignment(np.eye(4), pairs, np.arange(3000) % 3 == 0).shown_matches()
    assert len(shown) == len(good) == 200
    np.testing.assert_array_equal(shown[:, 0, 0] % 3 == 0, good)


def test_descriptors_that_do_not_change_when_a_cloud_turns_find_the_same_place():
    first, second, _ = turned_pair()

    def describe(pos, at, radius):  # how much the surroundings extend in each direction
        cov = veckm.moments(pos, radius=radius, queries=at).covariance
        return torch.linalg.eigvalsh(cov)

    one, other = Described((first, second), 0.3, describe).similarity(0, 42)
    assert one[42] == pytest.approx(1, abs=1e-5)
    assert one.argmax() == 42
    np.testing.assert_allclose(other, one, atol=0.02)
