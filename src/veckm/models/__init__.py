"""Point networks, plain and with VecKM: ``create_model("pct", veckm=True, num_classes=40)``."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import fields
from typing import Any, get_args

from veckm.models.base import PointModel, Task
from veckm.models.dgcnn import DGCNNClassifier, DGCNNParts, DGCNNScenes
from veckm.models.encoding import PAPER, Encoding, EncodingSettings, settings_for
from veckm.models.kpconv import KPConvClassifier, KPConvScenes
from veckm.models.layers import seeded
from veckm.models.pct import PCTClassifier, PCTParts
from veckm.models.point_transformer import PointTransformerClassifier, PointTransformerScenes
from veckm.models.pointmlp import PointMLPClassifier, PointMLPParts
from veckm.models.pointnet import PointNetClassifier, PointNetParts, PointNetScenes
from veckm.models.pointnet2 import PointNet2Classifier, PointNet2Parts, PointNet2Scenes

__all__ = [
    "MODELS",
    "PAPER",
    "Encoding",
    "EncodingSettings",
    "PointModel",
    "Task",
    "create_model",
    "list_models",
    "parameter_count",
]

#: The networks by name and task.
MODELS: dict[str, dict[Task, Callable[..., PointModel]]] = {
    "pointnet": {
        "classification": PointNetClassifier,
        "part-segmentation": PointNetParts,
        "semantic-segmentation": PointNetScenes,
    },
    "pointnet2": {
        "classification": PointNet2Classifier,
        "part-segmentation": PointNet2Parts,
        "semantic-segmentation": PointNet2Scenes,
    },
    "pct": {"classification": PCTClassifier, "part-segmentation": PCTParts},
    "point_transformer": {
        "classification": PointTransformerClassifier,
        "semantic-segmentation": PointTransformerScenes,
    },
    "pointmlp": {"classification": PointMLPClassifier, "part-segmentation": PointMLPParts},
    "dgcnn": {
        "classification": DGCNNClassifier,
        "part-segmentation": DGCNNParts,
        "semantic-segmentation": DGCNNScenes,
    },
    "kpconv": {"classification": KPConvClassifier, "semantic-segmentation": KPConvScenes},
}


def create_model(
    name: str,
    *,
    veckm: bool = False,
    task: Task = "classification",
    num_classes: int,
    in_channels: int = 0,
    num_categories: int = 16,
    seed: int = 0,
    validate: bool = True,
    **options: Any,
) -> PointModel:
    """A network by its name, with weights that depend on ``seed`` alone.

    Args:
        name: one of :func:`list_models`.
        veckm: the counterpart with VecKM, built as the VecKM paper says.
        task: ``"classification"``, ``"part-segmentation"`` or ``"semantic-segmentation"``.
        num_classes: logits of a cloud, or of a point.
        in_channels: channels of ``features`` beside the coordinates.
        num_categories: of objects; only part segmentation looks at it.
        seed: of the weights and of VecKM's frequencies; the global generator is kept.
        validate: False skips the checks of values (finite, in range) in every call, for training
            on data that is known to be good; shapes are checked always. ``model.validate`` changes
            it later.
        options: settings of the network, such as ``dropout``, and with ``veckm`` those of
            :class:`veckm.models.EncodingSettings`, such as ``alpha`` and ``beta``.

    Returns:
        the network; its ``settings`` say what it was made from, as arguments of this function.

    Example:
        >>> model = create_model("pointnet", veckm=True, num_classes=40).eval()
        >>> model(torch.rand(2, 1024, 3)).shape
        torch.Size([2, 40])
    """
    kind = _find(name, task)
    given, options = options, _renamed(options)
    known = {field.name for field in fields(EncodingSettings)}
    for_encoding = {key: value for key, value in options.items() if key in known}
    if for_encoding and not veckm:
        raise ValueError(
            f"{', '.join(for_encoding)} belong to the VecKM encoding; pass veckm=True with them"
        )
    encoding = settings_for(name, task, **for_encoding) if veckm else None
    own = {key: value for key, value in options.items() if key not in known}
    categories = num_categories if task == "part-segmentation" else 0
    if task == "part-segmentation" and num_categories < 1:
        raise ValueError(f"part segmentation needs num_categories >= 1, got {num_categories}")
    _check_options(kind, own, f"{name} for {task}")
    model = seeded(lambda: kind(num_classes, in_channels, categories, encoding, **own), seed)
    model.settings = {
        "name": name,
        "veckm": veckm,
        "task": task,
        "num_classes": num_classes,
        "in_channels": in_channels,
        "num_categories": num_categories,
        "seed": seed,
        **given,
    }
    model.validate = validate
    return model


def list_models(task: Task | None = None) -> list[str]:
    """The names that :func:`create_model` takes, all of them or those of a task."""
    if task is None:
        return list(MODELS)
    _check_task(task)
    return [name for name, tasks in MODELS.items() if task in tasks]


def parameter_count(model: PointModel) -> int:
    """Real numbers that are learned; a complex one is two."""
    return sum(p.numel() * (2 if p.is_complex() else 1) for p in model.parameters())


def _find(name: str, task: Task) -> Callable[..., PointModel]:
    if name not in MODELS:
        raise ValueError(f"no model is called {name!r}; there are {', '.join(MODELS)}")
    _check_task(task)
    if task not in MODELS[name]:
        raise ValueError(
            f"{name} has no {task}; it has {', '.join(MODELS[name])}, and {task} is done by "
            f"{', '.join(list_models(task))}"
        )
    return MODELS[name][task]


def _renamed(options: dict[str, Any]) -> dict[str, Any]:
    """The options under their present names: settings in older checkpoints have norm=True."""
    if not isinstance(options.get("norm"), bool):
        return options
    warnings.warn(
        "norm=True or False is now batch_norm; norm is the normalization of the encoding",
        DeprecationWarning,
        stacklevel=3,
    )
    rest = {key: value for key, value in options.items() if key != "norm"}
    return {"batch_norm": options["norm"], **rest}


def _check_task(task: str) -> None:
    if task not in get_args(Task):
        raise ValueError(f"no task is called {task!r}; there are {', '.join(get_args(Task))}")


def _check_options(kind: Callable[..., PointModel], options: dict[str, Any], what: str) -> None:
    taken = [
        p.name for p in inspect.signature(kind).parameters.values() if p.kind is p.KEYWORD_ONLY
    ]
    unknown = [key for key in options if key not in taken]
    if unknown:
        raise TypeError(
            f"{what} has no option {', '.join(unknown)}; it has {', '.join(taken) or 'none'}, "
            f"and with veckm=True {', '.join(f.name for f in fields(EncodingSettings))}"
        )
