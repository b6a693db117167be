"""Answers that are taken from the text as they are: words, any text, JSON and code. Code is never run."""

from __future__ import annotations

import ast
import json
import math
import re
import textwrap
import unicodedata
import warnings
from functools import lru_cache
from typing import Any

from soft_reasoning.answers.statement import Place, Reading
from soft_reasoning.types import UserError

_SENTENCE_END = re.compile(
    r"(?<![\s.(][A-Z])(?<!\b(?:St|Dr|Mr|Ms|Mt))(?<!\bMrs)\.(?=[\"'”*]*(?:\s+[A-Z]|\s*$))"
)
_WRAPPED = re.compile(r"\s*\\(?:text|mathrm|mathbf|textbf)\s?\{([^{}]*)\}\s*")
_AROUND = "*`\"'“” "
_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_OPENING = re.compile(r"[\[{]")
_TRIES = 64
"""The most brackets without a JSON value that are tried."""


def folded(text: str) -> str:
    """``text`` for comparison: Unicode NFC, without case, with single spaces."""
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    return " ".join(text.split())


def read(statement: str, question: str = "", place: Place = "stated") -> Reading | None:
    """The first sentence of a statement without emphasis, quotes and full stop."""
    wrapped = _WRAPPED.fullmatch(statement)
    start, line = (wrapped.start(1), wrapped[1]) if wrapped else (0, statement)
    begin = len(line) - len(line.lstrip(_AROUND))
    end = _SENTENCE_END.search(line, begin)
    answer = line[begin : end.start() if end else None].rstrip(_AROUND)
    return Reading(answer, start + begin, start + begin + len(answer)) if answer else None


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
    """The last JSON object or array."""
    decoder, last, place, tries = json.JSONDecoder(parse_constant=_no_constant), None, 0, 0
    while tries < _TRIES and (begin := _OPENING.search(text, place)):
        try:
            value, place = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            place, tries = begin.end(), tries + 1
            continue
        last = Reading(json.dumps(value, ensure_ascii=False, sort_keys=True), begin.start(), place)
    return last


def _no_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def check_schema(schema: Any) -> str:
    """Return a JSON Schema as text (extra ``serve``).

    Raises:
        UserError: If it is none.
    """
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    try:
        validator_for(schema).check_schema(schema)
    except SchemaError as error:
        raise UserError(f"expected a valid JSON Schema, got an error: {error.message:.200}") from error
    return json.dumps(schema, ensure_ascii=False)


def fits_schema(answer: str, schema: str) -> bool:
    """Whether ``answer``, a JSON text, fits the JSON Schema ``schema``, another one."""
    return _validator(schema).is_valid(json.loads(answer))


@lru_cache
def _validator(schema: str) -> Any:
    from jsonschema.validators import validator_for

    content = json.loads(schema)
    return validator_for(content)(content)


def same_json(a: str, b: str, absolute: float, relative: float) -> bool:
    """Whether two JSON texts hold the same value, keys in any order and numbers within the tolerance."""

    def same(a: Any, b: Any) -> bool:
        if isinstance(a, dict) and isinstance(b, dict):
            return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
        if isinstance(a, list) and isinstance(b, list):
            return len(a) == len(b) and all(map(same, a, b))
        if isinstance(a, float) and isinstance(b, float):
            return a == b or math.isclose(a, b, rel_tol=relative, abs_tol=absolute)
        return type(a) is type(b) and a == b

    try:
        return same(json.loads(a, parse_int=float), json.loads(b, parse_int=float))
    except (ValueError, RecursionError, OverflowError):  # no JSON, or numbers beyond floats
        return a.split() == b.split()


@lru_cache(maxsize=1024)
def code_tree(code: str) -> str:
    """``code`` for comparison: its syntax tree if it is Python, else its lines without indentation."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "\n".join(" ".join(line.split()) for line in code.splitlines() if line.strip())
