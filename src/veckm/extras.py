"""Packages that only some parts need: the sentence that says which to install."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class MissingExtra(ImportError):
    """A package of an extra is not installed; the text says how to install it."""


def need(package: str, what: str, extra: str) -> ModuleType:
    """Import a package that an extra brings.

    Args:
        package: its name.
        what: the part of veckm that needs it, as the error says it.
        extra: the extra of veckm that has it.

    Raises:
        MissingExtra: if it is not installed.
    """
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.partition(".")[0]:
            raise  # it is there, but something that it needs is not
        text = f"{what} needs the package {package}: pip install 'veckm[{extra}]'"
        raise MissingExtra(text) from error
