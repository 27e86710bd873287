"""The log of a training: JSON lines, and TensorBoard where it is installed."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from veckm.io.atomic import writing


class Log:
    """One JSON object per epoch in ``log.jsonl``, and the same numbers for TensorBoard."""

    def __init__(self, folder: Path, done: int) -> None:
        """Continue a log after ``done`` epochs; lines of later, unfinished ones are removed."""
        self.path = folder / "log.jsonl"
        kept = [line for line in read_log(folder) if line["epoch"] <= done]
        text = "".join(json.dumps(line) + "\n" for line in kept)
        with writing(self.path) as file:
            file.write(text.encode())
        self._board: Any = None
        if find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1)

    def write(self, line: dict[str, Any]) -> None:
        """Append the numbers of an epoch."""
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        if self._board is not None:
            for key, value in line.items():
                if isinstance(value, int | float) and key != "epoch":
                    self._board.add_scalar(key, value, line["epoch"])

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        if self._board is not None:
            self._board.close()


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
