"""The base class of verbs from clouds to files: one, several, a folder or a pattern."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, ClassVar

import torch
from tyro.conf import OmitArgPrefixes, Positional, Suppress

from veckm.cli import in_one_line
from veckm.cli.text import counted, seconds
from veckm.cli.verb import (
    INPUTS,
    Columns,
    Count,
    Flag,
    OutputFile,
    Verb,
    check_output,
    noted,
    option,
)
from veckm.inputs import check_count
from veckm.io import READABLE
from veckm.progress import passes

InputFiles = Positional[
    Annotated[
        tuple[Path, ...],
        option("[FILE ...]", "a sample", help=f"{INPUTS}. Or a folder, or a quoted pattern."),
    ]
]
#: Formats of the input that outputs are not in by default: they have no room for new fields.
_NARROW = (".bin",)


@dataclass(frozen=True)
class Batch:
    """Options for several clouds."""

    out_dir: Annotated[Path | None, option("FOLDER", "none")] = None
    """Folder for the outputs of several clouds, a folder or a pattern. Created if missing."""
    suffix: Annotated[str | None, option("SUFFIX", "as the input")] = None
    """Format of the outputs in the folder, for example .laz."""
    overwrite: Flag = False
    """Replace outputs that exist."""
    threads: Count = None
    """Compute with K threads."""
    part: Suppress[bool] = False  # whether this is one of several clouds


@dataclass
class _Row:
    """A line of the table: what became of a cloud."""

    path: Path
    output: Path
    status: str = "written"
    points: int = 0
    seconds: float = 0.0
    error: str = ""
    notes: list[str] = field(default_factory=list)

    def lines(self, width: int) -> list[str]:
        """As it is printed."""
        done = self.status == "written"
        points = f"{self.points:,}" if done else ""
        spent = seconds(self.seconds) if done else ""
        first = f"{self.path.name:<{width}} {points:>12} {spent:>9}  {self.status}"
        return [first, *(f"  {text}" for text in filter(None, (self.error, *self.notes)))]


@dataclass(frozen=True)
class BatchVerb(Verb):
    """A verb that makes a file of every cloud."""

    contents: ClassVar[str]  # of the output, for messages
    suffixes: ClassVar[tuple[str, ...]]  # of the output

    files: InputFiles = ()
    output: OutputFile = None
    columns: Columns = ()
    """Names of all columns of a file that names none: x y z intensity ring for a .bin."""
    batch: OmitArgPrefixes[Batch] = Batch()

    @property
    def cloud(self) -> Path | None:
        """The input, one of them at a time."""
        return self.files[0] if self.files else None

    @abstractmethod
    def process(self) -> dict[str, object] | None:
        """Read, compute and write one cloud; returns what is reported of it."""

    def run(self) -> int:
        """Check, then process all clouds; 1 if some failed."""
        with _threads(self.batch.threads):
            paths = expand(self.files)
            if self.batch.out_dir is None and paths == [*self.files] and len(paths) < 2:
                self._check()
                self.process()
                return 0
            return self._run_all(self._rows(paths))

    def show(self, *lines: str) -> None:
        """Of several clouds only the table is printed."""
        if not self.batch.part:
            super().show(*lines)

    def report(self, **values: object) -> dict[str, object]:
        """Of several clouds there is one report."""
        return values if self.batch.part else super().report(**values)

    def _check(self) -> None:
        if self.output is not None:
            overwrite = self.batch.overwrite
            check_output(self.output, self.cloud, self.contents, self.suffixes, overwrite)

    def _rows(self, paths: list[Path]) -> list[_Row]:
        """Every cloud and its output; raises where outputs would not have a place of their own."""
        folder = self.batch.out_dir
        if self.output is not None or folder is None:
            raise ValueError(
                f"{counted(len(paths), 'cloud')}: give --out-dir, a folder for the outputs"
                f"{', instead of -o' if self.output else ''}"
            )
        rows = [_Row(path, folder / f"{_stem(path)}{self._suffix(path)}") for path in paths]
        names = {row.output: row.path for row in rows}
        for row in rows:
            if (other := names[row.output]) != row.path:
                raise ValueError(f"{row.path} and {other} would both be {row.output}")
        folder.mkdir(parents=True, exist_ok=True)
        return rows

    def _suffix(self, path: Path) -> str:
        asked = self.batch.suffix
        if asked is not None:
            asked = f".{asked.removeprefix('.')}".lower()
            if asked not in self.suffixes:
                raise ValueError(f"--suffix {asked}: must be one of {' '.join(self.suffixes)}")
            return asked
        own = path.suffix.lower()
        usual = ".ply" if ".ply" in self.suffixes else self.suffixes[0]
        return own if own in self.suffixes and own not in _NARROW else usual

    def _run_all(self, rows: list[_Row]) -> int:
        width, start = max(len(row.path.name) for row in rows), time.perf_counter()
        self.show(f"{'file':<{width}} {'points':>12} {'time':>9}  result")
        for number, row in enumerate(rows):
            prefix = f"{number + 1} of {len(rows)}, {row.path.name}: "
            try:
                with passes((), not self.silent, prefix):
                    self._run_one(row)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(
                    f"interrupted after {number} of {len(rows)} files; run the same command again "
                    "for the rest"
                ) from None
            self.show(*row.lines(width))
        return self._summarize(rows, time.perf_counter() - start)

    def _run_one(self, row: _Row) -> None:
        if row.output.exists() and not self.batch.overwrite:
            row.status, row.error = "kept", f"{row.output} exists; --overwrite replaces it"
            return
        start, part = time.perf_counter(), replace(self.batch, part=True)
        one = replace(self, files=(row.path,), output=row.output, batch=part)
        try:
            with noted() as notes:
                one._check()
                found = one.process() or {}
            row.points = int(str(found.get("points", 0)))
            row.notes = [*dict.fromkeys(notes)]
        except Exception as error:
            if self.common.debug:
                raise
            row.status, row.error = "failed", in_one_line(error, row.path)
        row.seconds = time.perf_counter() - start

    def _summarize(self, rows: Sequence[_Row], spent: float) -> int:
        states = [row.status for row in rows]
        counts = {state: states.count(state) for state in ("written", "kept", "failed")}
        points = sum(row.points for row in rows)
        told = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
        total = f"{counted(points, 'point')} in {seconds(spent)}"
        self.show("", f"{counted(len(rows), 'file')}: {told}; {total}, in {self.batch.out_dir}")
        super().report(files=[vars(row) for row in rows], **counts, points=points, seconds=spent)
        return int(counts["failed"] > 0)


def expand(files: Sequence[Path]) -> list[Path]:
    """Folders and patterns replaced by the clouds in them."""
    out: list[Path] = []
    for path in files:
        found = [path]
        if path.is_dir():
            found = [p for p in path.iterdir() if p.suffix.lower() in READABLE and p.is_file()]
            if not found:
                raise FileNotFoundError(f"{path}: no file in this folder is a cloud")
        elif not path.exists() and any(sign in str(path) for sign in "*?["):
            anchor = Path(path.anchor)
            found = [p for p in anchor.glob(str(path.relative_to(anchor))) if p.is_file()]
            if not found:
                raise FileNotFoundError(f"{path}: no file matches this pattern")
        out += sorted(found)
    return list(dict.fromkeys(out))


def _stem(path: Path) -> str:
    """The name without its suffixes, also those of two parts."""
    stem = path.stem
    for double in (".copc", ".pcd"):
        stem = stem.removesuffix(double)
    return stem


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Compute with so many threads inside."""
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(check_count(count, "--threads"))
    try:
        yield
    finally:
        torch.set_num_threads(before)
