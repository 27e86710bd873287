"""Point networks, plain and with VecKM: ``create_model("pct", veckm=True, num_classes=40)``."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, get_args

from torch import nn

from veckm.models import authors as of_authors
from veckm.models import pct, point_transformer, pointnet, pointnet2
from veckm.models.base import Classifier, Output, PartSegmenter, PointModel, SemanticSegmenter
from veckm.models.config import EncodingConfig, ModelConfig, PartsConfig, Task
from veckm.models.encoding import Encoding
from veckm.models.fused import mlp_maxpool
from veckm.models.layers import LinearBN, mlp, seeded

__all__ = [
    "NETWORKS",
    "Classifier",
    "Encoding",
    "EncodingConfig",
    "LinearBN",
    "ModelConfig",
    "Output",
    "PartSegmenter",
    "PartsConfig",
    "PointModel",
    "SemanticSegmenter",
    "Task",
    "create_model",
    "default_encoding",
    "list_models",
    "mlp",
    "mlp_maxpool",
    "parameter_count",
    "rebuild",
]

#: All networks; a new one is a file with a config and a class, and a line here.
NETWORKS: tuple[type[PointModel], ...] = (
    pointnet.PointNetClassifier,
    pointnet.PointNetParts,
    pointnet.PointNetScenes,
    pointnet2.PointNet2Classifier,
    pointnet2.PointNet2Parts,
    pointnet2.PointNet2Scenes,
    pct.PCTClassifier,
    pct.PCTParts,
    point_transformer.PointTransformerClassifier,
    point_transformer.PointTransformerScenes,
)

#: Those that ``authors=True`` takes instead.
AUTHORS: tuple[type[PointModel], ...] = (
    of_authors.AuthorsPointNetClassifier,
    of_authors.AuthorsPointNetParts,
    of_authors.AuthorsPointNet2Classifier,
    of_authors.AuthorsPointNet2Parts,
    of_authors.AuthorsPCTClassifier,
    of_authors.AuthorsPCTParts,
)


def create_model(
    name: str | type[PointModel],
    *,
    task: Task = "classification",
    veckm: bool = False,
    authors: bool = False,
    encoding: EncodingConfig | None = None,
    num_classes: int,
    in_channels: int = 0,
    seed: int = 0,
    validate: bool = True,
    **options: Any,
) -> PointModel:
    """A network by its name, with initial weights that depend on ``seed`` alone.

    Args:
        name: one of :func:`list_models`, or a class of your own derived from ``Classifier``,
            ``PartSegmenter`` or ``SemanticSegmenter``.
        task: ``"classification"``, ``"part-segmentation"`` or ``"semantic-segmentation"``; a class
            has its own.
        veckm: the counterpart with VecKM, built as in the VecKM paper.
        authors: with ``veckm=True``, the network as the paper's authors build it in their program;
            ``docs/networks.md`` lists where it differs.
        encoding: VecKM's part of the network, with ``veckm=True``; :func:`default_encoding` of the
            network and the task if None.
        num_classes: logits per cloud, or per point.
        in_channels: channels of ``x`` beside the coordinates.
        seed: of the weights and of VecKM's frequencies; the global generator is kept.
        validate: False skips the checks of values (finite, in range) in every call; shapes are
            always checked. ``model.validate`` changes it later.
        options: further fields of the network's config, such as ``dropout``, or ``num_categories``
            for part segmentation.

    Example:
        >>> model = create_model("pointnet", veckm=True, num_classes=40).eval()
        >>> model(torch.rand(2, 1024, 3)).logits.shape
        torch.Size([2, 40])
    """
    kind = _find(name, task, authors) if isinstance(name, str) else name
    if (encoding is not None or authors) and not veckm:
        given = "authors=True" if authors else "encoding"
        raise ValueError(f"{given} is given, but veckm=False: pass veckm=True with it")
    if veckm and encoding is None:
        encoding = kind.default_encoding
    own = {field.name for field in fields(kind.config_type)}
    known = own - {field.name for field in fields(ModelConfig)}
    if unknown := [key for key in options if key not in known]:
        raise TypeError(
            f"{kind.name} for {kind.task} has no option {', '.join(unknown)}; it has "
            f"{', '.join(sorted(known)) or 'none'}. Options of VecKM go into encoding="
        )
    config = kind.config_type(num_classes, in_channels, encoding, seed, authors, **options)
    model = seeded(lambda: kind(config), seed)
    model.validate = validate
    return model


def default_encoding(
    name: str, task: Task = "classification", *, authors: bool = False, **changes: Any
) -> EncodingConfig:
    """The encoding that a network has for a task unless told otherwise, with some of it changed.

    Example:
        >>> default_encoding("pointnet", alpha=20.0).channels
        1024
    """
    if "radius" in changes:
        changes.setdefault("beta", None)  # the network's own beta gives way
    return replace(_find(name, task, authors).default_encoding, **changes)


def list_models(task: Task | None = None) -> list[str]:
    """The names that :func:`create_model` accepts, all of them or those of a task."""
    if task not in (None, *get_args(Task)):
        raise ValueError(f"no task is called {task!r}; there are {', '.join(get_args(Task))}")
    return list(dict.fromkeys(kind.name for kind in NETWORKS if task in (None, kind.task)))


def parameter_count(model: nn.Module) -> int:
    """The number of learned real numbers."""
    return sum(p.numel() * (2 if p.is_complex() else 1) for p in model.parameters())


def rebuild(config: dict[str, Any]) -> PointModel:
    """The network of a checkpoint's ``config``: name, task and the fields of its config."""
    values = dict(config)
    kind = _find(values.pop("name"), values.pop("task"), values.get("authors", False))
    built = kind.config_type.from_dict(values)
    return seeded(lambda: kind(built), built.seed)


def _find(name: str, task: Task, authors: bool) -> type[PointModel]:
    if name not in list_models():
        raise ValueError(f"no model is called {name!r}; there are {', '.join(list_models())}")
    names = list_models(task)
    if name not in names:
        raise ValueError(f"{name} has no {task}, which is done by {', '.join(names)}")
    found = [
        kind
        for kind in (AUTHORS if authors else NETWORKS)
        if (kind.name, kind.task) == (name, task)
    ]
    if not found:
        there = ", ".join(f"{kind.name} for {kind.task}" for kind in AUTHORS)
        raise ValueError(f"the authors have no {name} for {task}; there are {there}")
    return found[0]
