"""The special tokens that a tokenizer puts around every text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

PROBE = "7 (seven)"


class PromptEncoder:
    """Texts to the token ids of prompts.

    A prompt begins as the tokenizer begins every text (with BOS, for most), also where the text already holds
    these tokens, and never ends with the tokens that it puts at the end (EOS), since a solution follows.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        bare, whole = tokenizer.encode(PROBE, add_special_tokens=False), tokenizer.encode(PROBE)
        starts = range(len(whole) - len(bare) + 1)
        before = next((n for n in starts if whole[n : n + len(bare)] == bare), 0)
        self.before: list[int] = whole[:before]
        """The tokens at the beginning of every prompt."""
        self._after = len(whole) - before - len(bare)

    def __call__(self, text: str) -> tuple[int, ...]:
        """Return the token ids of ``text`` as a prompt."""
        ids, size = list(self._tokenizer.encode(text)), len(self.before)
        start = size if ids[size : 2 * size] == self.before else 0
        return tuple(ids[start : len(ids) - self._after])

    def opening(self, ids: Sequence[int]) -> int:
        """Return the number of such tokens at the beginning of the prompt ``ids``."""
        if self.before and list(ids[: len(self.before)]) == self.before:
            return len(self.before)
        return int(ids[0] == getattr(self._tokenizer, "bos_token_id", None))
