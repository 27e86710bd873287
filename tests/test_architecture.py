"""The import graph goes downward only, and files stay small."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "veckm"

#: From top to bottom: a module imports from its own layer and from those below.
LAYERS = (
    ("__main__", "cli", "viewer"),
    ("tasks", "scan", "training"),
    ("models", "data"),
    ("nn", "cross_section", "palette"),
    ("encoder", "descriptors"),
    ("functional", "kernel_moments", "planning", "inputs", "sizes", "frequencies", "components"),
    ("engines",),
    ("knn", "io"),
    ("cloud", "parallel", "weights"),
    ("progress", "memory", "extras"),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
LONGEST_FILE, LARGEST_PACKAGE = 350, 24_000

FILES = sorted(PACKAGE.rglob("*.py"))


def modules(path: Path) -> set[tuple[int, str]]:
    """Line and full name of every module that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {(node.lineno, alias.name) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: write imports from veckm, not from ."
            names = [node.module or ""]
            if node.module == "veckm":  # `from veckm import scan` may mean a part of the package
                names = [f"veckm.{alias.name}" for alias in node.names]
            found |= {(node.lineno, name) for name in names}
    return found


def imports(path: Path) -> set[tuple[int, str]]:
    """The modules of veckm among them."""
    return {(line, name) for line, name in modules(path) if name.startswith("veckm.")}


def part(path: Path) -> str:
    """The folder or module right below veckm that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def is_part(name: str) -> bool:
    return (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()


def test_every_part_of_the_package_has_its_layer() -> None:
    parts = {part(path) for path in FILES} - {"__init__"}
    assert parts <= set(LEVEL), f"name the layer of {sorted(parts - set(LEVEL))} in LAYERS"


def test_imports_go_downward() -> None:
    wrong = []
    for path in FILES:
        own = part(path)
        if own == "__init__":
            continue  # the public names come from everywhere
        for line, name in sorted(imports(path)):
            other = name.split(".")[1]
            if is_part(other) and LEVEL.get(other, 0) < LEVEL.get(own, 0):
                where = path.relative_to(PACKAGE.parent)
                wrong.append(f"{where}:{line}: {own} imports {name}, which is above it")
    assert not wrong, "imports must go downward:\n" + "\n".join(wrong)


@pytest.mark.parametrize("name", ["io", "cloud"])
def test_files_and_clouds_know_nothing_of_the_rest(name: str) -> None:
    allowed = {"io", "cloud", "extras", "progress"}
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: imports {module}"
        for path in FILES
        if part(path) == name
        for line, module in sorted(imports(path))
        if is_part(other := module.split(".")[1]) and other not in allowed
    ]
    assert not wrong, f"{name} may import {sorted(allowed)} only:\n" + "\n".join(wrong)


def test_the_package_imports_nothing_else_of_the_repository() -> None:
    others = {"benchmarks", "examples", "experiments", "tests"}
    wrong = [
        f"{path.relative_to(PACKAGE.parent)}:{line}: imports {name}"
        for path in FILES
        for line, name in sorted(modules(path))
        if name.partition(".")[0] in others
    ]
    assert not wrong, "what is in the wheel must not need the repository:\n" + "\n".join(wrong)


def test_no_file_is_longer_than_350_lines() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    long = [
        f"{path.relative_to(PACKAGE.parent)}: {length} lines"
        for path, length in lengths.items()
        if length > LONGEST_FILE
    ]
    assert not long, f"files of more than {LONGEST_FILE} lines, split them:\n" + "\n".join(long)


def test_the_package_does_not_grow() -> None:
    total = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in FILES)
    assert total <= LARGEST_PACKAGE, f"src/veckm has {total:,} lines, more than {LARGEST_PACKAGE:,}"
