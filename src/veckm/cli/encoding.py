"""Options of VecKM's part in a network."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from veckm.cli.verb import option
from veckm.frequencies import beta_from_radius
from veckm.planning import EngineName

if TYPE_CHECKING:
    from veckm.models import EncodingConfig, Task

_Numbers = Annotated[tuple[float, ...] | None, option("X ...", "the network's")]
_Number = Annotated[float | None, option("X", "the network's")]
_Count = Annotated[int | None, option("K", "the network's")]


@dataclass(frozen=True)
class EncodingOptions:
    """What differs from the network's own encoding; only with --veckm."""

    alpha: _Numbers = None
    """Level of detail; several numbers for several scales."""
    beta: _Numbers = None
    """Inverse size of the window; several numbers for several scales."""
    radius: _Numbers = None
    """Radius of the neighborhood instead of beta (beta = 1.8 / radius)."""
    dim: _Count = None
    """Complex numbers per point and scale."""
    hidden: _Count = None
    """Complex channels between the two complex layers."""
    position: _Number = None
    """Standard deviation of the frequencies that tell where a point is; 0 for none."""
    engine: Annotated[EngineName | None, option("NAME", "the network's")] = None
    """How the encodings are computed: auto, dense, neighbors, random or grid."""
    eps: _Number = None
    """Mean relative error that is allowed."""
    norm: Annotated[Literal["unit", "mean", "none"] | None, option("NAME", "the network's")] = None
    """Normalization of an encoding: unit, mean or none."""

    def config(self, name: str, task: Task, veckm: bool, authors: bool) -> EncodingConfig | None:
        """The encoding of a network; None if all is the network's own."""
        given: dict[str, Any] = {
            item.name: value
            for item in fields(self)
            if (value := getattr(self, item.name)) is not None
        }
        if not given:
            return None
        if not veckm:
            raise ValueError(
                f"--{', --'.join(given)}: without --veckm the network has no encoding; add --veckm"
            )
        if "radius" in given:
            if "beta" in given:
                raise ValueError("--radius and --beta are the same thing: give one of them")
            given["beta"] = tuple(beta_from_radius(radius) for radius in given.pop("radius"))
        for key in ("alpha", "beta"):
            if len(given.get(key, ())) == 1:
                (given[key],) = given[key]
        if given.get("norm") == "none":
            given["norm"] = None
        from veckm.models import default_encoding  # all networks: not for other verbs

        return default_encoding(name, task, authors=authors, **given)
