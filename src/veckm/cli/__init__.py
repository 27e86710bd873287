"""The `veckm` command: every verb is a frozen dataclass of options that can `run`.

Nothing is imported before it is needed: torch alone takes seconds, and `--help` should not.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from veckm import __version__
from veckm.extras import MissingExtra

if TYPE_CHECKING:
    from veckm.cli.verb import Verb

__all__ = ["VERBS", "Entry", "main"]


class Entry(NamedTuple):
    """Where a verb is, and its line in the help."""

    module: str
    name: str
    about: str


#: A new verb is a file with a subclass of Verb, and a line here.
VERBS = {
    "info": Entry("info", "Info", "what is in a file, its density, and what the verbs would cost"),
    "normals": Entry("normals", "Normals", "normals, their expected error, and curvature"),
    "encode": Entry("encode", "Encode", "the encoding of every point"),
    "features": Entry("features", "Features", "named features of every point for random forests"),
    "register": Entry("register", "Register", "align clouds with another, nothing to choose"),
    "find": Entry("find", "Find", "all places of a part in a scene, with their poses"),
    "convert": Entry("convert", "Convert", "write clouds in another format"),
    "view": Entry("view", "View", "show a cloud in the browser, or save it as one HTML file"),
    "train normals": Entry("train", "TrainNormals", "the normal network"),
    "train classification": Entry("train", "TrainClassification", "objects, as in ModelNet"),
    "train part-segmentation": Entry("train", "TrainPartSegmentation", "parts, as in ShapeNetPart"),
    "train semantic-segmentation": Entry(
        "train", "TrainSemanticSegmentation", "rooms, as in S3DIS"
    ),
    "evaluate normals": Entry("evaluate", "EvaluateNormals", "their angle error, beside PCA"),
    "evaluate classification": Entry("evaluate", "EvaluateClassification", "its accuracy"),
    "evaluate part-segmentation": Entry("evaluate", "EvaluatePartSegmentation", "its mIoU"),
    "evaluate semantic-segmentation": Entry(
        "evaluate", "EvaluateSemanticSegmentation", "its mIoU and accuracies"
    ),
}
_HELP = ("-h", "--help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns 0; 1 if some files of several failed; 2 after an error, which is
    printed as one line on stderr; 130 after Ctrl-C."""
    args = list(sys.argv[1:] if argv is None else argv)
    if args[:1] == ["--version"]:
        print(f"veckm {__version__}")
        return 0
    name = next((words for words in (" ".join(args[:k]) for k in (1, 2)) if words in VERBS), None)
    if name is None:
        return _help(args)
    verb: Verb | None = None
    try:
        verb = _parse(name, args[len(name.split()) :])
        code = verb()
        sys.stdout.flush()
        return code or 0
    except BrokenPipeError:  # the reader has closed the pipe, as in `veckm encode | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as stop:  # an interrupted scan names the command that resumes it
        print(f"veckm: {str(stop) or 'interrupted'}", file=sys.stderr)
        return 130
    except Exception as error:
        if verb is None or verb.common.debug:
            raise
        print(f"veckm: error: {in_one_line(error, getattr(verb, 'cloud', None))}", file=sys.stderr)
        return 2


def _parse(name: str, args: list[str]) -> Verb:
    import tyro

    entry = VERBS[name]
    made: type[Verb] = getattr(import_module(f"veckm.cli.{entry.module}"), entry.name)
    return tyro.cli(made, prog=f"veckm {name}", args=args)


def _help(args: list[str]) -> int:
    """All verbs, or those of a group such as `train`; an error if a verb was asked for."""
    group = f"{args[0]} " if args and args[0] not in _HELP else ""
    names = [name for name in VERBS if name.startswith(group)]
    unknown = [word for word in args[bool(group and names) :] if word not in _HELP]
    if unknown or not names:
        known = ", ".join(names or VERBS)
        print(f"veckm: error: no verb {' '.join(args)!r}; there are {known}", file=sys.stderr)
        return 2
    print("usage: veckm VERB [options]   (veckm VERB --help lists them)", end="\n\n")
    if not group:
        print("The local geometry of every point of a cloud, as a vector, in linear time.")
        print("`veckm normals` and `veckm encode` need no file. `veckm --version` prints it.\n")
    for name in names:
        print(f"  {name:<31}{VERBS[name].about}")
    return 0


def in_one_line(error: Exception, path: object = None) -> str:
    """What a user should know about an error; ``path`` is the cloud that was processed."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError) or "can't allocate memory" in text:  # the latter of torch
        return (
            f"{path or 'the cloud'}: there is not enough memory for it; --tile 100000 processes "
            "it in parts (LAS, LAZ, binary PLY, NPY and .bin), and smaller tiles need less"
        )
    if isinstance(error, OSError) and error.strerror:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        advice = "; free some space or write to another disk, and run again" if full else ""
        where = "" if error.filename is None else f"{error.filename}: "
        return f"{where}{error.strerror}{advice}"
    if isinstance(error, ValueError | TypeError | OSError | MissingExtra) and text:
        return text  # written for the user
    return f"{type(error).__name__}: {text or 'no details'} (--debug shows the traceback)"
