"""Reading one field of a row.

Each function raises UserError with the expected and the actual value; the data set adds file and line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from soft_reasoning.answers import number as numbers
from soft_reasoning.types import UserError


def value(row: Mapping[str, object], name: str) -> Any:
    """Return the field ``name``; null is a missing value, and so are NaN and infinity."""
    if name not in row:
        raise UserError(f"expected a field '{name}', got {', '.join(map(str, row)) or 'no field'}")
    if missing(row[name]):
        raise UserError(f"expected a value in field '{name}', got {_written(row[name])}")
    return row[name]


def missing(content: Any) -> bool:
    """Whether a value is null, NaN or infinite."""
    return content is None or isinstance(content, float) and not math.isfinite(content)


def texts(content: Any, name: str) -> list[str]:
    """Return the texts of a list in field ``name``."""
    if not isinstance(content, list):
        raise UserError(f"expected a list in field '{name}', got {str(content)[:60]}")
    for entry in content:
        if missing(entry) or isinstance(entry, Mapping | list):
            raise UserError(f"expected a list of strings in field '{name}', got {_written(entry)} in it")
    return [str(entry).strip() for entry in content]


def _written(content: Any) -> str:
    return "null" if content is None else str(content)[:60]


def text(row: Mapping[str, object], name: str) -> str:
    """Return a field's text without surrounding space; numbers and booleans as written."""
    content = value(row, name)
    if isinstance(content, Mapping | list):
        actual = "a list" if isinstance(content, list) else "an object"
        raise UserError(f"expected text in field '{name}', got {actual}")
    if not (stripped := str(content).strip()):
        raise UserError(f"expected text in field '{name}', got empty text")
    return stripped


def number(row: Mapping[str, object], name: str) -> str:
    """Return a field's number as an answer's text (``2,125`` and ``2125.0`` give ``2125``)."""
    return canonical_number(value(row, name), name)


def canonical_number(content: Any, name: str) -> str:
    """Return ``content`` as the text of an answer; ``name`` is its field in errors."""
    number = None if isinstance(content, bool) else numbers.only(str(content))
    if number is None or number.answer is None:
        raise UserError(f"expected a number in field '{name}', got {str(content)[:60]!r}")
    return number.answer


def boolean(row: Mapping[str, object], name: str) -> str:
    """Return a field's truth value (true, yes, 1 and their opposites) as ``True`` or ``False``."""
    word = str(value(row, name)).strip().lower()
    if word in ("true", "yes", "1"):
        return "True"
    if word in ("false", "no", "0"):
        return "False"
    raise UserError(f"expected true or false in field '{name}', got {word[:60]!r}")


def sentence(words: str) -> str:
    """Return text that ends in exactly one punctuation mark, so that a sentence can follow."""
    words = words.strip().rstrip(",;").rstrip()
    return words if words.endswith((".", "?", "!")) else f"{words}."
