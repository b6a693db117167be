r"""Reading answers that are taken from the text as they are: words, formulas, any text, JSON, code.

Words: the first sentence of a statement without emphasis, quotes and full stop. Formulas: the text between
the first ``$``, ``\(`` or ``\[`` of a statement and the closing mark, or else its first sentence; a text
without a statement gives its last formula. Formulas are compared by value, by text, or
symbolically. The others see the whole text, without statements such as "Answer:". Code is never run.
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

from soft_reasoning.answers import algebra
from soft_reasoning.answers.number import close_enough
from soft_reasoning.answers.numerals import whole_value
from soft_reasoning.answers.reader import REFUSAL, WINDOW, Reader, Reading, first_line, last_match

_END = re.compile(
    r"\.(?=[\"'”*]*(?:\s*$|\s+(?:The|This|That|It|He|She|They)\b))"
    r"|(?<!\b[A-Z])(?<!\b(?:St|Dr|Mr|Ms|Mt))(?<!\bMrs)\.(?=[\"'”*]*\s+[A-Z])"
)
"""The end of a sentence; not in "St. Louis" and "J. K. Rowling"."""
_SIGNS = re.compile(r"((?<!\w)-(?=\.?\d)|(?<=\d)\.(?=\d)|(?<=[^\W\d_])[+#]+(?!\w))|[^\w\s]")
_WRAPPED = re.compile(r"\s*\\(?:text|mathrm|mathbf|textbf)\s?\{([^{}]*)\}\s*")
_AROUND = "*`\"'“” "
_MATHS = re.compile(r"\$\$?([^$\n]{1,2000})\$|\\\((.{1,2000}?)\\\)|\\\[(.{1,2000}?)\\\]")
_SENTENCE_END = re.compile(r"\.(?=[\"'”*]{0,3}(?:\s+[A-Z]|\s*$))")
_LAST_MATHS = re.compile(
    r"\$\$?([^$]+)\$|\\\((.{1,2000}?)\\\)|\\\[(.{1,2000}?)\\\]|=\s*([^=&$]{1,200}?)\s*\\end\{align", re.DOTALL
)
_ESCAPED = re.compile(r"\\\\(?=[A-Za-z{}])")
"""JSON doubles each backslash."""
_REASON = re.compile(r",?\s(?:since|because|as\srequired)\b[^.\n]*\.?\s*$")


class TextReader(Reader):
    """Reads answers in words."""

    def read(self, statement: str) -> Reading | None:
        start, stop = first_line(statement)
        line = statement[start:stop]
        if wrapped := _WRAPPED.fullmatch(line):
            start, line = start + wrapped.start(1), wrapped[1]
        begin = len(line) - len(line.lstrip(_AROUND))
        sentence_end = _END.search(line, begin)
        answer = line[begin : sentence_end.start() if sentence_end else None].rstrip(_AROUND)
        if not answer:
            return None
        if REFUSAL.search(answer):
            return Reading(None)
        return Reading(answer, begin, begin + len(answer)).shifted(start)

    def close(self, text: str) -> Reading | None:
        return None

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        return _plain_words(a) == _plain_words(b)


def _plain_words(text: str) -> str:
    """Text for comparison: without case, articles and punctuation, except in "-5", "1.5" and "C++"."""
    words = _SIGNS.sub(lambda match: match[1] or " ", text.casefold().replace("−", "-")).split()
    return " ".join(word for word in words if word not in ("a", "an", "the")) or text.strip().casefold()


class LatexReader(Reader):
    """Reads formulas."""

    def read(self, statement: str) -> Reading | None:
        start, stop = first_line(statement)
        line = statement[start:stop]
        if maths := _MATHS.search(line):
            return _bare(statement, *(start + place for place in maths.span(maths.lastindex or 0)))
        sentence_end = _SENTENCE_END.search(line)
        return _bare(statement, start, start + sentence_end.start() if sentence_end else stop)

    def close(self, text: str) -> Reading | None:
        offset = max(0, len(text) - WINDOW)
        reason = last_match(_REASON, text[offset:])
        last = last_match(_LAST_MATHS, text[offset : offset + reason.start() if reason else None])
        last = last or last_match(_LAST_MATHS, text[offset:])
        if last is None:
            return None
        begin, end = last.span(last.lastindex or 0)
        return _bare(text, offset + begin, offset + end)

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        x, y = whole_value(a), whole_value(b)
        if x is not None and y is not None:
            return close_enough(x, y, absolute, relative)
        return algebra.equivalent(a, b)


def _bare(text: str, begin: int, end: int) -> Reading | None:
    """``text[begin:end]`` without dollars and spaces around it."""
    piece = text[begin:end]
    begin += len(piece) - len(piece.lstrip(" \t\n$"))
    answer = piece.strip(" \t\n$")
    if not answer:
        return None
    if REFUSAL.search(answer):
        return Reading(None)
    place = begin, begin + len(answer)
    return Reading(answer if "\\begin" in answer else _ESCAPED.sub(r"\\", answer), *place)


FREE = ("open",)
"""Types whose answers differ in words even where they agree, so that a verifier has to choose."""

_FENCE = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)
_OPENING = re.compile(r"[\[{]")
_TRIES = 64
"""The most brackets without a JSON value that are tried."""


class OpenReader(Reader):
    """Reads the whole text; answers are the same if they differ only in white space."""

    def read(self, statement: str) -> Reading | None:
        answer = statement.strip()
        start = len(statement) - len(statement.lstrip())
        return Reading(answer, start, start + len(answer)) if answer else None

    def close(self, text: str) -> Reading | None:
        return self.read(text)

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        return a.split() == b.split()


class CodeReader(OpenReader):
    """Reads the last fenced block, else the text; compares Python by its syntax tree, other code by lines."""

    def read(self, statement: str) -> Reading | None:
        blocks = [block for block in _FENCE.finditer(statement) if block[1].strip()]
        if not blocks:
            return super().read(statement)
        start, end = blocks[-1].span(1)
        return Reading(textwrap.dedent(statement[start:end]).strip(), start, end)

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        return _tree(a) == _tree(b)


class JsonReader(OpenReader):
    """Reads the last JSON object or array; values are the same with their keys in any order."""

    def read(self, statement: str) -> Reading | None:
        decoder, last, place = json.JSONDecoder(parse_constant=_no_constant), None, 0
        for _ in range(_TRIES):
            begin = _OPENING.search(statement, place)
            if begin is None:
                break
            while begin is not None:  # consecutive values are no failed tries
                try:
                    value, place = decoder.raw_decode(statement, begin.start())
                except (ValueError, RecursionError):
                    place = begin.end()
                    break
                text = json.dumps(value, ensure_ascii=False, sort_keys=True)
                last = Reading(text, begin.start(), place)
                begin = _OPENING.search(statement, place)
        return last

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        try:
            return _same(json.loads(a), json.loads(b), absolute, relative)
        except (ValueError, RecursionError, OverflowError):  # no JSON, or numbers beyond floats
            return a.split() == b.split()


def _no_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


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
    """``code`` for comparison: its syntax tree if it is Python, else its lines without indentation."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.dump(ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "\n".join(" ".join(line.split()) for line in code.splitlines() if line.strip())
