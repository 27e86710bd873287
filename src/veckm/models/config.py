"""What networks are built from: frozen dataclasses, saved as JSON with every checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

from veckm import inputs
from veckm.engines import Norm
from veckm.planning import EngineName

Task = Literal["classification", "part-segmentation", "semantic-segmentation"]


@dataclass(frozen=True)
class EncodingConfig:
    """VecKM as a part of a network; the defaults are those of Section 4.2 and Appendix B.

    Attributes:
        alpha: level of detail; a tuple for several scales.
        beta: inverse size of the window; a tuple for several scales.
        dim: D, complex numbers per scale.
        hidden: complex channels between the two complex layers.
        channels: C, real features per point.
        engine: how the encoding is computed; the paper's is ``"dense"`` for objects and
            ``"random"`` for scenes.
        p: columns of B, for ``engine="random"``.
        eps: mean relative error of an encoding.
        position: standard deviation of the frequencies P of e^(i x P), which is added to the
            encoding and tells where in the cloud a point is; 0 adds nothing.
        norm: normalization of the encoding, ``"unit"``, ``"mean"`` or None; see
            :func:`veckm.encode`.
        batch_norm: whiten the hidden channels by the batch; see :class:`veckm.nn.FeatureBlock`.
    """

    alpha: float | tuple[float, ...] = 30.0
    beta: float | tuple[float, ...] = 6.0
    dim: int = 256
    hidden: int = 128
    channels: int = 128
    engine: EngineName = "auto"
    p: int = 2048
    eps: float = 1e-2
    position: float = 1.0
    norm: Norm = "unit"
    batch_norm: bool = False

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            if isinstance(value := getattr(self, name), list):  # as JSON has it
                object.__setattr__(self, name, tuple(value))


@dataclass(frozen=True)
class ModelConfig:
    """What every network is built from.

    Attributes:
        num_classes: logits per cloud, or per point.
        in_channels: C, channels of ``x`` beside the coordinates.
        encoding: VecKM in the network; None for the plain network.
        seed: of the initial weights and of VecKM's frequencies.
    """

    num_classes: int
    in_channels: int = 0
    encoding: EncodingConfig | None = None
    seed: int = 0

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
    """What networks for classification are built from."""

    dropout: float = 0.5  # after the layers of the head


@dataclass(frozen=True)
class PartsConfig(ModelConfig):
    """What networks for part segmentation are built from."""

    num_categories: int = 16  # categories of objects

    def __post_init__(self) -> None:
        super().__post_init__()
        inputs.check_count(self.num_categories, "num_categories")


@dataclass(frozen=True)
class DropoutPartsConfig(PartsConfig):
    """What networks for part segmentation with dropout are built from."""

    dropout: float = 0.5  # in the head
