"""The value of a program as the text of an answer, which the grader reads like any other."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

MOST_DIGITS = 100
MOST_CHARACTERS = 200
KINDS = ("number", "boolean", "choice", "latex", "text")
"""Types of answers that a program can compute."""


def as_text(value: Any, answer_type: str) -> str | None:
    """Return ``value`` as an answer of one of ``KINDS``, or None if it is not one.

    A number is a whole or real number, a boolean is True or False, a choice is an option's index from 0. Text
    stands for itself, whatever the type. NaN, infinity, complex numbers, None, containers and objects are
    not answers.

    >>> as_text(0.1 + 0.2, "number"), as_text(3.0, "number"), as_text(True, "number")
    ('0.3', '3', None)
    >>> as_text(1, "choice"), as_text(False, "boolean"), as_text([3], "number")
    ('B', 'False', None)
    """
    if isinstance(value, str):
        text = " ".join(value[: 2 * MOST_CHARACTERS].split())
        short = 0 < len(text) <= MOST_CHARACTERS and len(value) <= 2 * MOST_CHARACTERS
        return text if short and not (text[0] == "<" and text[-1] == ">") else None  # a function's name
    if isinstance(value, bool):
        return str(value) if answer_type in ("boolean", "text") else None
    if answer_type == "boolean":
        return None
    if answer_type == "choice":
        return chr(ord("A") + value) if isinstance(value, int) and 0 <= value < 26 else None
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
