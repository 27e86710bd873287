"""The figures of the VecKM paper, drawn from this code's own runs, as PNG and SVG.

    python -m experiments.figures --out figures
    python -m experiments.figures --out figures --only kernel cost
    python -m experiments.figures --out figures --quick         small clouds, to see that it works

Times are those of this machine, measured while nothing else should run on it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import tyro

from experiments.figures.make import make


@dataclass(frozen=True)
class Options:
    """Draw the figures of the VecKM paper."""

    out: Path
    """Folder to write to; created if it does not exist."""
    only: tuple[str, ...] = ()
    """encodings, cost, kernel, reconstruction, scales, sizes, alignment, ...; all by default."""
    quick: bool = False
    """Small clouds, to see that it works."""


def main(options: Options) -> int:
    """Draw one after another; print what was written."""
    try:
        for figure in make(options.out, options.only, "quick" if options.quick else "full"):
            files = " and ".join(str(path) for path in figure.paths)
            print(f"{figure.name}: {figure.title}, {figure.seconds:.1f} s, {files}", flush=True)
    except (OSError, ValueError) as error:
        print(f"figures: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Options, description=__doc__, config=(tyro.conf.FlagCreatePairsOff,))))
