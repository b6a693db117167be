"""A completion in progress, token by token until an end token, a stop string or the limit."""

from __future__ import annotations

from time import monotonic
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engines.base import PreparedRequest
from soft_reasoning.engines.sampling import draws_of
from soft_reasoning.engines.text import StopChecker, finish
from soft_reasoning.types import Completion, Request, TopLogprobs


class Output:
    """What was generated for one request so far; shared by the engines that decode step by step."""

    def __init__(self, prepared: PreparedRequest) -> None:
        self.request: Request = prepared.request
        self.prompt_tokens: int = prepared.prompt_tokens
        self.max_new_tokens: int = prepared.max_new_tokens
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.next_logits: Tensor | None = None
        self.hidden_state: Tensor | None = None
        self.top_logprobs: list[TopLogprobs] = []
        self.fed: Tensor | None = None  # the embedding (D,) fed in place of the newest token's
        self._draws: list[float] = []

    @property
    def draws(self) -> list[float]:
        """The uniform numbers, one per token, that sampling uses."""
        if not self._draws:
            self._draws = draws_of(self.request).tolist()
        return self._draws

    def read(self, logits: Tensor, normaliser: float) -> bool:
        """Keep what is asked for of the next token's ``logits`` (V,); True if no token is asked for.

        ``normaliser`` is their log-sum-exp.
        """
        asked, count = self.request.next_logits, self.request.top_logprobs
        if asked is not False and not self.ids:
            self.next_logits = kept(logits if asked is True else logits[list(asked)])
        if count:
            values, ids = logits.topk(min(count, len(logits)))
            self.top_logprobs.append(TopLogprobs(tuple(ids.tolist()), tuple((values - normaliser).tolist())))
        return self.max_new_tokens == 0

    def add(self, token: int, logprob: float, eos: frozenset[int], stops: StopChecker) -> bool:
        """Append a token; True when it ends the completion."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        count, least = len(self.ids), self.request.min_new_tokens
        late = self.request.deadline is not None and monotonic() >= self.request.deadline
        if count >= self.max_new_tokens or late:
            return True
        if count < least:
            return False
        return (token in eos and count > least) or stops.before_stop(self.ids, self.request.stop) is not None

    def completion(
        self, tokenizer: Any, eos: frozenset[int], stops: StopChecker, *, cached_tokens: int
    ) -> Completion:
        """The completion, its text cut before the end token or the stop string."""
        # No token before the last one ended it, so only the last is checked.
        least = max(self.request.min_new_tokens, len(self.ids) - 1)
        count, text, reason = finish(
            tokenizer, self.ids, stop=self.request.stop, eos=eos, min_new_tokens=least, checker=stops
        )
        return Completion(
            token_ids=tuple(self.ids[:count]),
            logprobs=tuple(self.logprobs[:count]),
            text=text,
            finish_reason=reason,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=cached_tokens,
            next_logits=self.next_logits,
            top_logprobs=tuple(self.top_logprobs[: max(count, 1)]),
            hidden_state=self.hidden_state,
        )


def kept(row: Tensor) -> Tensor:
    """``row`` in float32 on the CPU, as a tensor that gradients may pass, whatever it was computed in."""
    with torch.inference_mode(False):
        return row.float().cpu().clone()
