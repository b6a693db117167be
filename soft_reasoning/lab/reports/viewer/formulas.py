"""Formulas in texts: LaTeX becomes MathML when a page is written, which browsers show without a script."""

from __future__ import annotations

import html
import re
from functools import lru_cache
from xml.etree.ElementTree import Element, tostring

from latex2mathml.converter import convert_to_element
from markupsafe import Markup, escape

FORMULA = re.compile(
    r"\$\$([^$]+)\$\$"
    r"|\\\[([\s\S]+?)\\\]"
    r"|\\\(([\s\S]+?)\\\)"
    r"|\$([^$\n]*[\\^_={}][^$\n]*)\$"
    r"|(\\boxed\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})"
)
"""A formula in a text; prices in dollars are not formulas."""

LONGEST = 1000
"""Characters of a formula; a longer one stays as it was written."""

_UNSAFE = re.compile(r"\\(href|style|class|newcommand|newenvironment|def|DeclareMathOperator)(?![a-zA-Z])")


def with_formulas(text: str) -> Markup:
    """Return ``text`` as HTML with its formulas in MathML.

    What cannot be shown (no LaTeX, an unknown command, links and styles) stays as it was written.
    """
    parts, start = list[Markup](), 0
    for match in FORMULA.finditer(text):
        block = match[1] is not None or match[2] is not None
        if formula := _mathml(match[match.lastindex or 0], block, match[0]):
            parts += [escape(text[start : match.start()]), formula]
            start = match.end()
    return Markup("").join([*parts, escape(text[start:])])


@lru_cache(maxsize=10_000)
def _mathml(source: str, block: bool, title: str) -> Markup | None:
    if len(source) > LONGEST or _UNSAFE.search(source):
        return None
    try:
        element = convert_to_element(source, display="block" if block else "inline")
        _read_characters(element)
        element.attrib.pop("xmlns", None)  # HTML knows it
        element.set("title", title)
        return Markup(tostring(element, encoding="unicode", method="html"))
    except Exception:  # errors of many types, for what is not LaTeX
        return None


def _read_characters(element: Element) -> None:
    """Replace the character references that the library writes as text."""
    element.text = html.unescape(element.text or "")
    if element.text.startswith("\\") and len(element.text) > 1:
        raise ValueError(f"unknown command {element.text}")
    for child in element:
        _read_characters(child)
