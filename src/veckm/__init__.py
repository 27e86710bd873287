"""veckm: the local geometry of every point of a cloud, as a vector, in linear time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from veckm.encoder import VecKM
from veckm.frequencies import beta_from_radius, radius_from_beta, suggest_radius
from veckm.functional import (
    encode,
    encode_neighborhood,
    kernel_mixture,
    reconstruct,
    similarity,
)
from veckm.moments import Moments, moments

if TYPE_CHECKING:
    from veckm.tasks.normals import estimate_normals

__all__ = [
    "Moments",
    "VecKM",
    "__version__",
    "beta_from_radius",
    "encode",
    "encode_neighborhood",
    "estimate_normals",
    "kernel_mixture",
    "moments",
    "radius_from_beta",
    "reconstruct",
    "similarity",
    "suggest_radius",
]

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Tasks are imported when they are asked for: the encoder does without them."""
    if name == "estimate_normals":
        from veckm.tasks.normals import estimate_normals

        return estimate_normals
    raise AttributeError(f"module 'veckm' has no attribute {name!r}")
