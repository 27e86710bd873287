"""The base class of all verbs: common options, printing, JSON reports, and checks of files."""

from __future__ import annotations

import json
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from veckm import __version__
from veckm.cloud import PointCloud
from veckm.data import shapes
from veckm.io import FileError, read
from veckm.io.atomic import writing

#: Points of the sample scan of verbs that got no file.
_SAMPLE_POINTS = 20_000
_INPUTS = "LAS, LAZ, PLY, PCD, XYZ, CSV, PTS, NPY, NPZ or KITTI .bin; E57 is only read"


def option(metavar: str, default: str = "", **more: Any) -> Any:
    """How the help names the value and the default of an option."""
    return arg(metavar=metavar, help_behavior_hint=default and f"(default: {default})", **more)


#: Types of options that several verbs have.
Flag = Annotated[bool, arg(help_behavior_hint=""), FlagCreatePairsOff]
Count = Annotated[int | None, option("K")]
InputFile = Positional[Annotated[Path, arg(metavar="FILE", help=f"{_INPUTS}.")]]
InputFileOrSample = Positional[
    Annotated[Path | None, option("[FILE]", "a sample", help=f"{_INPUTS}.")]
]
OutputFile = Annotated[Path | None, option("FILE", "not written", aliases=["-o"])]


@dataclass(frozen=True)
class Common:
    """Options of every verb."""

    quiet: Flag = False
    """Print nothing but errors."""
    json: Flag = False
    """Print one JSON object instead of text."""
    debug: Flag = False
    """Show the traceback of an error."""


@dataclass(frozen=True, kw_only=True)
class Verb(ABC):
    """A verb of the command line: a frozen dataclass of options that can :meth:`run`."""

    common: OmitArgPrefixes[Common] = Common()

    @abstractmethod
    def run(self) -> None:
        """Do the work. What it raises is printed as one line, and the exit code is 2."""

    @property
    def silent(self) -> bool:
        """Whether text for people, progress bars included, is left out."""
        return self.common.quiet or self.common.json

    def show(self, *lines: str) -> None:
        """Print lines for people, unless the verb is silent."""
        if lines and not self.silent:
            print(*lines, sep="\n", flush=True)

    def title(self, name: str) -> None:
        """Print the version and the name of the verb, as the first line of its text."""
        self.show(f"veckm {__version__} {name}", "")

    def report(self, **values: object) -> None:
        """With ``--json``, print the values as one JSON object, after the version."""
        if self.common.json:
            print(json.dumps({"veckm": __version__, **values}, default=str), flush=True)


def read_cloud(path: Path | None) -> PointCloud:
    """Read a file, whose points must be finite; a sample scan with its normals without one."""
    if path is None:
        sample = shapes.scan(_SAMPLE_POINTS)
        return PointCloud(sample.pos.numpy()).with_normals(sample.normal.numpy())
    cloud = read(path)
    if not len(cloud):
        raise FileError(path, "has no points")
    bad = np.flatnonzero(~np.isfinite(cloud.pos).all(1))
    if len(bad):
        raise FileError(
            path,
            f"{len(bad):,} of {len(cloud):,} points have NaN or infinite coordinates, "
            f"the first in row {bad[0]}; drop them first, a[np.isfinite(a).all(1)]",
        )
    return cloud


def coordinates(cloud: PointCloud) -> Tensor:  # (N, 3) float32 or float64
    """The coordinates of the file, in its own dtype where that loses nothing."""
    xyz = cloud.pos if not cloud.origin.any() else cloud.xyz
    return torch.from_numpy(np.ascontiguousarray(xyz))


def check_output(path: Path, source: Path | None, what: str, suffixes: tuple[str, ...]) -> None:
    """Raise now what would otherwise fail after the work; ``source`` is never overwritten."""
    if path.suffix.lower() not in suffixes:
        raise ValueError(
            f"{path}: {what} are written as {' or '.join(suffixes)}; choose a name that ends so"
        )
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: there is no folder {path.parent}; make it first")
    if source is not None and path.exists() and path.samefile(source):
        raise ValueError(f"{path}: is the cloud itself; choose another name for its {what}")
    try:
        tempfile.TemporaryFile(dir=path.resolve().parent).close()
    except OSError as error:
        raise OSError(f"{path}: cannot write in {path.parent}: {error.strerror}") from error


def save_array(path: Path, array: np.ndarray) -> None:
    """Write a .npy file atomically."""
    with writing(path) as file:
        np.save(file, array, allow_pickle=False)


def save_json(path: Path, values: dict[str, object]) -> None:
    """Write a JSON object, after the version, atomically."""
    text = json.dumps({"veckm": __version__, **values}, indent=2, default=str)
    with writing(path) as file:
        file.write(text.encode())
