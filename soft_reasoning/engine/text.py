"""From token ids to text: stop strings and end-of-sequence tokens, the same for every engine.

An engine asks its :class:`StopChecker` after every token whether the completion ends there
(:meth:`StopChecker.end`), or looks for the first end in many tokens (:meth:`StopChecker.finish`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from soft_reasoning import thoughts
from soft_reasoning.types import FinishReason

MOST_TOKENS = 2**18
"""Cached pairs of a token and stop strings in a checker."""


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of ``ids``, without special tokens other than marks of thoughts; spaces untouched."""
    marks = _marks(tokenizer)
    if marks.isdisjoint(ids):
        return _decoded(tokenizer, ids)
    runs = groupby(ids, key=marks.__contains__)
    return "".join(_decoded(tokenizer, [*run], not is_mark) for is_mark, run in runs)


def prompt_text(tokenizer: Any, ids: Sequence[int], messages: Sequence[tuple[str, str]] = ()) -> str:
    """The text of a prompt with its special tokens, or its messages."""
    if messages:
        return "\n\n".join(f"{role}: {text}" for role, text in messages)
    return tokenizer.decode(list(ids), clean_up_tokenization_spaces=False)


def _decoded(tokenizer: Any, ids: Sequence[int], skip: bool = True) -> str:
    return tokenizer.decode(list(ids), skip_special_tokens=skip, clean_up_tokenization_spaces=False)


@lru_cache(16)
def _marks(tokenizer: Any) -> frozenset[int]:
    """The special tokens of ``tokenizer`` that belong to marks of thoughts."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return frozenset(i for i, token in added.items() if token.special and token.content in thoughts.SPECIAL)


class StopChecker:
    """Finds where a completion ends: with an end-of-sequence token, or one that completes a stop string.

    The text is cut before either. Both are ignored among the first ``min_new_tokens`` tokens, but a stop
    string in them is still cut off if a stop string ends the completion. Stop strings in thoughts end
    nothing; ``thinks`` says whether the completion begins in thoughts.

    Decoding a whole completion after each token would be quadratic. A token can complete a stop string only
    if its text contains that string or begins with a suffix of it. This is cached per token. Only then is the
    completion decoded.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._may_complete = lru_cache(MOST_TOKENS)(self._check_token)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, as :func:`decode` returns it."""
        return decode(self._tokenizer, ids)

    def end(
        self,
        ids: Sequence[int],
        stop: tuple[str, ...] = (),
        *,
        eos: Collection[int] = (),
        min_new_tokens: int = 0,
        thinks: bool = False,
    ) -> tuple[str, FinishReason] | None:
        """Return the text and the reason if the last of ``ids`` ends the completion, else None."""
        count = len(ids)
        if count < max(1, min_new_tokens):
            return None
        if ids[-1] in eos and count > min_new_tokens:
            return self.decode(ids[:-1]), FinishReason.EOS
        text = self._before_stop(ids, stop, thinks)
        return None if text is None else (text, FinishReason.STOP)

    def finish(
        self, ids: Sequence[int], stop: tuple[str, ...] = (), *, min_new_tokens: int = 0, **ends: Any
    ) -> tuple[int, str, FinishReason]:
        """Return ``(count, text, reason)``: the number of ``ids`` in the completion, its text and its end.

        Args:
            ends: ``eos`` and ``thinks`` of :meth:`end`.
        """
        for count in range(max(1, min_new_tokens), len(ids) + 1):
            if end := self.end(ids[:count], stop, min_new_tokens=min_new_tokens, **ends):
                return count, *end
        return len(ids), self.decode(ids), FinishReason.LENGTH

    def _before_stop(self, ids: Sequence[int], stop: tuple[str, ...], thinks: bool) -> str | None:
        """Return the text of ``ids`` before the earliest stop string after the thoughts.

        None if the last token cannot have completed a stop string.
        """
        if not stop or not ids:
            return None
        if not self._may_complete(ids[-1], stop):
            return None
        text = decode(self._tokenizer, ids)
        start = thoughts.answer_start(text, thinks)
        at = -1 if start is None else earliest_stop(text[start:], stop)
        if start is not None and at >= 0:
            return text[: start + at]
        # A special token leaves no text, but may be named, such as "<|im_end|>".
        last = list(ids[-1:])
        return text if self._tokenizer.decode(last) in stop and not decode(self._tokenizer, last) else None

    def _check_token(self, token: int, stop: tuple[str, ...]) -> bool:
        alone = decode(self._tokenizer, [token])
        # Alone, a token may lose its leading space (sentencepiece) or be part of a character.
        for text in {alone, " " + alone}:
            if not text or "\ufffd" in text:
                return True
            if any(s in text or any(s.endswith(text[:j]) for j in range(1, len(text) + 1)) for s in stop):
                return True
        return False


def earliest_stop(text: str, stop: Sequence[str]) -> int:
    """Return where the earliest stop string begins in ``text``, or -1."""
    return min((at for s in stop if s and (at := text.find(s)) >= 0), default=-1)
