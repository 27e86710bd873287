"""Every example runs as it stands, from anywhere, and says nothing of errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import veckm

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def test_there_are_numbered_examples() -> None:
    assert EXAMPLES
    numbers = [path.name.split("_")[0] for path in EXAMPLES]
    assert numbers == [f"{k:02d}" for k in range(1, len(EXAMPLES) + 1)]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(path: Path, tmp_path: Path) -> None:
    # The package under test, also where it is found by its path alone.
    source = str(Path(veckm.__file__).resolve().parents[1])
    paths = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    run = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.strip()
    assert "Traceback" not in run.stderr
