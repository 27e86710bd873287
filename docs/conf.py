"""Sphinx: build with `sphinx-build -W docs docs/_build/html`. Needs no network."""

import re
import tomllib
from pathlib import Path

_project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

project = "veckm"
author = copyright = "The veckm developers"
version = release = _project["version"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build", "_generated"]  # _generated is included by the pages that want it
html_theme = "furo"
html_title = f"veckm {version}"

myst_enable_extensions = ["amsmath", "deflist", "dollarmath"]
myst_heading_anchors = 3

default_role = "literal"  # `name` in a docstring is code, as in Markdown
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_numpy_docstring = False
napoleon_custom_sections = ["Shapes"]
napoleon_use_rtype = False

nitpicky = True
# Foreign names are not looked up: that would need the network.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(torch|numpy|np|scipy|viser|collections|typing|pathlib|os|abc|enum|dataclasses|contextlib)(\..*)?",
    ),
    (r"py:.*", r"(nn\..*|Tensor|Module|Generator|Path|Sequence|Callable|Iterable|Iterator)"),
    (r"py:.*", r"veckm\.(.*\.)?_.*"),
    (r"py:.*", r"dict\[.*|veckm\.io\.source\.Source"),
    (r"py:.*", r"optional|default.*"),
    (r"py:.*", r"veckm\.planning\.Scales"),  # in the signature of a class that `veckm.plan` makes
]

_COLON = "\N{RATIO}"  # stands in for ":" while napoleon looks
_SECTION = re.compile(r"[A-Z]\w*( \w+)?:$")


def plain_maths(app, what, name, obj, options, lines):  # noqa: ARG001 - Sphinx gives them all
    """Let docstrings stay readable in an editor.

    Bars are absolute values, not reStructuredText substitutions, and a paragraph that is set in by
    four spaces is a formula, unless it belongs to a section such as Args or to a directive.
    """
    out, heading, before, formula = [], "", "", False
    if what in ("attribute", "data", "property") and lines:
        # or napoleon takes the words before the colon for a type
        lines[0] = lines[0].replace(":", _COLON)
    for line in lines:
        inset = line.startswith("    ")
        if line.strip() and not line.startswith(" "):
            heading, formula = line, False
        directive = heading.startswith("..")
        if inset and not (before.strip() or formula or directive or _SECTION.match(heading)):
            out += ["::", ""]
            formula = True
        out.append(line if formula or directive else _escape_bars(line))
        before = line
    lines[:] = out


def _escape_bars(line):
    code_or_text = re.split(r"(``.*?``|`[^`]*`)", line)
    return "".join(s if s.startswith("`") else s.replace("|", r"\|") for s in code_or_text)


def restore_colons(app, what, name, obj, options, lines):  # noqa: ARG001
    """Undo what `plain_maths` did to hide colons from napoleon."""
    lines[:] = [line.replace(_COLON, ":") for line in lines]


def setup(app):
    """Before and after napoleon, which has priority 500."""
    app.connect("autodoc-process-docstring", plain_maths, priority=400)
    app.connect("autodoc-process-docstring", restore_colons, priority=600)
