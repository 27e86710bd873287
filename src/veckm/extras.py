"""Optional packages, and the error that names the extra to install."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


class MissingExtra(ImportError):
    """A package of an extra is not installed; the message says how to install it."""


def need(package: str, what: str, extra: str) -> ModuleType:
    """Import a package that an extra of veckm brings, or raise MissingExtra: `what` needs it."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.partition(".")[0]:
            raise  # it is installed, but one of its own dependencies is not
        text = f"{what} needs the package {package}: pip install 'veckm[{extra}]'"
        raise MissingExtra(text) from error
