"""The log of a training: JSON lines, and TensorBoard where it is installed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from veckm.io.atomic import writing


@contextmanager
def log_epochs(folder: Path, done: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yields a function that appends the numbers of an epoch to ``log.jsonl``, and to TensorBoard.

    A log is continued after ``done`` epochs; lines of later, unfinished ones are removed.
    """
    path = folder / "log.jsonl"
    board: Any = None
    kept = [line for line in read_log(folder) if line["epoch"] <= done]
    with writing(path) as file:
        file.write("".join(json.dumps(line) + "\n" for line in kept).encode())
    if find_spec("tensorboard") is not None:
        from torch.utils.tensorboard import SummaryWriter

        board = SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1)

    def write(line: dict[str, Any]) -> None:
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        for key, value in line.items() if board is not None else ():
            if isinstance(value, int | float) and key != "epoch":
                board.add_scalar(key, value, line["epoch"])

    with closing(board) if board is not None else nullcontext():
        yield write


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The lines of a log so far; an incomplete last line of a killed run is skipped."""
    path = folder / "log.jsonl"
    lines: list[dict[str, Any]] = []
    for text in path.read_text().splitlines() if path.is_file() else []:
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            break
    return lines
