"""What all experiments share: where a run was made, atomic files, Markdown tables."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

import veckm

Results = dict[str, Any]


def header(settings: dict[str, Any]) -> Results:
    """Where and with what a run was made, and no rows yet."""
    return {
        "settings": {k: str(v) if isinstance(v, Path) else v for k, v in settings.items()},
        "meta": {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
            "veckm": veckm.__version__,
        },
        "rows": [],
    }


def today() -> str:
    """The date in UTC, for rows that stay while others are run again."""
    return datetime.now(UTC).date().isoformat()


def where(results: Results) -> str:
    """One sentence: when, on what, with which versions."""
    m, rows = results["meta"], [*results["rows"], *results.get("times", [])]
    dates = sorted({row.get("date") or m["date"][:10] for row in rows}) or [m["date"][:10]]
    return (
        f"{' and '.join(dates)}, {m['machine']}, {m['cores']} cores, {m['threads']} threads, "
        f"torch {m['torch']}, veckm {m['veckm']}."
    )


def save(results: Results, path: Path) -> None:
    """As JSON."""
    write(path, lambda part: part.write_text(json.dumps(results, indent=1) + "\n"))


def write(path: Path, fill: Callable[[Path], object]) -> None:
    """To a temporary file that is renamed: a kill leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    fill(part)
    part.replace(path)


def log(text: str) -> None:
    """Print a line of progress."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def mean(values: Sequence[float]) -> str:
    """The mean, and the spread over seeds where there are several."""
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread}"


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table."""
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))
