"""The `veckm` command: one file a verb, each a frozen dataclass of options that can `run`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

import tyro

from veckm import __version__
from veckm.cli.convert import Convert
from veckm.cli.encode import Encode
from veckm.cli.evaluate import EvaluateNormals
from veckm.cli.evaluate_networks import (
    EvaluateClassification,
    EvaluatePartSegmentation,
    EvaluateSemanticSegmentation,
)
from veckm.cli.figures import Figures
from veckm.cli.info import Info
from veckm.cli.normals import Normals
from veckm.cli.train import TrainNormals
from veckm.cli.train_networks import (
    TrainClassification,
    TrainPartSegmentation,
    TrainSemanticSegmentation,
)
from veckm.cli.view import View
from veckm.extras import MissingExtra

__all__ = ["VERBS", "Verb", "main"]

_DESCRIPTION = """The local geometry of every point of a cloud, as a vector, in linear time.

Try `veckm normals`, which needs no file. `veckm info FILE` tells what is in one, and what the other
verbs would take. `veckm train normals` and `veckm evaluate normals` make its network anew and
measure it; `classification`, `part-segmentation` and `semantic-segmentation` take the place of
`normals` for networks on your own copy of the paper's data. `veckm --version` tells the version."""


class Verb(Protocol):
    """What a verb has beside its own options."""

    @property
    def debug(self) -> bool:
        """Whether an error shows its traceback."""

    def run(self) -> None:
        """Do the work; raise what a user can act on."""


#: A new verb is a file with a dataclass, and a line here.
VERBS: dict[str, Callable[..., Verb]] = {
    "normals": Normals,
    "encode": Encode,
    "info": Info,
    "convert": Convert,
    "view": View,
    "figures": Figures,
}


#: Verbs that say what for: `veckm train normals`.
GROUPS: dict[str, dict[str, Callable[..., Verb]]] = {
    "train": {
        "normals": TrainNormals,
        "classification": TrainClassification,
        "part-segmentation": TrainPartSegmentation,
        "semantic-segmentation": TrainSemanticSegmentation,
    },
    "evaluate": {
        "normals": EvaluateNormals,
        "classification": EvaluateClassification,
        "part-segmentation": EvaluatePartSegmentation,
        "semantic-segmentation": EvaluateSemanticSegmentation,
    },
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; 0 if it did its work, 2 after an error, which takes one line on stderr."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args[:1] == ["--version"]:
        print(f"veckm {__version__}")
        return 0
    debug = False
    try:
        verb = _parse(args)
        debug = verb.debug
        verb.run()
        sys.stdout.flush()
    except BrokenPipeError:  # `veckm encode | head`: who reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt as stop:  # a scan says how to go on
        print(f"veckm: {stop or 'interrupted'}", file=sys.stderr)
        return 130
    except Exception as error:
        if debug:
            raise
        print(f"veckm: error: {_in_one_line(error)}", file=sys.stderr)
        return 2
    return 0


def _parse(args: list[str]) -> Verb:
    if args and args[0] in GROUPS:
        verb: Verb = tyro.extras.subcommand_cli_from_dict(
            GROUPS[args[0]], prog=f"veckm {args[0]}", args=args[1:] or ["--help"]
        )
    else:
        verb = tyro.extras.subcommand_cli_from_dict(
            VERBS, prog="veckm", description=_DESCRIPTION, args=args or ["--help"]
        )
    return verb


def _in_one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        named = "" if error.filename is None else f"{error.filename}: "
        return f"{named}{error.strerror}"
    text = " ".join(str(error).split())
    if isinstance(error, ValueError | TypeError | OSError | MissingExtra) and text:
        return text  # said at the door, for the user
    return f"{type(error).__name__}: {text or 'no details'} (--debug shows where)"
