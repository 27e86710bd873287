"""The viewer in a real browser: what is on the page is checked in its pixels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tabs import SCENE, changed, drawn
from verbs import run

pytest.importorskip("viser", reason="viser is not installed: pip install 'veckm[viewer]'")


from veckm.cli.view import _describe
from veckm.cloud import PointCloud
from veckm.data import shapes
from veckm.tasks.registration import register
from veckm.viewer import Alignment, DisplayCloud, Page, serve
from veckm.viewer.colors import SEQUENTIAL, map_colors
from veckm.viewer.encodings import Settings
from veckm.viewer.server import address

#: Sliders in the order of the page.
SIZE, RADIUS, DETAIL, DIM, NOISE = range(5)


@pytest.fixture
def display(cloud):
    return DisplayCloud.of(cloud, "statue.ply")


@pytest.fixture
def live(display, open_tab):
    """A served page and the tab that shows it."""
    with serve(port=0) as server:
        page = Page(server, display, color="encoding")
        page.start()
        page.wait()
        tab = open_tab(address(server))
        yield page, tab
        page.stop()
        assert tab.errors == []


def on_ramp(image: np.ndarray) -> float:
    """Share of the drawn pixels whose color is one of the similarity's ramp."""
    pixels = image[drawn(image)].astype(int)[::7]
    ramp = map_colors(np.linspace(0, 1, 256), 0, 1, SEQUENTIAL).astype(int)
    return float((np.abs(pixels[:, None] - ramp[None]).max(-1).min(1) < 10).mean())


def on_cloud(image: np.ndarray) -> tuple[int, int]:
    """A pixel in the middle of what is drawn."""
    y, x = np.nonzero(drawn(image))
    k = np.argmin((x - np.median(x)) ** 2 + (y - np.median(y)) ** 2)
    return int(x[k]) + (SCENE.start or 0), int(y[k])


def test_the_page_shows_the_cloud_and_its_legend(live):
    _, tab = live
    image = tab.still()
    tab.picture("view_encoding")
    assert drawn(image).mean() > 0.05
    assert len(np.unique(image[drawn(image)] // 32, axis=0)) > 30  # many colors, not one
    assert tab.page.get_by_text("8,000 points, all shown").is_visible()
    assert tab.page.get_by_text("Encoding, principal components").is_visible()


def test_a_click_shows_the_fields_and_similarity_is_one_button_further(live):
    page, tab = live
    before = tab.still()
    assert on_ramp(before) < 0.5
    tab.page.mouse.click(*on_cloud(before))
    tab.page.get_by_text("statue.ply, point").wait_for()
    tab.page.get_by_text("Color by similarity with it").click()
    tab.until(lambda image: on_ramp(image) > 0.85, "similarity")
    page.wait()
    after = tab.still()
    tab.picture("view_similarity")
    assert changed(before, after) > 0.8
    for text in ("Similarity with the picked point", "points within the radius", "D = 256"):
        assert tab.page.get_by_text(text).first.is_visible()
    assert tab.page.get_by_text("correlation with the true density").count() == 1
    tab.page.get_by_text("Clear the point").click()
    tab.until(lambda image: on_ramp(image) > 0.85, "height, as no point is picked")
    tab.page.get_by_text("Height z").wait_for()


def test_a_click_beside_the_cloud_changes_nothing(live):
    page, tab = live
    before = tab.still()
    tab.page.mouse.click(30, 700)
    tab.page.wait_for_timeout(500)
    page.wait()
    assert changed(before, tab.still()) < 0.01


@pytest.mark.parametrize(
    ("slider", "key"),
    [(SIZE, "Home"), (RADIUS, "End"), (DETAIL, "Home"), (DIM, "Home"), (NOISE, "End")],
    ids=["point size", "radius", "detail", "D", "noise"],
)
def test_each_slider_changes_the_picture(live, slider, key):
    page, tab = live
    before = tab.still()
    tab.slider(slider, key)
    tab.until(lambda image: changed(before, image) > 0.1, "a change")
    page.wait()
    assert tab.page.get_by_text("shown after").is_visible()


def test_dragging_turns_the_cloud(live):
    _, tab = live
    before = tab.still()
    x, y = on_cloud(before)
    tab.page.mouse.move(x, y)
    tab.page.mouse.down()
    tab.page.mouse.move(x + 150, y + 20, steps=6)
    tab.page.mouse.up()
    after = tab.still()
    assert changed(before, after) > 0.2
    assert on_ramp(after) < 0.5  # a drag is no click


def test_curvature_and_lines_of_normals_are_drawn(live):
    page, tab = live
    before = tab.still()
    tab.page.get_by_label("Color by").click()
    tab.page.get_by_text("curvature", exact=True).click()
    tab.page.wait_for_timeout(500)
    page.wait()
    painted = tab.until(lambda image: changed(before, image) > 0.5, "curvature")
    assert tab.page.get_by_text("Mean curvature, 1 / the file's unit").is_visible()
    tab.page.get_by_label("Normals as lines").check()
    tab.until(lambda image: changed(painted, image) > 0.05, "lines")
    page.wait()
    tab.still()
    tab.picture("view_curvature")


@pytest.fixture
def scan(open_tab):
    """A street whose points have classes, as first seen, and with the tab that shows it."""
    street = shapes.lidar(30_000)
    low = street.pos.numpy()[:, 2] < 0.003
    classes = np.where(low, 2, 6).astype(np.uint8)
    cloud = PointCloud(street.pos.numpy(), fields={"classification": classes})
    with serve(port=0) as server:
        page = Page(server, DisplayCloud.of(cloud, "street.laz"))
        page.start()
        page.wait()
        tab = open_tab(address(server))
        yield page, tab
        page.stop()
        assert tab.errors == []


def test_the_first_picture_of_a_scan_fills_the_page_without_encodings(scan):
    page, tab = scan
    image = tab.still()
    tab.picture("view_scan")
    y, x = np.nonzero(drawn(image))
    width, height = np.ptp(x) / image.shape[1], np.ptp(y) / image.shape[0]
    assert max(width, height) > 0.75
    assert tab.page.get_by_text("2 ground").is_visible()
    assert tab.page.get_by_text("6 building").is_visible()
    assert page._painter.encodings.cache_info().currsize == 1
    assert "_kept" not in vars(page._painter.encodings(0, page.panel.state().settings))


def test_views_shading_and_screenshots(scan):
    _, tab = scan
    first = tab.still()
    tab.page.get_by_text("Top", exact=True).click()
    top = tab.until(lambda image: changed(first, image) > 0.3, "the view from above")
    tab.page.get_by_label("Shading").check()
    tab.until(lambda image: changed(top, image) > 0.1, "shade")
    tab.still()
    tab.picture("view_top")
    with tab.page.expect_download(timeout=60_000) as download:
        tab.page.get_by_role("button", name="Screenshot").click()
    assert download.value.suggested_filename == "street.png"
    import imageio.v3 as iio

    saved = iio.imread(download.value.path())
    assert saved.shape[2] == 3
    assert 0.02 < drawn(saved).mean() < 0.9


def test_points_keep_their_size_in_pixels_when_the_camera_comes_nearer(scan):
    page, tab = scan
    tab.still()
    before = page._cameras.pixel
    tab.page.mouse.move(*on_cloud(tab.picture()))
    for _ in range(4):
        tab.page.mouse.wheel(0, -240)
        tab.page.wait_for_timeout(300)
    tab.still()
    assert page._cameras.pixel < 0.8 * before
    part = page._scene[0]._points[0]
    size, in_pixels = page.panel.size
    assert in_pixels
    assert part.point_size == pytest.approx(size * page._cameras.pixel, rel=0.03)


def test_two_scans_before_and_after_alignment_with_their_matches(open_tab, cloud):
    T = np.eye(4)
    T[:3, :3] = [[0, -1, 0], [1, 0, 0], [0, 0, 1]]
    T[:3, 3] = [30, -20, 5]
    other = PointCloud(cloud.pos @ T[:3, :3].T + (T[:3, :3] @ cloud.origin + T[:3, 3]))
    pairs = np.stack([cloud.xyz[::200], other.xyz[::200]], axis=1)
    first, second = DisplayCloud.of(cloud, "source"), DisplayCloud.of(other, "target")
    with serve(port=0) as server:
        page = Page(server, first, second, alignment=Alignment(T, pairs))
        page.start()
        page.wait()
        tab = open_tab(address(server))
        after = tab.still()
        tab.picture("view_after")
        np.testing.assert_allclose(page._scene[0].placed, page._scene[1].placed, atol=1e-4)
        tab.page.get_by_label("Alignment").click()
        tab.page.get_by_text("before", exact=True).click()
        tab.until(lambda image: changed(after, image) > 0.5, "two clouds")
        page.wait()
        before = tab.still()
        tab.picture("view_before")
        tab.page.get_by_label("Matches as lines").uncheck()
        tab.until(lambda image: changed(before, image) > 0.02, "no lines")
        bare = tab.still()
        columns = drawn(bare).any(0).astype(int)
        assert (np.diff(columns) == 1).sum() == 2  # side by side, with nothing between
        page.stop()
        assert tab.errors == []


def test_a_clicked_point_colors_both_scans_by_the_similarity_of_descriptors(open_tab):
    a, b = (shapes.statue(8000, seed).pos.double() for seed in (1, 2))
    a, b = a[a[:, 0] < 0.35], b[b[:, 0] > -0.35]
    turn = torch.tensor([[0.8, -0.6, 0], [0.6, 0.8, 0], [0, 0, 1]], dtype=torch.float64)
    found = register(a @ turn.T + 40, b)
    assert found.aligned
    clouds = [PointCloud(x.numpy()) for x in (a @ turn.T + 40, b)]
    first, second = (DisplayCloud.of(c, n) for c, n in zip(clouds, "ab", strict=True))
    alignment = Alignment(*(x.numpy() for x in (found.transform, found.matches, found.inliers)))
    with serve(port=0) as server:
        page = Page(
            server, first, second, settings=Settings(0.5), color="descriptor",
            alignment=alignment, describe=_describe,
        )  # fmt: skip
        page.start()
        page.wait()
        tab = open_tab(address(server))
        tab.page.get_by_label("Alignment").click()
        tab.page.get_by_text("before", exact=True).click()
        tab.page.get_by_label("Matches as lines").uncheck()
        page.wait()
        bare = tab.still()
        left = bare.copy()
        left[:, drawn(bare).any(0).nonzero()[0].mean().astype(int) :] = 255
        tab.page.mouse.click(*on_cloud(left))
        tab.until(
            lambda image: changed(bare, image) > 0.3 and on_ramp(image) > 0.85,
            "similarity in both clouds",
        )
        page.wait()
        tab.picture("view_descriptor")
        assert page._picked is not None
        k, row = page._picked
        assert k == 0
        like = page._painter._described(page.panel.state().settings.radius).similarity(0, row)
        place = found.apply(torch.from_numpy(clouds[0].xyz[first.rows[row]]))
        there = (torch.from_numpy(clouds[1].xyz[second.rows]) - place).norm(dim=1).argmin()
        assert (like[1] < like[1][there]).mean() > 0.75  # at least: near where b is cut
        page.stop()
        assert tab.errors == []


def test_a_saved_scene_opens_from_disk_and_asks_nobody(path, tmp_path, open_tab, capsys):
    out = tmp_path / "scene.html"
    code, text, err = run(capsys, "view", path, "--color", "curvature", "--save", out)
    assert (code, err) == (0, "")
    assert str(out) in text
    tab = open_tab(out.as_uri(), offline=True)
    image = tab.still()
    tab.picture("view_saved")
    assert drawn(image).mean() > 0.05
    assert tab.page.get_by_text("8,000 points, all shown").is_visible()
    assert tab.errors == []
    assert [url for url in tab.requests if not url.startswith(("file:", "blob:", "data:"))] == []


def test_the_colors_are_the_same_in_every_run(path, tmp_path, capsys):
    one, two = tmp_path / "one.html", tmp_path / "two.html"
    for out in (one, two):
        assert run(capsys, "view", path, "--save", out)[0] == 0
    assert one.read_bytes() == two.read_bytes()
