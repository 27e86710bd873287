"""veckm: the local geometry of every point of a cloud, as a vector, in linear time."""

from __future__ import annotations

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

__all__ = [
    "Moments",
    "VecKM",
    "__version__",
    "beta_from_radius",
    "encode",
    "encode_neighborhood",
    "kernel_mixture",
    "moments",
    "radius_from_beta",
    "reconstruct",
    "similarity",
    "suggest_radius",
]

__version__ = "0.1.0"
