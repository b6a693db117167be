"""The protocol of an answer type: reading a statement, and reading a text that has none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from soft_reasoning.answers.rewriting import Rewriter


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
