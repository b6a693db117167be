"""A request that an engine runs: checked first, then with its tokens so far, until one of them ends it."""

from __future__ import annotations

from time import monotonic
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.checks import whole
from soft_reasoning.engine.text import StopChecker
from soft_reasoning.types import Completion, FinishReason, Request, TopLogprobs, UserError


class RunningRequest:
    """A request in progress. An engine that needs more state for each request extends it.

    The prompt is ``head``, then ``soft``, then ``tail``. Without soft tokens all ids are in ``head``.

    Attributes:
        ticket: The engine's number for the request.
        request: The request.
        head: Token ids before the soft tokens.
        soft: (m, D) soft tokens, or None.
        tail: Token ids after the soft tokens.
        prompt_tokens: Length of the prompt, soft tokens included.
        max_new_tokens: The request's, or less where the context ends.
        ids: The generated tokens so far.
        logprobs: Their raw log-probabilities.
        next_logits: As in :class:`Completion`, once they are read.
        top_logprobs: As in :class:`Completion`, so far.
        hidden_state: As in :class:`Completion`, once it is read.
        cached_tokens: Prompt positions that came from a cache.
        grammar: The matcher of the request's schema, where the engine applies it.

    Args:
        hidden_size: D, the width of a soft token.
        context_length: Maximum number of tokens of prompt and completion together.
        vocabulary: V; ids are smaller.

    Raises:
        UserError: If the prompt does not fit the context.
        ValueError: For ids, soft tokens, positions or limits that no model can take.
    """

    def __init__(
        self, ticket: int, request: Request, *, hidden_size: int, context_length: int, vocabulary: int
    ) -> None:
        _check_limits(request)
        _check_ids(request, vocabulary)
        ids, soft = tuple(request.prompt_ids), request.soft
        place = len(ids) if soft is None else _place(request, soft, hidden_size)
        self.ticket = ticket
        self.request: Request = request
        self.head: tuple[int, ...] = ids[:place]
        self.soft: Tensor | None = soft
        self.tail: tuple[int, ...] = ids[place:]
        self.prompt_tokens: int = len(ids) + (0 if soft is None else len(soft))
        if self.prompt_tokens >= context_length:
            raise UserError(
                f"expected a prompt shorter than the model's context of {context_length} tokens, got "
                f"{self.prompt_tokens}; shorten the prompt, use fewer exemplars or a model with a longer "
                "context"
            )
        self.max_new_tokens: int = min(request.max_new_tokens, context_length - self.prompt_tokens)
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.next_logits: Tensor | None = None
        self.top_logprobs: list[TopLogprobs] = []
        self.hidden_state: Tensor | None = None
        self._state_sum = torch.zeros(())
        self.cached_tokens = 0
        self.grammar: Any = None
        self._draws, self._generator = list[float](), torch.Generator().manual_seed(request.seed)

    def late(self) -> bool:
        """Whether the request's deadline has passed."""
        return self.request.deadline is not None and monotonic() >= self.request.deadline

    def draw(self) -> float:
        """The uniform number that samples the next token, one of a row drawn with the request's seed."""
        while len(self._draws) <= len(self.ids):
            self._draws += torch.rand(64, generator=self._generator, dtype=torch.float64).tolist()
        return self._draws[len(self.ids)]

    def read(self, logits: Tensor, normaliser: float) -> None:
        """Store what the request reads of the next token's ``logits`` (V,); their log-sum-exp normalises."""
        wanted, count = self.request.next_logits, self.request.top_logprobs
        if wanted is not False and not self.ids:
            self.next_logits = detached(logits if wanted is True else logits[list(wanted)])
        if count:
            values, ids = logits.topk(min(count, len(logits)))
            self.top_logprobs.append(TopLogprobs(tuple(ids.tolist()), tuple((values - normaliser).tolist())))

    @property
    def average_from(self) -> int | None:
        """The position from which hidden states are averaged."""
        index = self.request.average_from
        if index is None or index < len(self.head):
            return index
        return index + self.prompt_tokens - len(self.request.prompt_ids)

    def sum_states(self, states: Tensor, position: int) -> None:
        """Add the ``states`` (n, D) of the prompt from ``position`` on to the average, if there is one."""
        if (first := self.average_from) is not None:
            self._state_sum = self._state_sum + states[max(first - position, 0) :].float().sum(0)

    def keep_state(self, state: Tensor) -> None:
        """Store the ``state`` (D,) at the end of the prompt, all of whose states are summed."""
        if (first := self.average_from) is not None:
            state = torch.stack([state.float(), self._state_sum / (self.prompt_tokens - first)])
        self.hidden_state = detached(state)

    def add(self, token: int, logprob: float, eos: frozenset[int], stops: StopChecker) -> Completion | None:
        """Append a token; return the completion if the token ends it."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        request, count = self.request, len(self.ids)
        end = stops.end(
            self.ids, request.stop, eos=eos, min_new_tokens=request.min_new_tokens, thinks=request.thinks
        )
        if end is None and (count >= self.max_new_tokens or self.late()):
            end = stops.decode(self.ids), FinishReason.LENGTH
        return None if end is None else self.completion(count, *end)

    def finish(self, eos: frozenset[int], stops: StopChecker) -> Completion:
        """Return the completion of all tokens so far, up to the first that ends it."""
        request = self.request
        return self.completion(
            *stops.finish(
                self.ids, request.stop, eos=eos, min_new_tokens=request.min_new_tokens, thinks=request.thinks
            )
        )

    def completion(
        self, count: int = 0, text: str = "", reason: FinishReason = FinishReason.LENGTH
    ) -> Completion:
        """The completion of the first ``count`` tokens, with what was read."""
        return Completion(
            token_ids=tuple(self.ids[:count]),
            logprobs=tuple(self.logprobs[:count]),
            text=text,
            finish_reason=reason,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            next_logits=self.next_logits,
            top_logprobs=tuple(self.top_logprobs[: max(count, 1)]),
            hidden_state=self.hidden_state,
        )


def detached(row: Tensor) -> Tensor:
    """Copy ``row`` to float32 on the CPU, as an ordinary tensor, not one of inference mode."""
    with torch.inference_mode(False):
        return row.float().cpu().clone()


def _check_limits(request: Request) -> None:
    whole("max_new_tokens", request.max_new_tokens, least=0 if request.reads else 1)
    whole("top_logprobs", request.top_logprobs, least=0)
    if request.hidden_state is not None and not 0 < request.hidden_state <= 1:
        raise ValueError(f"expected hidden_state above 0 and at most 1, got {request.hidden_state}")
    begun = request.thinks or request.soft is not None or len(request.prompt_ids) > request.schema_from
    in_parts = begun or request.reads or request.min_new_tokens > 0 or request.sampling.needs
    if request.schema and request.max_new_tokens and in_parts:
        raise UserError(
            "schema: expected a method that writes its texts as a whole and without thoughts, got another; "
            "use method=cot or self_consistency, or leave the schema out"
        )
    if request.average_from is not None:
        if request.hidden_state in (None, 1):
            raise ValueError(f"expected hidden_state below 1 with average_from, got {request.hidden_state}")
        if not 0 <= request.average_from < len(request.prompt_ids):
            last = len(request.prompt_ids) - 1
            raise ValueError(f"expected average_from in 0..{last}, got {request.average_from}")


def _check_ids(request: Request, vocabulary: int) -> None:
    logit_ids = request.next_logits if isinstance(request.next_logits, tuple) else ()
    outside = [i for i in (*request.prompt_ids, *logit_ids) if not 0 <= i < vocabulary]
    if outside:
        raise ValueError(f"expected token ids in 0..{vocabulary - 1}, got {outside[0]}")
    if not (request.prompt_ids or request.messages) and request.soft is None:
        raise ValueError("expected a prompt of at least one token, got none")


def _place(request: Request, soft: Tensor, hidden_size: int) -> int:
    """The number of token ids before the soft tokens, which are checked."""
    if soft.ndim != 2 or soft.shape[0] == 0 or soft.shape[1] != hidden_size:
        raise ValueError(f"expected soft tokens (m, {hidden_size}), got {tuple(soft.shape)}")
    if not bool(torch.isfinite(soft).all()):
        raise ValueError("expected finite soft tokens, got NaN or infinity")
    count = len(request.prompt_ids)
    place = count if request.position is None else request.position
    if not 0 <= place <= count:
        raise ValueError(f"expected a position in 0..{count}, got {place}")
    return place
