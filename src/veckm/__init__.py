"""veckm: the local geometry of every point of a cloud, as a vector, in linear time."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from veckm.cloud import PointCloud
    from veckm.descriptors import Descriptor, describe
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
    from veckm.io import read, write
    from veckm.kernel_moments import Moments
    from veckm.models import create_model, list_models
    from veckm.planning import Plan, plan
    from veckm.tasks.features import features
    from veckm.tasks.normals import estimate_normals
    from veckm.tasks.registration import Registration, register

__all__ = [
    "Descriptor",
    "Moments",
    "Plan",
    "PointCloud",
    "Registration",
    "VecKM",
    "__version__",
    "beta_from_radius",
    "create_model",
    "describe",
    "encode",
    "encode_neighborhood",
    "estimate_normals",
    "features",
    "kernel_mixture",
    "list_models",
    "moments",
    "plan",
    "radius_from_beta",
    "read",
    "reconstruct",
    "register",
    "similarity",
    "suggest_radius",
    "write",
]

__version__ = "0.1.0"

#: Imported when they are asked for: importing torch takes seconds, `veckm --help` should not. No
#: module may have the name of one, since importing it would hide the name.
_LAZY = {
    "cloud": "PointCloud",
    "descriptors": "Descriptor describe",
    "encoder": "VecKM",
    "frequencies": "beta_from_radius radius_from_beta suggest_radius",
    "functional": "encode encode_neighborhood kernel_mixture moments reconstruct similarity",
    "io": "read write",
    "kernel_moments": "Moments",
    "models": "create_model list_models",
    "planning": "Plan plan",
    "tasks.features": "features",
    "tasks.normals": "estimate_normals",
    "tasks.registration": "Registration register",
}
_MODULES = {name: f"veckm.{module}" for module, names in _LAZY.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """A public name, from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module 'veckm' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
