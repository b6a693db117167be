r"""Reading formulas, compared by value, by text, or symbolically.

A statement gives what is between its first ``$``, ``\(`` or ``\[`` and the closing mark, or else its first
sentence. A text without a statement gives its last ``$...$``.
"""

from __future__ import annotations

import re

from soft_reasoning.answers import algebra
from soft_reasoning.answers.number import close_enough
from soft_reasoning.answers.numerals import whole_value
from soft_reasoning.answers.own_text import WINDOW
from soft_reasoning.answers.patterns import last_match
from soft_reasoning.answers.reader import Found, first_line
from soft_reasoning.answers.refusal import REFUSAL
from soft_reasoning.answers.rewriting import Rewriter

_MATHS = re.compile(r"\$\$?([^$\n]{1,2000})\$|\\\((.{1,2000}?)\\\)|\\\[(.{1,2000}?)\\\]")
_SENTENCE_END = re.compile(r"\.(?=[\"'”*]{0,3}(?:\s+[A-Z]|\s*$))")
_LAST_MATHS = re.compile(r"\$\$?([^$]+)\$|\\\((.{1,2000}?)\\\)|\\\[(.{1,2000}?)\\\]", re.DOTALL)
_AS_IT_IS = Rewriter()
_ESCAPED = Rewriter((r"\\\\(?=[A-Za-z{}])", r"\\"))
"""JSON doubles each backslash."""


class LatexReader:
    """Reads formulas; a :class:`~soft_reasoning.answers.reader.Reader`."""

    def read(self, statement: str) -> Found | None:
        start, stop = first_line(statement)
        piece = statement[start:stop]
        line = piece if "\\begin" in piece else _ESCAPED(piece)
        if maths := _MATHS.search(line):
            group = next(i for i, text in enumerate(maths.groups(), start=1) if text)
            begin, end = maths.span(group)
        else:
            sentence_end = _SENTENCE_END.search(line)
            begin, end = 0, sentence_end.start() if sentence_end else len(line)
        return _bare(line, begin, end, start, stop, _AS_IT_IS if line == piece else _ESCAPED)

    def opens(self, statement: str) -> bool:
        return False

    def close(self, text: str) -> Found | None:
        offset = max(0, len(text) - WINDOW)
        last = last_match(_LAST_MATHS, text[offset:])
        if last is None:
            return None
        begin, end = last.span(last.lastindex or 0)
        return _bare(text, offset + begin, offset + end, 0, len(text))

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        x, y = whole_value(a), whole_value(b)
        if x is not None and y is not None:
            return close_enough(x, y, absolute, relative)
        return algebra.equivalent(a, b)


def _bare(
    line: str, begin: int, end: int, start: int, stop: int, rewrites: Rewriter = _AS_IT_IS
) -> Found | None:
    """``line[begin:end]`` without dollars and spaces around it."""
    piece = line[begin:end]
    begin += len(piece) - len(piece.lstrip(" \t\n$"))
    answer = piece.strip(" \t\n$")
    if not answer:
        return None
    if REFUSAL.search(answer):
        return Found(None)
    return Found(answer, begin, begin + len(answer), rewrites, start, stop)
