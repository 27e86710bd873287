"""The names that users write: a change here is a change for them, and goes into the changelog."""

from __future__ import annotations

import inspect

import pytest

import veckm
import veckm.nn

NAMES = [
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

# Positional parameters first; after * by keyword only.
SIGNATURES = {
    "create_model": "name * task veckm authors encoding num_classes in_channels seed validate "
    "options",
    "list_models": "task",
    "encode": "pos A * beta radius window engine norm eps batch queries query_batch weights B "
    "progress validate",
    "encode_neighborhood": "offsets A weights",
    "describe": "pos * radius axis batch queries query_batch weights shells degree density eps",
    "Descriptor": "radius * shells degree density eps",
    "Descriptor.forward": "self pos batch * axis queries query_batch weights",
    "register": "source target * up learnt",
    "Registration": "transform confidence overlap matches inliers voxel seconds note",
    "Registration.apply": "self pos",
    "features": "pos radii * invariants height eps",
    "estimate_normals": "pos * batch orient viewpoint method",
    "kernel_mixture": "points at alpha weights",
    "PointCloud": "pos origin fields crs source viewpoint",
    "read": "path * samples seed columns",
    "write": "path cloud options",
    "reconstruct": "G at A",
    "similarity": "G1 G2",
    "beta_from_radius": "radius",
    "radius_from_beta": "beta",
    "suggest_radius": "pos * neighbors samples",
    "moments": "pos * beta radius window batch queries query_batch weights engine eps progress "
    "validate",
    "Moments": "weight mean covariance window",
    "Plan": "scales geometry engine columns",
    "Plan.encode": "self A * norm weights out",
    "Plan.sum": "self values",
    "Plan.moments": "self * weights",
    "plan": "pos * radius beta batch queries query_batch window engine eps B columns progress "
    "validate",
    "VecKM": "dim * alpha beta radius detail in_dim window engine norm eps p draw seed A B "
    "validate",
    "VecKM.forward": "self pos batch * queries query_batch weights progress",
    "VecKM.plans": "self pos batch * queries query_batch progress",
}

DEFAULTS = {
    "encode": {"window": "gaussian", "engine": "auto", "norm": "unit", "eps": 1e-2},
    "VecKM": {
        "dim": None,
        "in_dim": 3,
        "window": "gaussian",
        "engine": "auto",
        "norm": "unit",
        "eps": 1e-2,
        "p": 4096,
        "draw": "unbiased",
        "seed": 0,
        "validate": True,
    },
}


def found(name: str) -> object:
    thing: object = veckm
    for part in name.split("."):
        thing = getattr(thing, part)
    return thing


def written(name: str) -> str:
    """The parameters of a signature, with a star before those by keyword only."""
    parameters = inspect.signature(found(name)).parameters.values()  # type: ignore[arg-type]
    words: list[str] = []
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(parameter.name)
    return " ".join(words)


def test_the_public_names_are_these() -> None:
    assert veckm.__all__ == NAMES
    assert {name for name in SIGNATURES if "." not in name} == set(NAMES) - {"__version__"}


def test_the_public_names_of_the_layers_are_these() -> None:
    names = ["ComplexBatchNorm", "ComplexLinear", "ComplexReLU", "FeatureBlock", "SquaredNorm"]
    assert veckm.nn.__all__ == names


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_parameters_are_these_in_this_order(name: str) -> None:
    assert written(name) == SIGNATURES[name]


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_defaults_are_these(name: str) -> None:
    parameters = inspect.signature(found(name)).parameters  # type: ignore[arg-type]
    assert {key: parameters[key].default for key in DEFAULTS[name]} == DEFAULTS[name]


@pytest.mark.parametrize("name", [*NAMES, *(name for name in SIGNATURES if "." in name)])
def test_every_public_name_is_documented(name: str) -> None:
    if name == "__version__":
        assert veckm.__version__.count(".") == 2
        return
    doc = inspect.getdoc(found(name))
    assert doc
    assert len(doc.splitlines()[0]) > 20


@pytest.mark.parametrize("name", SIGNATURES)
def test_every_parameter_and_result_is_typed(name: str) -> None:
    signature = inspect.signature(found(name))  # type: ignore[arg-type]
    for parameter in signature.parameters.values():
        assert parameter.name == "self" or parameter.annotation is not parameter.empty
    assert signature.return_annotation is not signature.empty


def test_a_star_import_brings_the_public_names() -> None:
    space: dict[str, object] = {}
    exec("from veckm import *", space)
    assert set(NAMES) <= set(space)
