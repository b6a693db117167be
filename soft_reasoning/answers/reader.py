"""The protocol of an answer type (reading a statement, or a text that has none), and what readers share."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

Replacement = str | Callable[[re.Match[str]], str]
Pass = (
    tuple[str | re.Pattern[str], Replacement]
    | tuple[str | re.Pattern[str], Replacement, Callable[[str], bool]]
)
Edit = tuple[int, int, int, int]
"""``before[a:b]`` became ``after[c:d]``, as ``(c, d, a, b)``."""


def beyond_ascii(text: str) -> bool:
    """A condition of a pass: it concerns only texts with characters beyond ASCII."""
    return not text.isascii()


def having(character: str) -> Callable[[str], bool]:
    """A condition of a pass: it concerns only texts that hold ``character``."""
    return lambda text: character in text


class Rewriter:
    """Applies passes in order.

    Args:
        passes: ``(pattern, replacement)``, with a replacement as for ``re.sub``; or ``(pattern,
            replacement, applies)``, where ``applies(text)`` is false for texts that the pattern cannot
            match, which saves time.
    """

    def __init__(self, *passes: Pass) -> None:
        self._passes = [
            (re.compile(pattern), replacement, *(condition or [_always]))
            for pattern, replacement, *condition in passes
        ]

    def __call__(self, text: str) -> str:
        """The rewritten ``text``."""
        for pattern, replacement, concerns in self._passes:
            if concerns(text):
                text = pattern.sub(replacement, text)
        return text

    def origin(self, text: str, start: int, end: int) -> tuple[int, int]:
        """Return ``(start, end)`` in ``text`` of what is at ``start:end`` in the rewritten text.

        Text removed on either side is excluded. Replaced text counts as a whole.
        """
        history: list[Sequence[Edit]] = []
        for pattern, replacement, _ in self._passes:
            text, edits = _edited(text, pattern, replacement)
            history.append(edits)
        for edits in reversed(history):
            start, end = _start_before(edits, start), _end_before(edits, end)
        return start, end


def _always(text: str) -> bool:
    return True


def _edited(text: str, pattern: re.Pattern[str], replacement: Replacement) -> tuple[str, list[Edit]]:
    pieces: list[str] = []
    edits: list[Edit] = []
    copied = length = 0
    for found in pattern.finditer(text):
        new = replacement(found) if callable(replacement) else found.expand(replacement)
        pieces += [text[copied : found.start()], new]
        length += found.start() - copied
        edits.append((length, length + len(new), found.start(), found.end()))
        length += len(new)
        copied = found.end()
    return "".join([*pieces, text[copied:]]), edits


def _start_before(edits: Sequence[Edit], position: int) -> int:
    i = bisect_right(edits, position, key=lambda edit: edit[0]) - 1
    if i < 0:
        return position
    _, after_end, before_start, before_end = edits[i]
    return before_start if position < after_end else position - after_end + before_end


def _end_before(edits: Sequence[Edit], position: int) -> int:
    i = bisect_left(edits, position, key=lambda edit: edit[0]) - 1
    if i < 0:
        return position
    _, after_end, _, before_end = edits[i]
    return before_end if position < after_end else position - after_end + before_end


REFUSAL = re.compile(
    r"\b(?:can(?:not|['’]?t| not)|could(?: not|n['’]t)|unable to|impossible to)\s{1,3}(?:be\s{1,3})?"
    r"(?:answer|determin|calculat|comput|solv|find|say|know|tell|provid|help|assist|conclu|verif|confirm)\w*"
    r"|\b(?:do not|don['’]t) know\b"
    r"|\b(?:does|do|did)(?: not|n['’]t) (?:say|state|mention|specify|tell|give)\b"
    r"|(?:\bnot enough|n['’]t enough|\binsufficient) (?:information|data|context)\b"
    r"|\b(?:I|we)(?:['’]d| would)?(?: also)? need (?:to know|more|the|some|additional|further)\b[^.\n]{0,60}"
    r"\bto (?:solve|answer|determine|calculate|find|say|tell)\b"
    r"|\bno way (?:to|of) (?:tell|know|say)\w*"
    r"|\bunknown\b(?!\s\w)|\bundefined\b|\bundetermined\b|\bindeterminate\b|\bn/a\b|\bno answer\b"
    r"|\bnone of (?:these|the (?:above|options|choices|answers|others))\b",
    re.IGNORECASE,
)
"""Phrases by which a text declines to answer."""


@dataclass(frozen=True)
class Found:
    """What a reader found: ``rewrites(piece)[start:end]``, where ``piece = text[offset:stop]``.

    ``answer`` is canonical. None means that the text mentions an answer without giving one.
    """

    answer: str | None
    start: int = 0
    end: int = 0
    rewrites: Rewriter = Rewriter()
    offset: int = 0
    stop: int = 0

    def place(self, text: str) -> tuple[int, int]:
        """Return ``(start, end)`` of the answer in ``text``, the text that was read."""
        start, end = self.rewrites.origin(text[self.offset : self.stop], self.start, self.end)
        return self.offset + start, self.offset + end


class Reader(Protocol):
    """Reads answers of one type; every method returns None for a text that holds no answer."""

    def read(self, statement: str) -> Found | None:
        """Read a statement: the text after "Answer:", or the content of a box."""
        ...

    def opens(self, statement: str) -> bool:
        """Whether a statement begins with an answer, so that "the answer is" introduces one."""
        ...

    def close(self, text: str) -> Found | None:
        """Read the end of a text that has no statement."""
        ...

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        """Whether two answers are the same."""
        ...


def first_line(statement: str) -> tuple[int, int]:
    """Return the start and end of the first line that holds a word."""
    word = re.search(r"\w", statement)
    if word is None:
        return 0, 0
    start = statement.rfind("\n", 0, word.start()) + 1
    end = statement.find("\n", word.start())
    return start, len(statement) if end < 0 else end


def any_of(words: str) -> str:
    r"""Return a group that matches one of ``words``, separated by commas; a space matches any white space.

    >>> print(any_of("so, in total"))
    (?:so|in\stotal)
    """
    alternatives = (word.strip().replace(" ", r"\s") for word in words.split(","))
    return f"(?:{'|'.join(alternatives)})"


def last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The last match of ``pattern`` in ``text``."""
    return next(iter(deque(pattern.finditer(text), maxlen=1)), None)
