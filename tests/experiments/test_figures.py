"""The paper's figures: their numbers say what the paper says, and the files hold a picture."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'veckm[bench]'")

from experiments.figures import (
    FIGURES,
    cost,
    depth_camera,
    encodings,
    kernel,
    make,
    scales,
    sizes,
)
from experiments.figures.__main__ import Options, main
from experiments.figures.camera import project
from experiments.figures.style import styled
from matplotlib.image import imread


@pytest.fixture(scope="module")
def numbers():
    """The quick numbers of every figure, computed once."""
    return {name: drawing.compute(True) for name, drawing in FIGURES.items()}


def test_the_kernel_is_estimated_better_with_more_numbers(numbers):
    found = numbers["kernel"]
    errors = [found.errors[size] for size in kernel.SIZES]
    assert errors == sorted(errors, reverse=True)
    # 1 / sqrt(D): from 16 to 1024 by 8, and not by 64.
    assert 4 < errors[0] / errors[-1] < 16
    assert float((found.estimates[1024] - found.exact).abs().max()) < 0.1
    assert float(found.exact.max()) == 1


def test_encodings_change_little_with_little_noise(numbers):
    for shape in ("statue", "box"):
        mine = [panel for panel in numbers["encodings"] if panel.shape == shape]
        assert [panel.noise for panel in mine] == list(encodings.NOISE)
        like = [panel.similarity for panel in mine]
        assert like[0] == pytest.approx(1, abs=1e-5)
        assert like == sorted(like, reverse=True)
        assert like[1] > 0.99
        assert (mine[0].rgb.std(0) > 30).all()


def test_reconstruction_outlives_corruption(numbers):
    panels = {panel.name: panel for panel in numbers["reconstruction"]}
    clean = panels["clean"]
    assert clean.similarity == pytest.approx(1, abs=1e-5)
    assert clean.cut.agreement > 0.9  # of this sample; 0.87 to 0.93 of others
    assert clean.everywhere > panels["noise 0.6 %"].everywhere > panels["noise 1.2 %"].everywhere
    assert panels["density stripes"].count < clean.count
    assert all(torch.equal(panel.cut.axes, clean.cut.axes) for panel in panels.values())
    assert all(panel.everywhere > 0.5 for panel in panels.values())


def test_more_detail_leaves_fewer_points_alike(numbers):
    maps = numbers["scales"]
    for beta in scales.BETAS:
        means = [panel.values.mean() for panel in maps.panels if panel.beta == beta]
        assert means == sorted(means, reverse=True)
    for panel in maps.panels:
        assert panel.values[maps.row] == pytest.approx(1, abs=1e-4)


def test_errors_fall_with_d_and_p_and_engines_keep_their_word(numbers):
    found = numbers["sizes"]
    for values in (found.density, found.features):
        errors = [values[size] for size in sorted(values)]
        assert errors == sorted(errors, reverse=True)
    assert all(value <= sizes.EPS for value in found.engines.values())
    assert min(found.features.values()) > max(found.engines.values())


def test_every_method_is_timed(numbers):
    found = numbers["cost"]
    for rows in (found.by_points, found.by_neighbors):
        assert {row.method for row in rows} == set(cost._METHODS)
        assert all(row.seconds > 0 for row in rows)
    assert {row.neighbors for row in found.by_points} == {cost.NEIGHBORS}
    assert len({row.points for row in found.by_neighbors}) == 1


@pytest.mark.parametrize("name", FIGURES)
def test_axes_say_what_they_show(name, numbers):
    with styled():
        figure = FIGURES[name].draw(numbers[name])
    titled = [axes for axes in figure.axes if axes.get_title() or axes.get_title(loc="left")]
    assert titled
    for axes in figure.axes:
        if axes.axison and len(axes.get_xticks()) + len(axes.get_yticks()):  # not a mere frame
            assert axes.get_xlabel() or axes.get_ylabel()


def test_files_hold_a_picture_and_the_same_numbers_give_the_same_file(tmp_path):
    for folder in ("a", "b"):
        (made,) = make(tmp_path / folder, ["kernel"], "quick")
        assert [path.name for path in made.paths] == ["kernel.png", "kernel.svg"]
    image = imread(tmp_path / "a" / "kernel.png")
    assert image.shape[1] > 1000
    assert len(np.unique(image.reshape(-1, image.shape[2]), axis=0)) > 50
    assert "<svg" in (tmp_path / "a" / "kernel.svg").read_text()[:1000]
    for kind in ("png", "svg"):
        a, b = ((tmp_path / f / f"kernel.{kind}").read_bytes() for f in ("a", "b"))
        assert a == b


def test_the_camera_keeps_lengths():
    pos = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    flat = project(pos)
    torch.testing.assert_close(flat.norm(dim=1), pos.norm(dim=1))
    assert float(project(torch.tensor([[0.0, 0.0, 1.0]]))[0, 1]) > 0.9  # up is up


def test_the_command_writes_and_prints_what(tmp_path, capsys):
    assert main(Options(tmp_path / "new", ("kernel",), quick=True)) == 0
    assert "kernel.png" in capsys.readouterr().out
    assert (tmp_path / "new" / "kernel.svg").stat().st_size > 1000


def test_what_cannot_be_drawn_takes_one_line(tmp_path, capsys):
    assert main(Options(tmp_path, ("fig9",))) == 2
    assert "choose from encodings" in capsys.readouterr().err
    (tmp_path / "file").write_text("x")
    assert main(Options(tmp_path / "file", quick=True)) == 2
    assert "exists" in capsys.readouterr().err


def test_a_frame_of_a_depth_camera_is_drawn_with_normals_towards_the_camera(tmp_path, capsys):
    u = torch.rand(20_000, 2, generator=torch.Generator().manual_seed(0)) - 0.5
    wall = torch.cat((2 * u, torch.full((20_000, 1), 2.0)), 1)
    found = depth_camera.compute(wall)
    assert [float(n[:, 2].max()) < -0.99 for n in found.values()] == [True] * 3
    np.save(tmp_path / "wall.npy", wall.numpy())
    assert depth_camera.main(depth_camera.Options(tmp_path / "wall.npy", tmp_path / "new")) == 0
    image = imread(capsys.readouterr().out.strip())
    blue = (image[..., 2] > 0.95) & (image[..., 0] < 0.6)  # the color of what faces the camera
    assert blue.mean() > 0.1
    assert depth_camera.main(depth_camera.Options(tmp_path / "none.npy", tmp_path)) == 2
    assert "none.npy" in capsys.readouterr().err
