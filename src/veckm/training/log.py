"""The log of a training: JSON lines, and TensorBoard where it is installed."""

from __future__ import annotations

import json
import time
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


class StepLog:
    """Lines about the steps of an epoch for a log, where a progress bar would be silent.

    Args:
        note: called with ``epoch 3/25 step 40/124: loss 1.2034, 0.5 s/step``.
        every: seconds from one line to the next; 0 for none.
        epochs: E.
        steps: per epoch.
    """

    def __init__(self, note: Callable[[str], None], every: float, epochs: int, steps: int) -> None:
        self.note, self.every, self.epochs, self.steps = note, every, epochs, steps
        self.since, self.passed = time.monotonic(), 0

    def step(self, epoch: int, step: int, loss: float) -> None:
        """After a step, both counted from 0, with the mean loss of the epoch so far."""
        self.passed += 1
        spent = time.monotonic() - self.since
        if not self.every or spent < self.every:
            return
        pace = f"{spent / self.passed:.2g} s/step"
        where = f"epoch {epoch + 1}/{self.epochs} step {step + 1}/{self.steps}"
        self.note(f"{where}: loss {loss:.4f}, {pace}")
        self.since, self.passed = time.monotonic(), 0


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
