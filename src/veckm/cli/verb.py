"""The base class of all verbs: common options, printing, JSON reports, and checks of files."""

from __future__ import annotations

import json
import tempfile
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg

from veckm import __version__
from veckm.cli.text import labeled
from veckm.cloud import PointCloud
from veckm.data import shapes
from veckm.io import FileError, FileWarning, read
from veckm.io.atomic import writing

#: Points of the sample scan of verbs that got no file.
_SAMPLE_POINTS = 30_000
INPUTS = "LAS, LAZ, PLY, PCD, XYZ, CSV, PTS, NPY, NPZ or .bin; E57 is only read"
#: What the running verb has to tell beside its result, the innermost list last.
_notes: list[list[str]] = []


def option(metavar: str, default: str = "", **more: Any) -> Any:
    """How the help names the value and the default of an option."""
    return arg(metavar=metavar, help_behavior_hint=default and f"(default: {default})", **more)


#: Types of options that several verbs have.
Flag = Annotated[bool, arg(help_behavior_hint=""), FlagCreatePairsOff]
Count = Annotated[int | None, option("K")]
InputFile = Positional[Annotated[Path, arg(metavar="FILE", help=f"{INPUTS}.")]]
InputFileOrSample = Positional[
    Annotated[Path | None, option("[FILE]", "a sample", help=f"{INPUTS}.")]
]
Columns = Annotated[tuple[str, ...], option("NAME ...", "of the file")]
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
    def run(self) -> int | None:
        """Do the work; returns the exit code, 0 by default. What it raises is printed as one line,
        and the exit code is 2."""

    def __call__(self) -> int | None:
        """Run, then print the notes."""
        with noted() as notes:
            code = self.run()
        self.show(*(labeled("note", text) for text in dict.fromkeys(notes)))
        return code

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

    def report(self, **values: object) -> dict[str, object]:
        """With ``--json``, print the values as one JSON object, after the version; returns them."""
        if self.common.json:
            notes = {"notes": _notes[-1]} if _notes and _notes[-1] else {}
            text = json.dumps({"veckm": __version__, **values, **notes}, default=str)
            print(text, flush=True)
        return values


def note(text: str) -> None:
    """Tell something beside the result, after it."""
    if _notes:
        _notes[-1].append(text)


@contextmanager
def noted() -> Iterator[list[str]]:
    """Collect notes, and what readers warn about."""
    _notes.append([])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", FileWarning)
            shown = warnings.showwarning

            def collect(message: Any, category: Any, *rest: Any, **more: Any) -> None:
                if issubclass(category, FileWarning):
                    note(str(message))
                else:
                    shown(message, category, *rest, **more)

            warnings.showwarning = collect
            yield _notes[-1]
    finally:
        _notes.pop()


def read_cloud(path: Path | None, columns: tuple[str, ...] = ()) -> PointCloud:
    """Read the points of a file that have coordinates; a sample scan with its normals without a
    file."""
    cloud = read_all(path, columns)
    rows = finite_rows(cloud, path)
    return cloud if len(rows) == len(cloud) else cloud[rows]


def finite_rows(cloud: PointCloud, path: Path | None) -> np.ndarray:  # (M,)
    """The points that have coordinates; tells of the others, and raises if there are none."""
    rows = np.flatnonzero(np.isfinite(cloud.pos).all(1))
    missing = len(cloud) - len(rows)
    if not len(rows):
        raise FileError(path or "", f"has no coordinates: all {missing:,} points are NaN")
    if missing:
        note(f"{missing:,} of {len(cloud):,} points have no coordinates (NaN), and no result")
    return rows


def read_all(path: Path | None, columns: tuple[str, ...] = ()) -> PointCloud:
    """Read a file with all its points; a sample scan with its normals without one."""
    if path is None:
        sample = shapes.house(_SAMPLE_POINTS, meters=True)
        return PointCloud(sample.pos.numpy()).with_normals(sample.normal.numpy())
    cloud = read(path, columns=columns)
    if not len(cloud):
        raise FileError(path, "has no points")
    return cloud


def coordinates(cloud: PointCloud) -> Tensor:  # (N, 3) float32 or float64
    """The coordinates of the file, in its own dtype where that loses nothing."""
    xyz = cloud.pos if not cloud.origin.any() else cloud.xyz
    return torch.from_numpy(np.ascontiguousarray(xyz))


def check_output(
    path: Path, source: Path | None, what: str, suffixes: tuple[str, ...], overwrite: bool = True
) -> None:
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
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path}: exists; give --overwrite to replace it")
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
