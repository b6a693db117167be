r"""Reading answers that stand in the text as they are: words and formulas.

Words: the first sentence of a statement without emphasis, quotes and full stop. Formulas: what is between the
first ``$``, ``\(`` or ``\[`` of a statement and the closing mark, or else its first sentence; a text without
a statement gives its last formula. Formulas are compared by value, by text, or symbolically.
"""

from __future__ import annotations

import re

from soft_reasoning.answers import algebra
from soft_reasoning.answers.own_text import WINDOW
from soft_reasoning.answers.reader import REFUSAL, Found, first_line, last_match
from soft_reasoning.answers.readers.number import close_enough
from soft_reasoning.answers.readers.numerals import whole_value
from soft_reasoning.answers.rewriting import Rewriter

_END = re.compile(  # after "Vitamin C. It is", not in "St. Louis" or "J. K. Rowling"
    r"\.(?=[\"'”*]*(?:\s+(?:The|This|That|It|He|She|They|We|In|So|Because)\b|\s*$))"
    r"|(?<!\b[A-Z])(?<!\b(?:St|Dr|Mr|Ms|Mt|Lt))(?<!\b(?:Mrs|Gen|Col|Sgt|Rev|Gov|Sen))(?<!\b(?:Prof|Capt))"
    r"\.(?=[\"'”*]*\s+[A-Z])"
)
_SIGNS = re.compile(r"((?<!\w)-(?=\.?\d)|(?<=\d)\.(?=\d)|(?<=[^\W\d_])[+#]+(?!\w))|[^\w\s]")
_PLAIN = Rewriter((r"\\(?:text|mathrm|mathbf|textbf)\s?\{([^{}]*)\}", r"\1"), (r"\s+", " "))
_AROUND = "*`\"'“” "
_MATHS = re.compile(r"\$\$?([^$\n]{1,2000})\$|\\\((.{1,2000}?)\\\)|\\\[(.{1,2000}?)\\\]")
_SENTENCE_END = re.compile(r"\.(?=[\"'”*]{0,3}(?:\s+[A-Z]|\s*$))")
_LAST_MATHS = re.compile(r"\$\$?([^$]+)\$|\\\((.{1,2000}?)\\\)|\\\[(.{1,2000}?)\\\]", re.DOTALL)
_AS_IT_IS = Rewriter()
_ESCAPED = Rewriter((r"\\\\(?=[A-Za-z{}])", r"\\"))
"""JSON doubles each backslash."""


class TextReader:
    """Reads answers in words; a :class:`~soft_reasoning.answers.reader.Reader`."""

    def read(self, statement: str) -> Found | None:
        start, stop = first_line(statement)
        line = _PLAIN(statement[start:stop])
        begin = len(line) - len(line.lstrip(_AROUND))
        sentence_end = _END.search(line, begin)
        answer = line[begin : sentence_end.start() if sentence_end else len(line)].rstrip(_AROUND)
        if not answer:
            return None
        if REFUSAL.search(answer):
            return Found(None)
        return Found(answer, begin, begin + len(answer), _PLAIN, start, stop)

    def opens(self, statement: str) -> bool:
        return False

    def close(self, text: str) -> Found | None:
        return None

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        return _plain_words(a) == _plain_words(b)


def _plain_words(text: str) -> str:
    """Text for comparison: case, articles and punctuation apart, but for "-5", "1.5" and "C++"."""
    words = _SIGNS.sub(lambda found: found[1] or " ", text.casefold().replace("−", "-")).split()
    return " ".join(word for word in words if word not in ("a", "an", "the")) or text.strip().casefold()


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
