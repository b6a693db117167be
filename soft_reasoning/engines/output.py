"""A request in work: it is checked, then grows until an end token, a stop string or the limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engines.text import StopChecker, finish
from soft_reasoning.types import Completion, Request, Sampling, TopLogprobs, UserError

HEADS = (64, 2048)
"""Likeliest tokens among which most draws, and nearly all other draws, fall."""


@dataclass(frozen=True, eq=False)
class PreparedRequest:
    """A checked request, its prompt split at the place of the soft tokens.

    The prompt is ``head`` token ids, then ``soft`` (m, D), then ``tail`` token ids. Without soft tokens all
    ids are in ``head``. ``max_new_tokens`` is the request's, or less where the context ends.
    """

    request: Request
    head: tuple[int, ...]
    soft: Tensor | None
    tail: tuple[int, ...]
    max_new_tokens: int

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt, soft tokens included."""
        return len(self.head) + len(self.tail) + (0 if self.soft is None else len(self.soft))


def prepare(request: Request, hidden_size: int, context_length: int, vocabulary: int) -> PreparedRequest:
    """Check ``request`` against a model and split its prompt at the soft tokens.

    Raises:
        UserError: If the prompt does not fit the context.
        ValueError: For ids, soft tokens, positions or limits that no model can take.
    """
    ids, soft = tuple(request.prompt_ids), request.soft
    if request.max_new_tokens < 0 or (request.max_new_tokens == 0 and not request.reads):
        raise ValueError(
            f"expected max_new_tokens >= 1, or 0 to read only logits or states, got {request.max_new_tokens}"
        )
    if request.top_logprobs < 0:
        raise ValueError(f"expected top_logprobs >= 0, got {request.top_logprobs}")
    logit_ids = request.next_logits if isinstance(request.next_logits, tuple) else ()
    outside = [i for i in (*ids, *logit_ids) if not 0 <= i < vocabulary]
    if outside:
        raise ValueError(f"expected token ids in 0..{vocabulary - 1}, got {outside[0]}")
    position = len(ids)
    if soft is not None:
        if soft.ndim != 2 or soft.shape[0] == 0 or soft.shape[1] != hidden_size:
            raise ValueError(f"expected soft tokens (m, {hidden_size}), got {tuple(soft.shape)}")
        if not bool(torch.isfinite(soft).all()):
            raise ValueError("expected finite soft tokens, got NaN or infinity")
        position = len(ids) if request.position is None else request.position
        if not 0 <= position <= len(ids):
            raise ValueError(f"expected a position in 0..{len(ids)}, got {position}")
    elif not ids:
        raise ValueError("expected a prompt of at least one token, got none")
    length = len(ids) + (0 if soft is None else len(soft))
    if length >= context_length:
        raise UserError(
            f"expected a prompt shorter than the model's context of {context_length} tokens, got {length}; "
            "shorten the prompt, use fewer exemplars or a model with a longer context"
        )
    room = context_length - length
    return PreparedRequest(request, ids[:position], soft, ids[position:], min(request.max_new_tokens, room))


class Output:
    """A request in work, with its tokens so far.

    ``cached_tokens`` counts prompt positions that came from the cache, ``recomputed_tokens`` positions that
    were computed again.
    """

    def __init__(self, ticket: int, prepared: PreparedRequest) -> None:
        self.ticket = ticket
        self.prepared = prepared
        self.request: Request = prepared.request
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.next_logits: Tensor | None = None
        self.hidden_state: Tensor | None = None
        self.top_logprobs: list[TopLogprobs] = []
        self.fed: Tensor | None = None  # an embedding (D,) that replaces the newest token's
        self.cached_tokens = 0
        self.recomputed_tokens = 0
        self._draws, self._generator = list[float](), torch.Generator().manual_seed(self.request.seed)

    def late(self) -> bool:
        """Whether the request's deadline has passed."""
        return self.request.deadline is not None and monotonic() >= self.request.deadline

    def draw(self) -> float:
        """The uniform number that samples the next token, one of a row drawn with the request's seed."""
        while len(self._draws) <= len(self.ids):
            self._draws += torch.rand(64, generator=self._generator, dtype=torch.float64).tolist()
        return self._draws[len(self.ids)]

    def read(self, logits: Tensor, normaliser: float) -> bool:
        """Store the request's readings of the next token's ``logits`` (V,); True if it wants no token.

        ``normaliser`` is their log-sum-exp.
        """
        wanted, count = self.request.next_logits, self.request.top_logprobs
        if wanted is not False and not self.ids:
            self.next_logits = detached(logits if wanted is True else logits[list(wanted)])
        if count:
            values, ids = logits.topk(min(count, len(logits)))
            self.top_logprobs.append(TopLogprobs(tuple(ids.tolist()), tuple((values - normaliser).tolist())))
        return self.prepared.max_new_tokens == 0

    def add(self, token: int, logprob: float, eos: frozenset[int], stops: StopChecker) -> bool:
        """Append a token; True when it ends the completion."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        count, least = len(self.ids), self.request.min_new_tokens
        if count >= self.prepared.max_new_tokens or self.late():
            return True
        if count < least:
            return False
        if token in eos and count > least:
            return True
        return stops.before_stop(self.ids, self.request.stop, self.request.thinks) is not None

    def completion(
        self, tokenizer: Any, eos: frozenset[int], stops: StopChecker, *, checked: int = 0
    ) -> Completion:
        """The completion, its text cut before the end token or the stop string.

        The first ``checked`` tokens are known not to end the completion.
        """
        least = max(self.request.min_new_tokens, checked)
        count, text, reason = finish(
            tokenizer, self.ids, stop=self.request.stop, eos=eos, min_new_tokens=least,
            thinks=self.request.thinks, checker=stops,
        )  # fmt: skip
        return Completion(
            token_ids=tuple(self.ids[:count]),
            logprobs=tuple(self.logprobs[:count]),
            text=text,
            finish_reason=reason,
            prompt_tokens=self.prepared.prompt_tokens,
            cached_tokens=self.cached_tokens,
            recomputed_tokens=self.recomputed_tokens,
            next_logits=self.next_logits,
            top_logprobs=tuple(self.top_logprobs[: max(count, 1)]),
            hidden_state=self.hidden_state,
        )


def detached(row: Tensor) -> Tensor:
    """Copy ``row`` to float32 on the CPU, as a tensor that can take part in gradients."""
    with torch.inference_mode(False):
        return row.float().cpu().clone()


def adjust_logits(logits: Tensor, rows: Sequence[Output]) -> Tensor:
    """Return ``logits`` (R, V) after each request's ``adjust``."""
    changed = [i for i, row in enumerate(rows) if row.request.adjust is not None]
    if changed:
        logits = logits.clone()
    for i in changed:
        adjust = rows[i].request.adjust
        logits[i] = logits[i] if adjust is None else adjust(rows[i].ids, logits[i])
    return logits


def choose(logits: Tensor, rows: Sequence[Output], eos: Sequence[int]) -> Tensor:
    """Choose the next token of every row.

    A row's uniform numbers come from a generator with the seed of its request and are turned into tokens by
    inverting the cumulative distribution. So a row's sample depends on its request and its logits alone.

    Args:
        logits: (R, V) float32.
        rows: The R requests with their tokens so far.
        eos: End tokens, which no row may choose before its ``min_new_tokens``.

    Returns:
        (R,) token ids.
    """
    forced = [i for i, row in enumerate(rows) if len(row.ids) < row.request.min_new_tokens]
    ends = [token for token in eos if token < logits.shape[-1]]
    if forced and ends:
        logits = logits.clone()
        logits[torch.tensor(forced).unsqueeze(1), torch.tensor(ends)] = -torch.inf
    sampled: dict[tuple[float, int, float], list[int]] = {}
    for i, row in enumerate(rows):
        parameters = settings(row.request.sampling, len(row.ids))
        if parameters[0] > 0:
            sampled.setdefault(parameters, []).append(i)
    greedy = len(rows) > sum(map(len, sampled.values()))
    tokens = logits.argmax(-1) if greedy else logits.new_empty(len(rows), dtype=torch.long)
    for (temperature, top_k, top_p), members in sampled.items():
        u = torch.tensor([rows[i].draw() for i in members], dtype=torch.float64)
        index = torch.tensor(members, device=logits.device)
        chosen = logits if len(members) == len(rows) else logits[index]
        tokens[index] = draw(chosen, u.to(logits.device), temperature=temperature, top_k=top_k, top_p=top_p)
    return tokens


def settings(sampling: Sampling, step: int) -> tuple[float, int, float]:
    """Return ``(temperature, top_k, top_p)`` at ``step``; those of the first token may differ (FIRE)."""
    temperature, top_k = sampling.temperature, sampling.top_k
    if step == 0:
        temperature = temperature if sampling.first_temperature is None else sampling.first_temperature
        top_k = top_k if sampling.first_top_k is None else sampling.first_top_k
    return temperature, top_k, sampling.top_p


def draw(logits: Tensor, u: Tensor, *, temperature: float, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """Return tokens (R,) for ``logits`` (R, V) and uniform numbers ``u`` (R,).

    Filters act in the usual order: temperature, the ``top_k`` likeliest, then the smallest set of tokens
    whose probability reaches ``top_p``. Tokens are ordered by probability, equal ones by id; a row's token is
    the first at which the cumulative probability exceeds ``u``.
    """
    vocabulary = logits.shape[-1]
    tokens = torch.empty(len(logits), dtype=torch.long, device=logits.device)
    rest = torch.arange(len(logits), device=logits.device)
    for head in (*HEADS, vocabulary):  # few rows need more than the likeliest tokens
        options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        tokens[rest], decided = _draw_among(max(head, top_k), logits[rest], u[rest], **options)
        rest = rest[~decided]
        if head >= vocabulary or not len(rest):
            break
    return tokens


def _draw_among(
    head: int, logits: Tensor, u: Tensor, *, temperature: float, top_k: int, top_p: float
) -> tuple[Tensor, Tensor]:
    """Return tokens (R,), and whether the ``head`` likeliest tokens decide them."""
    head, vocabulary = min(head, logits.shape[-1]), logits.shape[-1]
    count = min(top_k, vocabulary) if top_k > 0 else vocabulary
    values, order = _likeliest(logits, head)
    highest = values[:, :1].double()
    weights = (values[:, :count].double() - highest).div_(temperature).exp_()
    total = weights.sum(-1, keepdim=True)
    if (
        head < count
    ):  # row by row, since a sum over rows may differ in its last bits from one over a row alone
        tops = zip(logits, highest, strict=True)
        total = torch.stack([(row.double() - top).div_(temperature).exp_().sum() for row, top in tops])[
            :, None
        ]
    probabilities = weights / total
    cumulative = probabilities.cumsum(-1)
    kept = cumulative - probabilities < top_p if top_p < 1 else torch.ones_like(cumulative, dtype=torch.bool)
    kept[:, 0] = True
    mass = cumulative.where(kept, 0.0).amax(-1, keepdim=True) if top_p < 1 else 1.0
    place = torch.searchsorted(cumulative, u.to(cumulative).unsqueeze(-1) * mass, right=True).squeeze(-1)
    # Of equal values at the end of the head, others may come first in the order of ids.
    decided = place < ((values > values[:, -1:]).sum(-1) if head < vocabulary else head)
    if top_p < 1 and head < count:
        decided &= ~kept.all(-1)  # the set ends within the head
    last = (kept & (probabilities > 0)).sum(-1) - 1
    return order.gather(-1, place.minimum(last).unsqueeze(-1)).squeeze(-1), decided


def _likeliest(logits: Tensor, head: int) -> tuple[Tensor, Tensor]:
    """The ``head`` largest of ``logits`` (R, V) and their ids, (R, head) each; equal ones in order of ids."""
    if head == logits.shape[-1]:
        values, order = logits.sort(dim=-1, descending=True, stable=True)
        return values, order
    ids = logits.topk(head, sorted=False).indices.sort(dim=-1).values
    values, by_value = logits.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(-1, by_value)
