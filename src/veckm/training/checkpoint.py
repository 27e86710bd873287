"""Checkpoints that record what they are of, written atomically."""

from __future__ import annotations

import pickle
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from veckm.io.atomic import writing

if TYPE_CHECKING:
    from veckm.models import PointModel

_FORMAT = 2


@dataclass(frozen=True)
class Checkpoint:
    """The state after an epoch, and everything that it depends on."""

    epoch: int  #: number of finished epochs
    config: dict[str, Any]  #: of the model: its name, and the fields of its config
    task: dict[str, Any]  #: its name and fields
    recipe: dict[str, Any]  #: how it is trained
    data: dict[str, Any]  #: classes, checksum and number of the training samples
    model: dict[str, Any]  #: its state
    optimizer: dict[str, Any]  #: its state
    scaler: dict[str, Any] = field(default_factory=dict)  #: its state
    format: int = _FORMAT

    def save(self, path: Path) -> None:
        """Write it; after a kill the file is the old one or the new one."""
        # Not asdict: it would copy every tensor.
        state = {item.name: getattr(self, item.name) for item in fields(self)}
        with writing(path) as file:
            torch.save(state, file)

    def restore(self, model: nn.Module, source: Path | str) -> None:
        """Load the weights into a model of the same config; raises a ValueError for another."""
        self.check(source, config=model)
        try:
            model.load_state_dict(self.model)
        except RuntimeError as error:
            raise ValueError(f"{source} is of another version of veckm: {error}") from error

    def check(self, source: Path | str, **present: Any) -> None:
        """Raise a ValueError unless ``config``, ``task``, ``recipe``, ``data`` are as given.

        A field that the dataclass has got since then had its default.
        """
        for name, thing in present.items():
            new = describe(thing)
            old = _with_defaults(getattr(self, name), getattr(thing, "config", thing))
            differences = [
                f"{key} is {old.get(key)!r} there and {new.get(key)!r} here"
                for key in {**old, **new}
                if old.get(key) != new.get(key)
            ]
            if differences:
                raise ValueError(
                    f"{source} cannot be resumed, its {name} differs: {', '.join(differences)}; "
                    "use the same options, or another folder for a new run"
                )


def describe(thing: Any) -> dict[str, Any]:
    """A model, task or recipe as plain values: its name and fields; a dict as it is."""
    if isinstance(thing, dict):
        return thing
    config = getattr(thing, "config", thing)
    named = {"name": type(thing).__name__} if isinstance(thing, nn.Module) else {}
    named |= {key: getattr(thing, key) for key in ("name", "task") if hasattr(thing, key)}
    return {**named, **(asdict(config) if is_dataclass(config) else {})}  # type: ignore[arg-type]


def _with_defaults(saved: dict[str, Any], thing: object) -> dict[str, Any]:
    """Saved fields, and the defaults of those that the dataclass of ``thing`` has got since."""
    filled = dict(saved)
    for item in fields(thing) if is_dataclass(thing) else ():
        if isinstance(saved.get(item.name), dict):
            filled[item.name] = _with_defaults(saved[item.name], getattr(thing, item.name))
        elif item.name not in saved and item.default is not MISSING:
            filled[item.name] = item.default
    return filled


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint, or the ``last.pt`` of a folder; never runs code that it may contain."""
    path = Path(path)
    if path.is_dir():
        path = path / "last.pt"
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; train first, or name a last.pt")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError, ValueError, KeyError) as error:
        raise ValueError(f"{path} cannot be read as a checkpoint: {error}") from error
    if not isinstance(state, dict) or "format" not in state:
        raise ValueError(f"{path} is not a checkpoint of veckm's training")
    if state["format"] != _FORMAT:
        raise ValueError(
            f"{path} has format {state['format']}, this version reads {_FORMAT}; train again, or "
            "use the version of veckm that wrote it"
        )
    return Checkpoint(**state)


def load_model(path: str | Path) -> PointModel:
    """The trained network of a checkpoint, or of a folder of ``veckm train``, for evaluation."""
    from veckm.models import rebuild  # all networks: only where one is needed

    saved = load_checkpoint(path)
    model = rebuild(saved.config)
    saved.restore(model, path)
    return model.eval()
