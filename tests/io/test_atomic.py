"""A file is replaced by a complete one, or stays as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from veckm.io.atomic import writing


def test_a_write_that_is_interrupted_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    path.write_bytes(b"old")

    def interrupted() -> None:
        with writing(path) as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [p.name for p in tmp_path.iterdir()] == ["a.npz"]
    assert path.read_bytes() == b"old"


@pytest.mark.skipif(os.name == "nt", reason="POSIX permissions")
def test_a_new_file_has_the_permissions_of_an_opened_one(tmp_path: Path) -> None:
    (tmp_path / "opened").write_bytes(b"")
    with writing(tmp_path / "written") as file:
        file.write(b"new")
    modes = {(tmp_path / name).stat().st_mode for name in ("opened", "written")}
    assert len(modes) == 1
