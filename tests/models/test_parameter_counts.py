"""How many numbers each network learns, beside what the papers count."""

import pytest
from experiments.networks import COMPARED

from veckm.models import PointModel, Task, create_model, default_encoding, parameter_count

CLASSES: dict[str, int] = {
    "classification": 40,
    "part-segmentation": 50,
    "semantic-segmentation": 13,
}
#: Channels beside the coordinates: none for objects, the colors for scenes.
CHANNELS = {"classification": 0, "part-segmentation": 0, "semantic-segmentation": 3}

COUNTS: dict[tuple[str, Task], tuple[int, int]] = {  # plain, with VecKM
    ("pointnet", "classification"): (3_473_969, 997_160),
    ("pointnet2", "classification"): (1_472_360, 1_558_184),
    ("pct", "classification"): (2_875_880, 2_640_936),
    ("point_transformer", "classification"): (5_072_882, 5_170_016),
    ("pointmlp", "classification"): (13_237_736, 13_344_552),
    ("dgcnn", "classification"): (1_809_320, 1_924_136),
    ("kpconv", "classification"): (14_295_144, 14_516_840),
    ("pointnet", "part-segmentation"): (8_334_907, 964_402),
    ("pointnet2", "part-segmentation"): (1_406_706, 1_492_530),
    ("pct", "part-segmentation"): (1_576_498, 1_658_034),
    ("pointmlp", "part-segmentation"): (16_728_202, 16_835_018),
    ("dgcnn", "part-segmentation"): (1_460_411, 773_938),
    ("pointnet", "semantic-segmentation"): (3_531_542, 1_044_621),
    ("pointnet2", "semantic-segmentation"): (964_333, 1_130_861),
    ("point_transformer", "semantic-segmentation"): (7_767_697, 7_928_447),
    ("dgcnn", "semantic-segmentation"): (983_181, 1_155_469),
    ("kpconv", "semantic-segmentation"): (16_357_901, 16_583_821),
}


def network(name: str, task: Task) -> str | type[PointModel]:
    """A class of the experiments, or the name of one of the package's."""
    return {(kind.name, kind.task): kind for kind in COMPARED}.get((name, task), name)


@pytest.mark.parametrize(("name", "task"), list(COUNTS))
def test_the_count_is_the_one_documented(name: str, task: Task) -> None:
    got = tuple(
        parameter_count(
            create_model(
                network(name, task),
                task=task,
                veckm=veckm,
                num_classes=CLASSES[task],
                in_channels=CHANNELS[task],
            )
        )
        for veckm in (False, True)
    )
    assert got == COUNTS[name, task]


# Tables 2, 3 and 4 of the VecKM paper, in millions, where our network is the one they counted.
@pytest.mark.parametrize(
    ("name", "task", "veckm", "millions"),
    [
        ("pointmlp", "classification", False, 13.2),
        ("pointnet2", "classification", False, 1.48),
        ("pct", "classification", False, 2.88),
        ("pointmlp", "part-segmentation", False, 16.76),
        ("pointnet", "part-segmentation", False, 8.34),
        ("pointnet2", "part-segmentation", False, 1.41),
        ("pointnet2", "part-segmentation", True, 1.50),
        ("pointnet2", "semantic-segmentation", False, 0.968),
        ("point_transformer", "semantic-segmentation", False, 7.77),
        ("point_transformer", "semantic-segmentation", True, 7.93),
    ],
)
def test_the_count_is_within_a_hundredth_of_the_papers(
    name: str, task: Task, veckm: bool, millions: float
) -> None:
    kind = network(name, task)
    model = create_model(
        kind, task=task, veckm=veckm, num_classes=CLASSES[task], in_channels=CHANNELS[task]
    )
    assert parameter_count(model) == pytest.approx(1e6 * millions, rel=0.01)


def test_pointnet_without_the_second_transform_is_the_papers() -> None:
    model = create_model("pointnet", num_classes=40, feature_transform=False)
    assert parameter_count(model) == pytest.approx(1.61e6, rel=0.01)


def test_veckm_pointnet_with_256_hidden_channels_is_the_papers() -> None:
    model = create_model(
        "pointnet",
        veckm=True,
        task="part-segmentation",
        num_classes=50,
        encoding=default_encoding("pointnet", "part-segmentation", hidden=256),
    )
    assert parameter_count(model) == pytest.approx(1.29e6, rel=0.01)
