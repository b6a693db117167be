r"""Finding where a text states its answer.

The last mark decides: ``\boxed{``, ``####``, ``<answer>``, a key "answer" of JSON, "Answer:" or "the answer
is". Where the statement after it is unfinished, the text has none: an earlier one is not the answer. A text
ends where the model goes on to another question.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

WINDOW = 2000
"""The most characters of a statement, or of the end of a text, that are read, so that reading is linear."""

_MARK = re.compile(
    r"""(?P<box>\\(?:f?boxed|fbox)\s?\{)
      | (?P<tag><(?:final[_ -]?)?answer>)
      | (?P<key>"(?:final_?)?answer"\s*:\s*)
      | (?P<line>(?<!\#)\#\#\#\#(?!\#)[ \t]*(?=\$?[-−]?[$.\d]|\s*$)
        | (?<![A-Za-z])answer[^:.\n]{0,60}?(?::|\bis:?(?![a-z])|=)[*_ \t]*
        | ^[#* \t]*(?:final[ ])?answer[* \t]*$)""",
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_NEXT = re.compile(
    r"^[ \t#*>]*(?:question|problem|exercise|example|instruction|input|q|user|human)[ ]?\d{0,3}[* ]{0,3}:"
    r"|<\|[a-z_]+\|>|</s>|\[INST\]",
    re.IGNORECASE | re.MULTILINE,
)
"""Where a model goes on to another question or turn."""
_EMPHASIS = re.compile(r"(?<!\d)\*\*|\*\*(?!\d)|`|(?<![\w*])\*(?=\w)|(?<=\w)\*(?![\w*])")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]*]{0,3}\s+(?=\S)|\n")
DENIES = re.compile(
    r"\b(?:not|cannot|never|neither|nor|maybe|perhaps|possibly|depends|unclear|unknown|partly|sometimes"
    r"|whether)\b|n['’]t\b|\?",
    re.IGNORECASE,
)
"""What denies or doubts what is said."""
_WORD = re.compile(r"\w")


class Reading(NamedTuple):
    """An answer and its place ``text[start:end]``; None where the text gives none or is ambiguous."""

    answer: str | None
    start: int = 0
    end: int = 0

    def shifted(self, offset: int) -> Reading:
        """The same reading in a text with ``offset`` more characters in front."""
        return Reading(self.answer, self.start + offset, self.end + offset)


class Span(NamedTuple):
    """The part ``text[start:end]`` of a text."""

    start: int
    end: int


def prepared(text: str) -> str:
    """``text`` with spaces in place of emphasis; its length stays the same."""
    return _EMPHASIS.sub(lambda match: " " * len(match.group()), text)


def answer_end(text: str) -> int:
    """Where the answer of ``text`` ends and another question begins."""
    first = _MARK.search(text) or _WORD.search(text)
    after = _NEXT.search(text, first.end()) if first else None
    return after.start() if after else len(text)


def stated(text: str) -> Span | None:
    """Where the last statement of ``text`` is, empty if it is unfinished; None without a mark."""
    marks = deque(_MARK.finditer(text), maxlen=1)
    if not marks:
        return None
    last = marks[0]
    start = last.end()
    if last["box"]:
        return Span(start, _closing(text, start))
    if last["tag"] or last["key"]:
        close = re.compile(r"</" if last["tag"] else r"[,}\]\n]").search(text, start, start + WINDOW)
        return Span(start, close.start() if close else start)
    word = _WORD.search(text, start)
    return Span(start, line_end(text, word.start())) if word else Span(start, start)


def _closing(text: str, start: int) -> int:
    """Where the brace before ``start`` is closed; ``start`` if it is not."""
    depth = 1
    for brace in re.compile(r"\\.|[{}]").finditer(text, start, start + WINDOW):
        depth += {"{": 1, "}": -1}.get(brace.group(), 0)
        if not depth:
            return brace.start()
    return start


def line_end(text: str, start: int) -> int:
    """Where the line around ``start`` ends."""
    end = text.find("\n", start, start + WINDOW)
    return min(len(text), start + WINDOW) if end < 0 else end


def sentences(text: str, start: int, end: int) -> Iterator[Span]:
    """The sentences of ``text[start:end]`` that hold a word."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text, start, end)]
    for begin, stop in zip([start, *ends], [*ends, end], strict=True):
        if _WORD.search(text, begin, stop):
            yield Span(begin, stop)
