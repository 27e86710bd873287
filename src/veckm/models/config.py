"""What networks are built from: frozen dataclasses, saved as JSON with every checkpoint."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import Any, Literal, Self

from veckm import inputs
from veckm.engines import Norm
from veckm.planning import EngineName
from veckm.sizes import resolve_beta

Task = Literal["classification", "part-segmentation", "semantic-segmentation"]


@dataclass(frozen=True)
class EncodingConfig:
    """VecKM as a part of a network; the defaults are those of Section 4.2 and Appendix B."""

    alpha: float | tuple[float, ...] = 30.0  #: level of detail; a tuple for several scales
    beta: float | tuple[float, ...] | None = None  #: inverse size of the window; 6 by default
    dim: int = 256  #: D, complex numbers per scale
    hidden: int = 128  #: complex channels between the two complex layers
    channels: int = 128  #: C, real features per point
    engine: EngineName = "auto"  #: the paper's is "dense" for objects and "random" for scenes
    p: int = 2048  #: columns of B, for ``engine="random"``
    eps: float = 1e-2  #: mean relative error of an encoding
    #: Standard deviation of the frequencies P of e^(i x P), which is added to the encoding and
    #: tells where in the cloud a point is; 0 adds nothing.
    position: float = 1.0
    norm: Norm = "unit"  #: normalization of the encoding; see :func:`veckm.encode`
    batch_norm: bool = False  #: whiten the hidden channels; see :class:`veckm.nn.FeatureBlock`
    radius: InitVar[float | tuple[float, ...] | None] = (
        None  #: instead of beta, which is 1.8 / radius
    )

    def __post_init__(self, radius: float | tuple[float, ...] | None) -> None:
        if radius is not None:
            given = resolve_beta(self.beta, radius)
            object.__setattr__(
                self, "beta", given if isinstance(radius, (tuple, list)) else given[0]
            )
        elif self.beta is None:
            object.__setattr__(self, "beta", 6.0)
        for name in ("alpha", "beta"):
            if isinstance(value := getattr(self, name), list):  # as JSON has it
                object.__setattr__(self, name, tuple(value))


@dataclass(frozen=True)
class ModelConfig:
    """What every network is built from."""

    num_classes: int  #: logits per cloud, or per point
    in_channels: int = 0  #: C, channels of ``x`` beside the coordinates
    encoding: EncodingConfig | None = None  #: VecKM in the network; None for the plain network
    seed: int = 0  #: of the initial weights and of VecKM's frequencies
    authors: bool = False  #: the network of the VecKM paper's authors, as their program builds it

    def __post_init__(self) -> None:
        inputs.check_count(self.num_classes, "num_classes")
        inputs.check_count(self.in_channels, "in_channels", 0)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """The config of plain values, as ``dataclasses.asdict`` gives them and JSON stores them."""
        encoding = values.get("encoding")
        return cls(**values | {"encoding": encoding and EncodingConfig(**encoding)})


@dataclass(frozen=True)
class ClassifierConfig(ModelConfig):
    """Options of networks for classification."""

    dropout: float = 0.5  # after the layers of the head


@dataclass(frozen=True)
class PartsConfig(ModelConfig):
    """Options of networks for part segmentation."""

    num_categories: int = 16  # categories of objects

    def __post_init__(self) -> None:
        super().__post_init__()
        inputs.check_count(self.num_categories, "num_categories")


@dataclass(frozen=True)
class DropoutPartsConfig(PartsConfig):
    """Options of networks for part segmentation with dropout."""

    dropout: float = 0.5  # in the head
