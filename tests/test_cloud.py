"""PointCloud: an origin, fields by their names, and nothing that can be changed by accident."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from veckm import PointCloud

FAR = np.array([512_345.25, 5_412_345.5, 130.0])


def cloud() -> PointCloud:
    pos = np.arange(12, dtype=np.float32).reshape(4, 3)
    return PointCloud(pos, FAR, {"b": np.arange(4), "a": np.ones((4, 2), np.uint8)}, "here")


def test_coordinates_are_float64_about_the_origin() -> None:
    assert cloud().xyz.dtype == np.float64
    assert cloud().xyz[1].tolist() == [512_348.25, 5_412_349.5, 135.0]
    assert len(cloud()) == 4
    assert list(cloud().fields) == ["b", "a"]


def test_minus_zero_stays_what_it_is() -> None:
    assert np.signbit(PointCloud(np.array([[-0.0, 0, 0]])).xyz[0, 0])


@pytest.mark.parametrize(
    "rows", [slice(1, 3), np.array([1, 2]), np.array([False, True, True, False])]
)
def test_rows_are_chosen_with_their_fields(rows: slice | np.ndarray) -> None:
    part = cloud()[rows]
    assert part.fields["b"].tolist() == [1, 2]
    assert part.pos.tolist() == [[3, 4, 5], [6, 7, 8]]
    assert part.origin.tolist() == FAR.tolist()
    assert part.crs == "here"


def test_one_row_number_is_no_choice() -> None:
    with pytest.raises(TypeError, match="a slice, a mask or an array"):
        cloud()[2]  # type: ignore[index]


def test_nothing_is_changed_by_accident() -> None:
    with pytest.raises(FrozenInstanceError):
        cloud().crs = "there"  # type: ignore[misc]
    with pytest.raises(TypeError):
        cloud().fields["c"] = np.ones(4)  # type: ignore[index]
    with pytest.raises(ValueError, match="read-only"):
        cloud().origin[0] = 1


def test_new_fields_come_last_and_old_ones_stay_in_place() -> None:
    more = cloud().with_fields(c=np.zeros(4), b=np.ones(4))
    assert list(more.fields) == ["b", "a", "c"]
    assert more.fields["b"].tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "names", [("NormalX", "NormalY", "NormalZ"), ("normal_x", "normal_y", "normal_z")]
)
def test_normals_go_where_the_file_has_them(names: tuple[str, ...]) -> None:
    bare = cloud()
    assert bare.normals is None
    assert list(bare.with_normals(np.ones((4, 3))).fields)[-3:] == ["nx", "ny", "nz"]
    had = bare.with_fields(**{name: np.zeros(4, np.float32) for name in names})
    new = had.with_normals(np.full((4, 3), 2.0))
    assert list(new.fields) == list(had.fields)
    assert new.fields[names[0]].dtype == np.float32
    assert new.normals is not None
    assert new.normals.tolist() == [[2, 2, 2]] * 4


def test_colors_are_found_under_the_usual_names() -> None:
    assert cloud().colors is None
    apart = cloud().with_fields(
        **{name: np.full(4, 9, np.uint8) for name in ("red", "green", "blue")}
    )
    assert apart.colors is not None
    assert apart.colors.tolist() == [[9, 9, 9]] * 4
    packed = cloud().with_fields(rgb=np.full(4, 0x00010203, np.uint32).view(np.float32))
    assert packed.colors is not None
    assert packed.colors[0].tolist() == [1, 2, 3]
    together = cloud().with_fields(color=np.full((4, 4), 5))
    assert together.colors is not None
    assert together.colors.shape == (4, 3)


def test_it_can_be_sent_to_another_process() -> None:
    back = pickle.loads(pickle.dumps(cloud()))
    assert back.xyz.tolist() == cloud().xyz.tolist()
    assert list(back.fields) == ["b", "a"]


@pytest.mark.parametrize(
    ("pos", "origin", "fields", "message"),
    [
        (np.zeros((4, 2)), FAR, {}, r"pos must have shape \(N, 3\)"),
        (np.zeros((4, 3), int), FAR, {}, "float32 or float64, got .* int64"),
        (np.zeros((4, 3)), [0, 0], {}, "three finite numbers"),
        (np.zeros((4, 3)), [0, 0, np.nan], {}, "three finite numbers"),
        (np.zeros((4, 3)), FAR, {"a": np.zeros(3)}, "field 'a' must have shape"),
        (np.zeros((4, 3)), FAR, {"a": np.zeros((4, 2, 2))}, "field 'a' must have shape"),
    ],
)
def test_what_is_no_cloud_is_refused(
    pos: np.ndarray, origin: np.ndarray, fields: dict[str, np.ndarray], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        PointCloud(pos, origin, fields)
