"""With VECKM_REQUIRE_EXTRAS, a test that is skipped for a missing package is a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SKIPS = {
    "a whole file": "import pytest\npytest.importorskip('no_such_package')\n",
    "a test": "import pytest\ndef test():\n    pytest.importorskip('no_such_package')\n",
    "a sentence": "import pytest\ndef test():\n    pytest.skip('viser is not installed')\n",
}
OTHER = "import pytest\ndef test():\n    pytest.skip('VECKM_DATA is not set')\n"


def passes(folder: Path, code: str, required: bool) -> bool:
    """Whether pytest succeeds on a file with this code."""
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    (folder / "test_skips.py").write_text(code + "def test_other():\n    pass\n")
    env = {**os.environ, "VECKM_REQUIRE_EXTRAS": "1" if required else ""}
    call = [sys.executable, "-m", "pytest", "-q", "--rootdir", str(folder), str(folder)]
    done = subprocess.run(call, env=env, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 2, 5), done.stderr
    return done.returncode in (0, 5)


@pytest.mark.parametrize("what", SKIPS)
def test_a_skip_for_a_missing_package_fails_only_if_extras_are_required(
    tmp_path: Path, what: str
) -> None:
    assert passes(tmp_path, SKIPS[what], required=False)
    assert not passes(tmp_path, SKIPS[what], required=True)


def test_a_skip_for_another_reason_stays_a_skip(tmp_path: Path) -> None:
    assert passes(tmp_path, OTHER, required=True)
