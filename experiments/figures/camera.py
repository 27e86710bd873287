"""Clouds on paper: an eye far away, and near points over far ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from torch import Tensor

from experiments.figures.style import bare

#: Where the eye is, in degrees: about the vertical, and above the horizon.
AZIMUTH, ELEVATION = -70.0, 20.0


def project(
    pos: Tensor,  # (N, 3)
    azimuth: float = AZIMUTH,
    elevation: float = ELEVATION,
) -> Tensor:  # (N, 3)
    """Right, up and towards the eye, in the units of the points.

    Shapes:
        - pos: (N, 3)
        - output: (N, 3)
    """
    a, e = math.radians(azimuth), math.radians(elevation)
    right = (-math.sin(a), math.cos(a), 0.0)
    up = (-math.sin(e) * math.cos(a), -math.sin(e) * math.sin(a), math.cos(e))
    towards = (math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e))
    return pos @ torch.tensor([right, up, towards], dtype=pos.dtype).t()


def scatter(
    axes: Axes,
    pos: Tensor,  # (N, 3)
    color: np.ndarray,  # (N, 3) uint8 or (N,) numbers for the color map
    size: float = 6.0,
    normal: Tensor | None = None,  # (N, 3)
    elevation: float = ELEVATION,
    **options: Any,
) -> PathCollection:
    """Draw a cloud, far points first; with normals, only what faces the eye.

    The points are an image also in an SVG, which would be large and slow otherwise.
    """
    flat = project(pos, elevation=elevation)
    near = flat[:, 2].argsort()
    if normal is not None:
        near = near[project(normal, elevation=elevation)[near, 2] > 0]
    order = near.numpy()
    x, y = flat[:, 0].numpy()[order], flat[:, 1].numpy()[order]
    shade = color[order] / 255 if color.ndim == 2 else color[order]
    bare(axes)
    return axes.scatter(x, y, s=size, c=shade, linewidths=0, rasterized=True, **options)
