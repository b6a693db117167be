"""A yes-or-no question to the model, answered by its next-token logits."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.schedule.effects import next_logits
from soft_reasoning.types import Effect, Prompt, UserError


def word_ids(tokenizer: Any, word: str) -> tuple[int, ...]:
    """Return the tokens of ``word``, with and without a space before it.

    Raises:
        UserError: If the tokenizer has neither as one token.
    """
    word_tokens: list[int] = []
    for text in (word, f" {word}"):
        ids = tokenizer.encode(text, add_special_tokens=False)
        if len(ids) == 1 and ids[0] not in (*word_tokens, getattr(tokenizer, "unk_token_id", None)):
            word_tokens += ids
    if not word_tokens:
        raise UserError(
            f"expected a tokenizer with a token for {word!r}, with or without a space before it, got none; "
            "use a model that can be asked yes-or-no questions"
        )
    return tuple(word_tokens)


def probability_of_yes(logits: Tensor, yes: int) -> Tensor:
    """Return the probability (n,) float64 of Yes from the ``logits`` (n, v) of the words' tokens.

    The first ``yes`` tokens belong to Yes, the others to No. The tokens of a word count together:
    log-sum-exp, then a softmax over the two words.
    """
    logits = logits.double()
    return torch.sigmoid(logits[:, :yes].logsumexp(-1) - logits[:, yes:].logsumexp(-1))


def ask_yes_no(prompts: Sequence[Prompt], tokenizer: Any, *, role: str) -> Generator[Effect, Any, Tensor]:
    """Return the probability (n,) float64 of Yes against No after each of ``prompts``."""
    yes, no = word_ids(tokenizer, "Yes"), word_ids(tokenizer, "No")
    logits = yield from next_logits(prompts, yes + no, role=role)
    return probability_of_yes(logits, len(yes))
