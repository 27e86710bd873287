"""The viewer in a real browser: what is on the page is checked in its pixels."""

from __future__ import annotations

import numpy as np
import pytest
from tabs import SCENE, changed, drawn
from verbs import run

pytest.importorskip("viser", reason="viser is not installed: pip install 'veckm[viewer]'")


from veckm.viewer import DisplayCloud, Page, serve
from veckm.viewer.colors import SEQUENTIAL, map_colors
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
        page = Page(server, display)
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


def test_a_click_recolors_by_similarity_and_clearing_brings_back(live):
    page, tab = live
    before = tab.still()
    assert on_ramp(before) < 0.5
    tab.page.mouse.click(*on_cloud(before))
    tab.until(lambda image: on_ramp(image) > 0.85, "similarity")
    page.wait()
    after = tab.still()
    tab.picture("view_similarity")
    assert changed(before, after) > 0.8
    for text in ("Similarity with the picked point", "points within the radius", "D = 256"):
        assert tab.page.get_by_text(text).first.is_visible()
    assert tab.page.get_by_text("correlation with the true density").count() == 1
    tab.page.get_by_text("Clear the point").click()
    again = tab.until(lambda image: on_ramp(image) < 0.5, "the encoding again")
    assert changed(before, again) < 0.02


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


def test_a_noisy_copy_stands_beside_with_its_similarity(live):
    page, tab = live
    tab.still()
    tab.page.get_by_label("Color by").click()
    tab.page.get_by_text("similarity of matching points").last.click()
    tab.slider(NOISE, "ArrowRight")
    for _ in range(9):  # to half a percent
        tab.page.keyboard.press("ArrowRight")
    tab.page.wait_for_timeout(500)
    page.wait()
    tab.until(lambda image: on_ramp(image) > 0.85, "similarity")
    image = tab.still()
    tab.picture("view_pair")
    columns = drawn(image).any(0).astype(int)
    assert (np.diff(columns) == 1).sum() == 2  # two clouds, with nothing between
    clean, noisy = np.split(image, [int(np.flatnonzero(columns).mean())], axis=1)
    assert drawn(clean).any()
    assert drawn(noisy).any()
    assert len(np.unique(noisy[drawn(noisy)], axis=0)) > 50  # more and less like their match
    assert tab.page.get_by_text("Similarity of matching points (row by row)").is_visible()


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


def test_a_saved_scene_opens_from_disk_and_asks_nobody(path, tmp_path, open_tab, capsys):
    out = tmp_path / "scene.html"
    code, text, err = run(capsys, "view", path, "--save", out)
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
