"""Copy the pages of finished experiments into the documentation.

    python experiments/publish.py              from experiments/results
    python experiments/publish.py FOLDER

Only pages that are there are copied; the documentation keeps those of earlier runs.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("table1", "runtime", "layers", "table2", "table3", "table4", "table5")


def main(folder: Path) -> int:
    """Say what was copied."""
    found = [folder / f"{name}.md" for name in PAGES if (folder / f"{name}.md").is_file()]
    if not found:
        print(f"{folder}: has none of {', '.join(f'{n}.md' for n in PAGES)}", file=sys.stderr)
        return 2
    for path in found:
        shutil.copyfile(path, ROOT / "docs" / "_generated" / path.name)
        print(f"docs/_generated/{path.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "experiments" / "results"))
