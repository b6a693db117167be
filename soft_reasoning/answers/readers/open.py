"""Answers that are not one value in a sentence: any text, JSON, code.

These readers see the whole text, without statements such as "Answer:". Nothing is run to compare code.
"""

from __future__ import annotations

import ast
import json
import math
import re
import textwrap
import warnings
from functools import lru_cache
from typing import Any, TypeGuard

from soft_reasoning.answers.reader import Found

FREE = ("open",)
"""Types whose answers differ even where they agree, so that a verifier has to choose among them."""

_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_OPENING = re.compile(r"[\[{]")
_TRIES = 64
"""Most brackets that begin no JSON value; more are no answer."""


class OpenReader:
    """Reads the text itself; answers are the same if they differ in white space alone."""

    def read(self, statement: str) -> Found | None:
        answer = statement.strip()
        start = len(statement) - len(statement.lstrip())
        return Found(answer, start, start + len(answer), stop=len(statement)) if answer else None

    def opens(self, statement: str) -> bool:
        return False

    def close(self, text: str) -> Found | None:
        return self.read(text)

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        return a.split() == b.split()


class CodeReader(OpenReader):
    """Reads the last fenced block, else the text; compares Python by its syntax tree, other code by lines."""

    def read(self, statement: str) -> Found | None:
        blocks = [block for block in _FENCE.finditer(statement) if block[1].strip()]
        if not blocks:
            return super().read(statement)
        start, end = blocks[-1].span(1)
        return Found(textwrap.dedent(statement[start:end]).strip(), start, end, stop=len(statement))

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        return _tree(a) == _tree(b)


class JsonReader(OpenReader):
    """Reads the last JSON object or array; values are the same with their keys in any order."""

    def read(self, statement: str) -> Found | None:
        decoder, last, place = json.JSONDecoder(parse_constant=_no_constant), None, 0
        for _ in range(_TRIES):
            begin = _OPENING.search(statement, place)
            if begin is None:
                break
            while begin is not None:  # values that follow each other are no failed tries
                try:
                    value, place = decoder.raw_decode(statement, begin.start())
                except (ValueError, RecursionError):
                    place = begin.end()
                    break
                last = Found(_dumped(value), begin.start(), place, stop=len(statement))
                begin = _OPENING.search(statement, place)
        return last

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        try:
            return _same(json.loads(a), json.loads(b), absolute, relative)
        except (ValueError, RecursionError, OverflowError):  # no JSON, or numbers beyond floats
            return a.split() == b.split()


def _no_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _same(a: Any, b: Any, absolute: float, relative: float) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[key], b[key], absolute, relative) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        pairs = zip(a, b, strict=False)
        return len(a) == len(b) and all(_same(x, y, absolute, relative) for x, y in pairs)
    if _is_number(a) and _is_number(b):
        return a == b or math.isclose(a, b, rel_tol=relative, abs_tol=absolute)
    return type(a) is type(b) and a == b


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


@lru_cache(maxsize=1024)
def _tree(code: str) -> str:
    """What is compared of ``code``: its syntax tree if it is Python, else its lines, indentation apart."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "\n".join(" ".join(line.split()) for line in code.splitlines() if line.strip())
