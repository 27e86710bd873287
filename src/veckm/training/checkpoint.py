"""Checkpoints that know what they are of, written whole or not at all."""

from __future__ import annotations

import pickle
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from veckm.data.cache import write_whole
from veckm.training.recipe import Recipe, Task

_FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """The state after an epoch, and everything that it depends on.

    Attributes:
        epoch: how many epochs are done.
        settings: of the model, as it says itself.
        task: its name and settings.
        recipe: how it is trained.
        data: classes, checksum and number of the samples it learns from.
        model, optimizer, scaler: their states.
    """

    epoch: int
    settings: dict[str, Any]
    task: dict[str, Any]
    recipe: dict[str, Any]
    data: dict[str, Any]
    model: dict[str, Any]
    optimizer: dict[str, Any]
    scaler: dict[str, Any] = field(default_factory=dict)
    format: int = _FORMAT

    def save(self, path: Path) -> None:
        """Write it; a kill leaves the old file or the new one."""
        # Not asdict: it would copy every tensor.
        state = {name: getattr(self, name) for name in self.__dataclass_fields__}
        write_whole(path, lambda file: torch.save(state, file))

    def restore(self, model: nn.Module, source: Path | str) -> None:
        """Put the weights into a model of the same settings; an error that says both otherwise."""
        settings = settings_of(model)
        if settings != self.settings:
            raise ValueError(
                f"{source}: is a checkpoint of another model: it is of {_words(self.settings)}, "
                f"but the model here is {_words(settings)}; {_differs(self.settings, settings)}"
            )
        try:
            model.load_state_dict(self.model)
        except RuntimeError as error:
            raise ValueError(
                f"{source}: its weights do not fit {_words(settings)}, although the settings are "
                f"the same; was it made by another version? {error}"
            ) from error

    def check(self, task: Task, recipe: Recipe, data: dict[str, Any], source: Path) -> None:
        """Raise if going on from here would not be the same run."""
        pairs = (
            ("task", self.task, describe(task)),
            ("recipe", self.recipe, asdict(recipe)),
            ("data", self.data, data),
        )
        for name, old, new in pairs:
            if old != new:
                raise ValueError(
                    f"{source}: cannot be resumed, its {name} is another: {_differs(old, new)}; "
                    "use the same settings, or another folder for a new run"
                )


def describe(task: Task) -> dict[str, Any]:
    """Name and settings of a task."""
    return {"name": task.name, **asdict(task)}


def settings_of(model: nn.Module) -> dict[str, Any]:
    """What a model says of itself, or its class where it says nothing."""
    said = getattr(model, "settings", None)
    return dict(said) if isinstance(said, dict) else {"name": type(model).__name__}


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Read a checkpoint; never runs a program that may be hidden in it."""
    path = Path(path)
    if path.is_dir():
        path = path / "last.pt"
    if not path.is_file():
        raise FileNotFoundError(f"{path}: is not there; train first, or name a last.pt")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError, ValueError, KeyError) as error:
        raise ValueError(f"{path}: cannot be read as a checkpoint: {error}") from error
    if not isinstance(state, dict) or set(state) != set(Checkpoint.__dataclass_fields__):
        raise ValueError(f"{path}: is not a checkpoint of veckm's training")
    if state["format"] != _FORMAT:
        raise ValueError(f"{path}: has format {state['format']}, this version reads {_FORMAT}")
    return Checkpoint(**state)


def _words(settings: dict[str, Any]) -> str:
    name = settings.get("name", "a model")
    with_veckm = " with VecKM" if settings.get("veckm") else ""
    task = f" for {settings['task']}" if "task" in settings else ""
    return f"{name}{with_veckm}{task}"


def _differs(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Every setting that is not the same, there and here."""
    keys = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return ", ".join(f"{key} is {old.get(key)!r} there and {new.get(key)!r} here" for key in keys)
