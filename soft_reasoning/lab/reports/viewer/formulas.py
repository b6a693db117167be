"""Formulas in texts: LaTeX becomes MathML when a page is written, which browsers show without a script."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert_to_element

FORMULA = (
    r"\$\$([^$]+)\$\$"
    r"|\\\[([\s\S]+?)\\\]"
    r"|\\\(([\s\S]+?)\\\)"
    r"|\$([^$\n]*[\\^_={}][^$\n]*)\$"
    r"|(\\boxed\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})"
)
"""A formula in a text, for Python and JavaScript; prices in dollars are not formulas."""

LONGEST = 1000
"""Characters of a formula; a longer one stays as it was written."""

_FORMULA = re.compile(FORMULA)
_UNSAFE = re.compile(r"\\(href|style|class|newcommand|newenvironment|def|DeclareMathOperator)(?![a-zA-Z])")

Node = list[Any]
"""An element: its tag, its attributes, and its text or its children."""


def formulas_in(value: Any) -> dict[str, Node]:
    """Return the formulas in all texts of a JSON ``value``, each under its source.

    What cannot be shown (no LaTeX, an unknown command, links and styles) is left out.
    """
    found: dict[str, Node] = {}
    for text in _texts(value):
        for match in _FORMULA.finditer(text):
            if node := _mathml(match[match.lastindex or 0], match[1] is not None or match[2] is not None):
                found[match[0]] = node
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


@lru_cache(maxsize=10_000)
def _mathml(source: str, block: bool) -> Node | None:
    if len(source) > LONGEST or _UNSAFE.search(source):
        return None
    try:
        return _node(convert_to_element(source, display="block" if block else "inline"))
    except Exception:  # errors of many types, for what is not LaTeX
        return None


def _node(element: Element) -> Node:
    text = html.unescape(element.text or "")  # the library writes signs as character references
    if text.startswith("\\") and len(text) > 1:
        raise ValueError(f"unknown command {text}")
    return [element.tag, dict(element.attrib), text or [_node(child) for child in element]]
