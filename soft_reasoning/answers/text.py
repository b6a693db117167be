"""Answers that are taken from the text as they are: words, any text, JSON and code. Code is never run."""

from __future__ import annotations

import ast
import json
import re
import textwrap
import unicodedata
import warnings
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from typing import Any

from soft_reasoning.answers.marks import SPACES, Reading

SENTENCE_END = re.compile(
    r"(?:(?<!^[A-Z])|(?=\W*$))(?<![\s.(][A-Z])(?<!\b(?:St|Dr|Mr|Ms|Mt|Ft|Lt))"
    r"(?<!\b(?:Mrs|Col|Gen|Gov|Rev|Sen|Sgt))(?<!\b(?:Prof|Capt))\.(?=[\"'”*]*(?:\s+[A-Z]|\s*$))"
)
"""A full stop, but not of initials or titles: J. K. Rowling, Dr. Watson."""
_WRAPPED = re.compile(r"\s*\\(?:text|mathrm|mathbf|textbf)\s?\{([^{}]*)\}\s*")
_AROUND = "*`\"'“”" + SPACES
_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_OPENING = re.compile(r"[\[{]")
_TRIES = 64
"""The most brackets without a JSON value that are tried."""


def folded(text: str) -> str:
    """``text`` for comparison: Unicode NFC, without case, with single spaces."""
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return " ".join(text.split())


def read(statement: str, question: str = "", marked: bool = True) -> Reading | None:
    """The first sentence of a statement without emphasis, quotes and full stop."""
    wrapped = _WRAPPED.fullmatch(statement)
    start, line = (wrapped.start(1), wrapped[1]) if wrapped else (0, statement)
    plain = line.lstrip(_AROUND)
    start += len(line) - len(plain)
    end = SENTENCE_END.search(plain)
    answer = plain[: end.start() if end else None].rstrip(_AROUND)
    return Reading(answer, start, start + len(answer)) if answer else None


def read_open(text: str) -> Reading | None:
    """The whole text."""
    answer = text.strip()
    start = len(text) - len(text.lstrip())
    return Reading(answer, start, start + len(answer)) if answer else None


def read_code(text: str) -> Reading | None:
    """The last fenced block, else the text."""
    blocks = [block for block in _FENCE.finditer(text) if block[1].strip()]
    if not blocks:
        return read_open(text)
    start, end = blocks[-1].span(1)
    return Reading(textwrap.dedent(text[start:end]).strip(), start, end)


def unfenced(text: str) -> str:
    """Return the content of a text that is one fenced block, else the text."""
    block = _FENCE.fullmatch(text.strip())
    return block[1].strip() if block else text


def read_json(text: str) -> Reading | None:
    """The last JSON object or array, with its keys sorted."""
    decoder, last, place, tries = json.JSONDecoder(parse_constant=_no_constant), None, 0, 0
    while tries < _TRIES and (begin := _OPENING.search(text, place)):
        try:
            value, place = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            place, tries = begin.end(), tries + 1
            continue
        with suppress(ValueError, OverflowError, RecursionError):  # 1e999, half of a surrogate pair
            answer = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True)
            answer.encode()
            last = Reading(answer, begin.start(), place)
    return last


def _no_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def same_json(a: str, b: str, absolute: float, relative: float) -> bool:
    """Whether two JSON texts hold the same value, keys in any order and numbers within the tolerance."""

    def same(a: Any, b: Any) -> bool:
        if isinstance(a, dict) and isinstance(b, dict):
            return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
        if isinstance(a, list) and isinstance(b, list):
            return len(a) == len(b) and all(map(same, a, b))
        if isinstance(a, Decimal) and isinstance(b, Decimal):
            bound = max(Decimal(str(absolute)), Decimal(str(relative)) * max(abs(a), abs(b)))
            return a == b or abs(a - b) <= bound
        return type(a) is type(b) and a == b

    try:  # floats would round large integers
        return same(*(json.loads(text, parse_int=Decimal, parse_float=Decimal) for text in (a, b)))
    except (ValueError, RecursionError, ArithmeticError):  # no JSON, or exponents beyond all measure
        return a.split() == b.split()


@lru_cache(maxsize=1024)
def code_tree(code: str) -> str:
    """``code`` for comparison: its syntax tree if it is Python, else its lines without indentation."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "\n".join(" ".join(line.split()) for line in code.splitlines() if line.strip())
