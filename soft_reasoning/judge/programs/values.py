"""The value of a program as an answer: compared as such by every grader, which reads no text for it."""

from __future__ import annotations

import math
import re
from datetime import date
from decimal import Decimal
from typing import Any

from soft_reasoning.answers import read_value
from soft_reasoning.answers.choice import options

MOST_DIGITS = 100
MOST_CHARACTERS = 200
KINDS = ("number", "boolean", "choice", "latex", "text")
"""Types of answers that a program can compute."""
_OBJECT = re.compile(r"<\w+ .* at 0x\w+>")
"""How the sandbox shows a function."""


def as_answer(value: Any, answer_type: str, question: str = "") -> str | None:
    """Return ``value`` as an answer of one of ``KINDS``, or None if it is not one.

    A number is a whole or real number, a boolean is True or False, a choice is an option's index from 0, and
    a text may be a date. A string is the answer that it names, whatever the type. NaN, infinity, complex
    numbers, None, containers and objects are not answers.

    >>> as_answer(0.1 + 0.2, "number"), as_answer("3/4", "number"), as_answer(True, "number")
    ('0.3', '0.75', None)
    >>> as_answer(1, "choice"), as_answer(False, "boolean"), as_answer([3], "number")
    ('B', 'False', None)
    """
    if isinstance(value, str):
        text = " ".join(value[: 2 * MOST_CHARACTERS].split())
        short = 0 < len(text) <= MOST_CHARACTERS and len(value) <= 2 * MOST_CHARACTERS
        return read_value(text, answer_type, question) if short and not _OBJECT.fullmatch(text) else None
    if isinstance(value, bool):
        return str(value) if answer_type in ("boolean", "text") else None
    if isinstance(value, date):
        return value.isoformat() if answer_type == "text" else None
    if answer_type == "boolean":
        return None
    if answer_type == "choice":
        letter = chr(ord("A") + value) if isinstance(value, int) and 0 <= value < 26 else None
        return letter if letter in (options(question) or {letter}) else None
    return _number(value)


def _number(value: Any) -> str | None:
    """A finite number of at most ``MOST_DIGITS`` digits, without an exponent."""
    if isinstance(value, int):
        return str(value) if abs(value) < 10**MOST_DIGITS else None
    if isinstance(value, Decimal):
        value = float(value)
    if not isinstance(value, float) or not math.isfinite(value) or abs(value) >= 10.0**MOST_DIGITS:
        return None
    if value.is_integer():
        return str(int(value))
    text = f"{Decimal(f'{value:.12g}'):f}"  # 0.1 + 0.2 is 0.3
    return text if len(text) <= MOST_DIGITS else "0"
