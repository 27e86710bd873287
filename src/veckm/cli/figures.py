"""veckm figures: the paper's figures, computed anew."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from veckm.cli.text import labeled, seconds
from veckm.cli.verb import Flag, Verb
from veckm.extras import need

_Folder = Annotated[Path, arg(aliases=["-o"], metavar="FOLDER")]
_Names = Annotated[tuple[str, ...], arg(metavar="NAME ...", help_behavior_hint="(default: all)")]


@dataclass(frozen=True)
class Figures(Verb):
    """Draw the figures of the VecKM paper from this code's own runs, as PNG and SVG.

    veckm figures --out figures

    Times are those of this machine, measured while nothing else should run on it.
    """

    out: _Folder
    """Where they go; made if it is not there."""
    only: _Names = ()
    """encodings, cost, kernel, reconstruction, scales, sizes."""
    quick: Flag = False
    """Small clouds, to see that it works."""

    def run(self) -> None:
        """Draw one after another, and say so."""
        need("matplotlib", "drawing figures", "figures")
        from veckm.figures import make

        if self.out.exists() and not self.out.is_dir():
            raise NotADirectoryError(f"{self.out}: is a file; name a folder")
        made = make(self.out, self.only, "quick" if self.quick else "full")
        for k, one in enumerate(made):
            if not k:
                self.title("figures")
            text = f"{one.title}, in {seconds(one.seconds)}"
            files = " and ".join(str(path) for path in one.paths)
            self.show(labeled(one.name, text), labeled("", files))
