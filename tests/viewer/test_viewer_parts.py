"""The parts of the viewer that need no browser."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

pytest.importorskip("viser", reason="viser is not installed: pip install 'veckm[viewer]'")

from veckm.cloud import PointCloud
from veckm.data import shapes
from veckm.functional import similarity
from veckm.palette import Palette
from veckm.viewer import DisplayCloud, encodings, serve
from veckm.viewer.camera import likely_up
from veckm.viewer.colors import DIVERGING, SEQUENTIAL, by_range, by_signed, map_colors
from veckm.viewer.display import thin
from veckm.viewer.encodings import Encodings, Settings, match
from veckm.viewer.picked import cross_section, draw
from veckm.viewer.scene import SceneCloud, pick
from veckm.viewer.worker import Worker


@pytest.fixture
def display(cloud):
    return DisplayCloud.of(cloud, "statue")


def test_thinning_keeps_sparse_places_whole_and_counts_exactly():
    rng = np.random.default_rng(0)
    dense, sparse = (
        rng.random((20_000, 3)) * [1, 1, 0],
        rng.random((300, 3)) * [9, 9, 0] + [2, 0, 0],
    )
    xyz = np.concatenate([dense, sparse])
    rows = thin(xyz, 4000)
    assert len(rows) == len(np.unique(rows)) == 4000
    assert (np.diff(rows) > 0).all()
    assert (rows >= 20_000).sum() == 300  # a random choice would keep 60
    np.testing.assert_array_equal(rows, thin(xyz, 4000))


def test_a_small_cloud_is_shown_whole_and_a_large_one_says_what_is_left_out(cloud):
    assert DisplayCloud.of(cloud).note == "8,000 points, all shown"
    some = DisplayCloud.of(cloud, limit=1000)
    assert len(some) == 1000
    assert "1,000 of 8,000 points shown" in some.note


def test_points_that_coincide_can_be_shown():
    display = DisplayCloud.of(PointCloud(np.ones((5, 3))))
    assert display.size == 1.0
    assert len(DisplayCloud.of(PointCloud(np.ones((50, 3))), limit=10)) == 10


@pytest.mark.parametrize(
    ("pos", "word"), [(np.zeros((0, 3)), "0 points"), (np.zeros((1, 3)), "1 point;")]
)
def test_too_few_points_are_refused(pos, word):
    with pytest.raises(ValueError, match=word):
        DisplayCloud.of(PointCloud(pos))


def test_points_without_coordinates_are_left_out_and_the_others_keep_their_numbers():
    pos = np.array([[0, 0, 0], [np.nan, 0, 0], [1, 0, 0], [0, np.inf, 0], [0, 0, 2.0]])
    display = DisplayCloud.of(PointCloud(pos, fields={"k": np.arange(5)}))
    assert [display.number(row) for row in range(3)] == [0, 2, 4]
    assert display.cloud.fields["k"].tolist() == [0, 2, 4]
    assert "NaN coordinates left out" in display.note
    np.testing.assert_allclose(display.at.numpy() + display.center, pos[[0, 2, 4]])


def test_far_coordinates_keep_their_precision():
    pos = np.random.default_rng(0).random((100, 3)) * 30
    origin = np.array([5e5, 4.9e6, 2e3])
    for cloud in (PointCloud(pos, origin), PointCloud(pos + origin)):
        display = DisplayCloud.of(cloud)
        found = display.at.double().numpy() + (display.center - origin)
        np.testing.assert_allclose(found, pos, atol=2e-6)


def test_ramps_begin_and_end_with_their_colors_and_rise_in_grey():
    ramp = map_colors(np.array([-1.0, 0.0, 1.0, 2.0]), 0.0, 1.0)
    np.testing.assert_array_equal(
        ramp, [SEQUENTIAL[0], SEQUENTIAL[0], SEQUENTIAL[-1], SEQUENTIAL[-1]]
    )
    gray = map_colors(np.linspace(0, 1, 64), 0, 1) @ np.array([0.299, 0.587, 0.114])
    assert (np.diff(gray) > 0).all()  # so the color-blind see the order


def test_legends_tell_the_ends():
    values = np.linspace(1000.001, 1000.003, 500)
    low, high = by_range(values, "z").legend.labels
    assert low != high
    assert by_signed(np.array([-1.0, 3.0]), "H").legend.labels[1] == "0"
    np.testing.assert_array_equal(
        by_signed(np.array([-2.0, 0.0, 2.0]), "H").rgb,
        [DIVERGING[0], DIVERGING[2], DIVERGING[-1]],
    )
    assert "&lt;b&gt;" in by_range(values, "<b>").legend.html()


def test_a_ray_hits_the_near_side_and_misses_beside():
    points = np.array([[0, 0, 0.0], [0, 2, 0], [0.5, 0, 0]])
    eye = (0.0, -3.0, 0.0)
    assert pick(points, eye, (0.0, 1.0, 0.0)) == (0, 3.0)
    assert pick(points, (0.0, 5.0, 0.0), (0.0, -1.0, 0.0)) == (1, 3.0)
    assert pick(points, eye, (0.0, 0.0, 1.0)) is None
    assert pick(points, eye, (0.0, -1.0, 0.0)) is None  # all points are behind


def test_chunks_are_what_the_whole_is(display, monkeypatch):
    settings = Settings.suggested(display)
    whole = Encodings(display, settings)
    g = whole.row(7)
    monkeypatch.setattr(encodings, "_CACHE_BYTES", 0)
    monkeypatch.setattr(encodings, "_CHUNK", 700)
    chunks = Encodings(display, settings)
    np.testing.assert_allclose(chunks.similarity(g), whole.similarity(g), atol=0.02)
    assert float(similarity(chunks.row(7), g)) == pytest.approx(1, abs=0.02)
    rows = torch.cat([rows for rows, _ in chunks.chunks()])
    assert torch.equal(rows.sort().values, torch.arange(8000))


def test_shown_points_see_those_that_are_not_shown(cloud):
    whole, some = DisplayCloud.of(cloud), DisplayCloud.of(cloud, limit=500)
    settings = Settings.suggested(whole)
    a, b = Encodings(whole, settings), Encodings(some, settings)
    G = a.of(some.rows)
    assert float(similarity(G, b.of(torch.arange(500))).min()) > 0.98


def test_colors_are_stable_and_tell_places_apart(display):
    settings = Settings.suggested(display)
    one, two = Encodings(display, settings), Encodings(display, settings)
    a, b = (each.colors(each.palette()) for each in (one, two))
    np.testing.assert_array_equal(a.rgb, b.rgb)
    assert (a.rgb.std(0) > 30).all()
    assert a.legend.labels[0].startswith("component 1: ")


def test_an_encoding_is_most_similar_to_itself(display):
    encoded = Encodings(display, Settings.suggested(display))
    values = encoded.similarity(encoded.row(42))
    assert values.argmax() == 42
    assert values[42] == pytest.approx(1, abs=1e-5)
    assert np.median(values) < 0.9


def test_the_encoding_alone_knows_the_neighborhood(display):
    settings = Settings(
        Settings.suggested(display).radius, dim=4096
    )  # it tends to the truth with D
    found = cross_section(Encodings(display, settings), 10)
    assert found.agreement > 0.97
    assert found.seen == int(((display.pos - display.pos[10]).norm(dim=1) <= settings.radius).sum())
    image = draw(found)
    assert (image.shape, image.dtype) == ((180, 368, 3), np.uint8)
    middle = image[80:100, 188 + 80 : 188 + 100].mean((0, 1))  # of the density
    assert middle[1] > image[:20, 188:208].mean((0, 1))[1] + 60  # bright where the point is


def test_fewer_numbers_know_it_less_well(display):
    settings = Settings.suggested(display)
    few = Settings(settings.radius, settings.detail, dim=16)
    agreement = [
        np.mean([cross_section(each, row).agreement for row in range(0, 8000, 800)])
        for each in (Encodings(display, few), Encodings(display, settings))
    ]
    assert agreement[0] < agreement[1] - 0.05


def test_noise_lowers_the_similarity_of_matching_points(display):
    settings = Settings.suggested(display)
    clean = Encodings(display, settings)
    rows, rule = match(display, display)
    assert rule == "row by row"
    noisy = [Encodings(display, Settings(settings.radius, noise=n)) for n in (0.0, 0.005, 0.02)]
    means = [each.similarity(lambda some: clean.of(rows[some])).mean() for each in noisy]
    assert means[0] == pytest.approx(1, abs=1e-4)
    assert means[0] > means[1] > means[2]


def test_clouds_of_other_sizes_match_by_the_nearest_point(cloud):
    first = DisplayCloud.of(cloud)
    second = DisplayCloud.of(cloud[np.arange(0, 8000, 3)], frame=first)
    rows, rule = match(second, first)
    assert rule == "by the nearest point"
    assert torch.equal(rows, torch.arange(0, 8000, 3))


def test_the_file_s_own_normals_are_shown_unless_noise_is_added(cloud):
    up = np.tile(np.array([0.0, 0.0, 2.0], dtype=np.float32), (8000, 1))
    display = DisplayCloud.of(cloud.with_normals(up))
    own, noisy = (Encodings(display, Settings(1.0, noise=n)) for n in (0.0, 0.01))
    assert torch.equal(own.surface().normal, torch.from_numpy(up / 2))
    assert noisy.own_normals is None
    assert float(noisy.surface().normal[:, 2].min()) < 0.5


def test_few_points_have_normals_with_a_large_expected_error():
    display = DisplayCloud.of(PointCloud(np.eye(3)[:2]), "two")
    found = Encodings(display, Settings(1.0)).surface()
    assert torch.allclose(found.normal.norm(dim=1), torch.ones(2))
    assert found.error.tolist() == [60.0, 60.0]


def test_of_many_requests_the_worker_serves_the_last():
    seen, wanted, errors = [], [0], []
    worker = Worker(lambda: seen.append(wanted[0]), errors.append)
    for k in range(20):
        wanted[0] = k
        worker.request()
    worker.wait(10)
    assert seen == [19]
    worker.stop()
    assert not errors


def test_a_worker_that_is_still_busy_can_be_stopped():
    begun, go_on = threading.Event(), threading.Event()
    worker = Worker(lambda: (begun.set(), go_on.wait(10)), lambda _: None)
    worker.request()
    assert begun.wait(10)
    with pytest.raises(TimeoutError, match="still busy"):
        worker.wait(0.01)
    worker.stop(0.01)  # Ctrl-C is no error
    go_on.set()
    worker.wait(10)


def test_the_worker_outlives_an_error_and_tells_it():
    errors, calls = [], threading.Semaphore(0)

    def work():
        calls.release()
        raise ValueError("no")

    worker = Worker(work, errors.append)
    for _ in range(2):
        worker.request()
        worker.wait(10)
    worker.stop()
    assert [str(error) for error in errors] == ["no", "no"]


def test_a_box_has_few_colors_and_a_statue_many():
    radius = 0.3
    box = DisplayCloud.of(PointCloud(shapes.box(2000).pos.numpy()))
    encoded = Encodings(box, Settings(radius))
    G = encoded.of(torch.arange(2000))
    inner = (box.pos.abs() < torch.tensor([0.4, 0.25, 0.45])).all(1)  # on top and bottom
    # All pairs: with one point alone it is 0.79 to 0.87, depending on the sample.
    like = similarity(G[inner][:, None], G[inner])
    assert float(like.mean()) > 0.8  # a plane is a plane


def test_a_palette_spreads_the_projections_over_the_bytes():
    generator = torch.Generator().manual_seed(0)
    G = torch.randn(400, 8, dtype=torch.complex64, generator=generator)
    palette = Palette.of(G)
    share = (palette.components.project(G) - palette.low) / (palette.high - palette.low)
    expected = (share.clamp(0, 1) * 255).round()
    assert float((palette.colors(G).float() - expected).abs().max()) <= 1  # of rounding
    assert 0 < sum(palette.shares) < 1


def test_up_is_minus_y_for_what_a_depth_camera_sees_and_z_for_all_else():
    rng = np.random.default_rng(0)
    z = rng.uniform(0.8, 3.5, 5000)
    frame = np.stack([z * rng.uniform(-0.55, 0.55, 5000), z * rng.uniform(-0.4, 0.4, 5000), z], 1)
    assert likely_up(frame) == "-y"
    assert likely_up(frame - [0, 0, 2]) == "z"  # points behind it
    assert likely_up(rng.random((5000, 3)) * [6, 5, 3] + [0, 0, 0.1]) == "z"  # a room
    assert likely_up(rng.random((5000, 3)) * [900, 900, 30] + [5e5, 4e6, 100]) == "z"


def test_a_sample_is_sent_first_and_the_rest_when_it_is_drawn():
    placed = np.random.default_rng(0).random((600_000, 3), dtype=np.float32)
    rgb = np.zeros((600_000, 3), np.uint8)
    with serve(port=0) as server:
        scene = SceneCloud(server.scene, "first")
        scene.draw_at_most(1)
        scene.draw(placed, rgb, 0.01)
        assert [len(part.points) for part in scene._points] == [200_000]
        np.testing.assert_array_equal(scene._points[0].points, placed[::3])
        scene.draw_at_most(600_000)
        assert sum(len(part.points) for part in scene._points) == 600_000
        scene.draw(placed, rgb + 9, 0.02)  # only the colors change
        assert all((part.colors == 9).all() for part in scene._points)
        scene.draw_at_most(250_000)
        assert [part.visible for part in scene._points] == [True, False, False]
        scene.draw(placed[:1000], rgb[:1000], 0.01)
        assert [len(part.points) for part in scene._points] == [1000]
