"""The `veckm` command: every verb is a frozen dataclass of options that can `run`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

import tyro

from veckm import __version__
from veckm.cli import convert, encode, evaluate, info, normals, train, view
from veckm.cli.verb import Verb
from veckm.extras import MissingExtra

__all__ = ["VERBS", "Verb", "main"]

_DESCRIPTION = """The local geometry of every point of a cloud, as a vector, in linear time.

Try `veckm normals`, which needs no file. `veckm VERB --help` lists the options of a verb,
`veckm --version` prints the version."""

#: A new verb is a file with a subclass of Verb, and a line here.
VERBS: dict[str, Callable[..., Verb]] = {
    "normals": normals.Normals,
    "encode": encode.Encode,
    "info": info.Info,
    "convert": convert.Convert,
    "view": view.View,
    "train normals": train.TrainNormals,
    "train classification": train.TrainClassification,
    "train part-segmentation": train.TrainPartSegmentation,
    "train semantic-segmentation": train.TrainSemanticSegmentation,
    "evaluate normals": evaluate.EvaluateNormals,
    "evaluate classification": evaluate.EvaluateClassification,
    "evaluate part-segmentation": evaluate.EvaluatePartSegmentation,
    "evaluate semantic-segmentation": evaluate.EvaluateSemanticSegmentation,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0, or 2 after an error, which is printed as one line on stderr."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args[:1] == ["--version"]:
        print(f"veckm {__version__}")
        return 0
    verb = _parse(args)
    try:
        verb.run()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has closed the pipe, as in `veckm encode | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt as stop:  # an interrupted scan names the command that resumes it
        print(f"veckm: {stop or 'interrupted'}", file=sys.stderr)
        return 130
    except Exception as error:
        if verb.common.debug:
            raise
        print(f"veckm: error: {_in_one_line(error)}", file=sys.stderr)
        return 2
    return 0


def _parse(args: list[str]) -> Verb:
    for words in (1, 2):
        name = " ".join(args[:words])
        if name in VERBS:
            return tyro.cli(VERBS[name], prog=f"veckm {name}", args=args[words:])
    verbs, prog = VERBS, "veckm"
    if args and any(name.startswith(f"{args[0]} ") for name in VERBS):  # `veckm train`
        group, *args = args
        names = [name for name in VERBS if name.startswith(f"{group} ")]
        verbs = {name.partition(" ")[2]: VERBS[name] for name in names}
        prog = f"veckm {group}"
    found: Verb = tyro.extras.subcommand_cli_from_dict(
        verbs, prog=prog, description=_DESCRIPTION, args=args or ["--help"]
    )
    return found


def _in_one_line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        path = "" if error.filename is None else f"{error.filename}: "
        return f"{path}{error.strerror}"
    text = " ".join(str(error).split())
    if isinstance(error, ValueError | TypeError | OSError | MissingExtra) and text:
        return text  # written for the user
    return f"{type(error).__name__}: {text or 'no details'} (--debug shows the traceback)"
