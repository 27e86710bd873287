"""veckm: the local geometry of every point of a cloud, as a vector, in linear time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from veckm.encoder import VecKM
from veckm.frequencies import beta_from_radius, radius_from_beta, suggest_radius
from veckm.functional import (
    encode,
    encode_neighborhood,
    kernel_mixture,
    moments,
    reconstruct,
    similarity,
)
from veckm.moments import Moments
from veckm.planning import Plan, plan

if TYPE_CHECKING:
    from veckm.cloud import PointCloud
    from veckm.io import read, write
    from veckm.models import create_model, list_models
    from veckm.tasks.normals import estimate_normals

__all__ = [
    "Moments",
    "Plan",
    "PointCloud",
    "VecKM",
    "__version__",
    "beta_from_radius",
    "create_model",
    "encode",
    "encode_neighborhood",
    "estimate_normals",
    "kernel_mixture",
    "list_models",
    "moments",
    "plan",
    "radius_from_beta",
    "read",
    "reconstruct",
    "similarity",
    "suggest_radius",
    "write",
]

__version__ = "0.1.0"

#: Imported when they are asked for: the encoder does without them.
_LAZY = {
    "PointCloud": "veckm.cloud",
    "create_model": "veckm.models",
    "estimate_normals": "veckm.tasks.normals",
    "list_models": "veckm.models",
    "read": "veckm.io",
    "write": "veckm.io",
}


def __getattr__(name: str) -> Any:
    """Networks, tasks and files, on demand."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'veckm' has no attribute {name!r}")
