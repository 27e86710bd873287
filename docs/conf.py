"""Sphinx: build with `sphinx-build -W docs docs/_build/html`. Needs no network."""

import html
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

from docutils import nodes
from docutils.utils.math import latex2mathml

_project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

project = "veckm"
author = copyright = "The veckm developers"
version = release = _project["version"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build", "_generated"]  # _generated is included by the pages that want it
html_theme = "furo"
html_math_renderer = "mathml"  # see below: formulas need no script and no network
html_static_path = ["_static"]
html_css_files = ["math.css"]
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

ElementTree.register_namespace("", "http://www.w3.org/1998/Math/MathML")
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


def mathml(formula, as_block):
    """MathML, with bars as browsers draw them: over the whole term and clear of the letter."""
    text = latex2mathml.tex2mathml(formula, as_block=as_block)
    text = re.sub(r"&(?!lt;|gt;|amp;)\w+;", lambda found: html.unescape(found[0]), text)
    root = ElementTree.fromstring(text)
    for over in root.findall(".//{*}mover"):
        mark = over[-1]
        if mark.text == "_":
            over.remove(mark)
            over.tag = over.tag.replace("mover", "mrow")
            over.attrib = {"style": "border-top: 1px solid; padding-top: 0.1em"}
        elif mark.text == "\N{MODIFIER LETTER MACRON}":
            over.attrib = {}
    return ElementTree.tostring(root, encoding="unicode")


def inline_formula(translator, node):
    """A formula in a line, as MathML, which browsers draw by themselves."""
    translator.body.append(mathml(node.astext(), as_block=False))
    raise nodes.SkipNode


def displayed_formula(translator, node):
    """A formula in a paragraph of its own."""
    translator.body.append(f'<div class="math">{mathml(node.astext(), as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app):
    """The formulas; and docstrings before and after napoleon, which has priority 500."""
    app.add_html_math_renderer("mathml", (inline_formula, None), (displayed_formula, None))
    app.connect("autodoc-process-docstring", plain_maths, priority=400)
    app.connect("autodoc-process-docstring", restore_colons, priority=600)
