"""Rewriting a text by a list of patterns, and finding the origin of a piece of the result.

Readers simplify a text (typography, LaTeX, emphasis) before they look for an answer. The place of the
answer in the original text is rarely needed, so it is computed on request.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

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
