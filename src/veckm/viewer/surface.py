"""Normals, curvature and the error to expect of them, estimated once somebody asks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from veckm.tasks.normals import estimate
from veckm.viewer.encode import Encodings
from veckm.viewer.shown import Shown

#: Fewer points than this do not say where a surface is.
_FEW = 8


@dataclass(frozen=True, eq=False)
class Surface:
    """What is known of the surface at the shown points.

    Attributes:
        normal: unit length.
        error: the angle error to expect, in degrees.
        bend: mean curvature, in one over the file's unit.
        own: whether the normals are the file's own.

    Shapes:
        - normal: (M, 3), error: (M,), bend: (M,)
    """

    normal: np.ndarray
    error: np.ndarray
    bend: np.ndarray
    own: bool


def surface_of(shown: Shown, encodings: Encodings) -> Surface:
    """The surface at the shown points, as the noise has moved them.

    The file's own normals are taken where it has some and no noise has been added.
    """
    if len(encodings) < _FEW:
        raise ValueError(
            f"{shown.name}: {len(encodings)} points are too few for normals; "
            f"at least {_FEW} are needed"
        )
    found = estimate(encodings.at, orient="consistent", curvature=True)
    own = shown.cloud.normals if not encodings.settings.noise else None
    normal = found.normal.numpy() if own is None else _unit(own[shown.rows.numpy()])
    bend = _finite(found.mean_curvature)
    return Surface(normal, _finite(found.error), bend, own is not None)


def _unit(normal: np.ndarray) -> np.ndarray:
    normal = np.nan_to_num(normal.astype(np.float32))
    length: np.ndarray = np.linalg.norm(normal, axis=1, keepdims=True)
    unit: np.ndarray = normal / np.maximum(length, 1e-12)
    return unit


def _finite(values: Tensor) -> np.ndarray:
    return torch.nan_to_num(values).float().numpy()
