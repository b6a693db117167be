"""The tokens of an answer with their log-probabilities, as OpenAI writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from soft_reasoning.engines.text import decode
from soft_reasoning.types import Candidate


def pieces(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return the text that each token adds; of a character in several tokens the last one has it.

    Tokens are decoded behind those before them, since alone they may lose a space.
    """
    found: list[str] = []
    begin = read = 0  # tokens from ``begin`` are decoded; the text of those before ``read`` is given out
    for end in range(1, len(ids) + 1):
        before, text = decode(tokenizer, ids[begin:read]), decode(tokenizer, ids[begin:end])
        whole = len(text) > len(before) and not text.endswith("\ufffd")
        found.append(text[len(before) :] if whole else "")
        if whole:
            begin, read = read, end
    return found


def logprobs_of(tokenizer: Any, candidate: Candidate, text: str) -> list[dict[str, Any]]:
    """Return an entry for each token of ``text``, which is the candidate's or its beginning."""
    entries: list[dict[str, Any]] = []
    length = 0
    for piece, logprob in zip(pieces(tokenizer, candidate.token_ids), candidate.logprobs, strict=True):
        if length >= len(text):
            break
        length += len(piece)
        entries.append(
            {"token": piece, "logprob": logprob, "bytes": list(piece.encode()), "top_logprobs": []}
        )
    return entries
