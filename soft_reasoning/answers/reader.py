"""What an answer type provides: how it is read where a text states it, how it closes an unmarked text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from soft_reasoning.answers.rewriting import Rewriter


@dataclass(frozen=True)
class Found:
    """What was read: ``rewrites(piece)[start:end]``, where ``piece = text[offset:stop]`` of the text given.

    ``answer`` is canonical; None says that the text speaks of the answer without giving one.
    """

    answer: str | None
    start: int = 0
    end: int = 0
    rewrites: Rewriter = Rewriter()
    offset: int = 0
    stop: int = 0

    def place(self, text: str) -> tuple[int, int]:
        """``(start, end)`` of the answer in ``text``, which is the text that was read."""
        start, end = self.rewrites.origin(text[self.offset : self.stop], self.start, self.end)
        return self.offset + start, self.offset + end


class Reader(Protocol):
    """Reads answers of one type. A text that says nothing of an answer gives None."""

    def read(self, statement: str) -> Found | None:
        """What a statement (what follows "Answer:", or a box) gives."""
        ...

    def opens(self, statement: str) -> bool:
        """Whether a statement begins with an answer, so that "the answer is" before it introduces one."""
        ...

    def close(self, text: str) -> Found | None:
        """What a text without a statement ends on."""
        ...

    def equal(self, a: str, b: str, absolute: float, relative: float) -> bool:
        """Whether two answers are the same."""
        ...
