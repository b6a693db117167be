"""Reading one field of a row.

Each function raises UserError with the expected and the actual value; the data set adds file and line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, TypeAlias

from soft_reasoning.answers import number as numbers
from soft_reasoning.answers.marks import PLAIN
from soft_reasoning.answers.text import read_json
from soft_reasoning.types import UserError

Doc: TypeAlias = Mapping[str, Any]
"""The fields of a row, with values as they are written."""


def value(doc: Doc, name: str) -> Any:
    """Return the field ``name``; null is a missing value, and so are NaN and infinity."""
    if name not in doc:
        raise UserError(f"expected a field '{name}', got {', '.join(map(str, doc)) or 'no field'}")
    content = doc[name]
    if content is None or isinstance(content, float) and not math.isfinite(content):
        raise UserError(f"expected a value in field '{name}', got {'null' if content is None else content}")
    return content


def given(doc: Doc, name: str) -> bool:
    """Whether the field ``name`` holds a value: it is there, and neither null, NaN nor blank text."""
    content = doc.get(name)
    return content is not None and content == content and bool(str(content).strip())


def text(doc: Doc, name: str) -> str:
    """Return a field's text without surrounding space; numbers and booleans as written."""
    content = value(doc, name)
    if isinstance(content, Mapping | list):
        actual = "a list" if isinstance(content, list) else "an object"
        raise UserError(f"expected text in field '{name}', got {actual}")
    if not (stripped := str(content).strip()):
        raise UserError(f"expected text in field '{name}', got empty text")
    return stripped


def number(doc: Doc, name: str) -> str:
    """Return a field's number as an answer's text (``2,125`` and ``2125.0`` give ``2125``)."""
    return canonical_number(value(doc, name), name)


def canonical_number(content: object, name: str) -> str:
    """Return a number, perhaps with a unit, as the text of an answer; ``name`` is its field in errors."""
    text = str(content).translate(PLAIN)
    number = None if isinstance(content, bool) else numbers.only(text) or numbers.read(text, "", True)
    if number is None or number.answer is None:
        raise UserError(f"expected a number in field '{name}', got {str(content)[:60]!r}")
    return number.answer


def json_value(doc: Doc, name: str) -> str:
    """Return a field's JSON object or array as an answer's text; the field may hold its text or itself."""
    content = value(doc, name)
    with suppress(TypeError, ValueError, RecursionError):  # such as a date, NaN
        content = content if isinstance(content, str) else json.dumps(content, allow_nan=False)
    reading = read_json(plain := str(content).strip())
    if reading is None or reading.answer is None or reading.end - reading.start < len(plain):
        raise UserError(f"expected a JSON object or array in field '{name}', got {plain[:60]!r}")
    return reading.answer


def boolean(doc: Doc, name: str) -> str:
    """Return a field's truth value (true, yes, 1 and their opposites) as ``True`` or ``False``."""
    word = str(value(doc, name)).strip().lower()
    if word in ("true", "yes", "1"):
        return "True"
    if word in ("false", "no", "0"):
        return "False"
    raise UserError(f"expected true or false in field '{name}', got {word[:60]!r}")
