"""The next tokens of running requests, chosen from their logits: filtered and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from soft_reasoning.engine.devices import on_device
from soft_reasoning.engine.grammar import allowed as fitting
from soft_reasoning.engine.running import RunningRequest
from soft_reasoning.types import Sampling

HEADS = (64, 2048)
"""Numbers of likeliest tokens among which most draws fall, and nearly all of the rest."""


class Sampled(NamedTuple):
    """A row's next token, its log-probability, and the log-sum-exp of the row's logits."""

    token: int
    logprob: float
    normaliser: float


def sample_tokens(logits: Tensor, rows: Sequence[RunningRequest], eos: Sequence[int]) -> list[Sampled]:
    """Choose the next token of every row; a row's token means nothing if its ``normaliser`` is not finite.

    A row's uniform numbers come from a generator with the seed of its request and are turned into tokens by
    inverting the cumulative distribution. So a row's sample depends on its request and its logits alone.

    Args:
        logits: (R, V) float32.
        rows: The R requests with their tokens so far.
        eos: End tokens, which no row may choose before its ``min_new_tokens``.
    """
    if logits.device.type == "mps":  # which has no float64
        logits = logits.cpu()
    device, normalisers, allowed = logits.device, logits.logsumexp(-1), logits
    forced = [i for i, row in enumerate(rows) if len(row.ids) < row.request.min_new_tokens]
    ends = [token for token in eos if token < logits.shape[-1]]
    guided = [i for i, row in enumerate(rows) if row.grammar is not None]
    if guided or forced and ends:
        allowed = logits.clone()
    for i in guided:
        allowed[i, ~fitting(rows[i].grammar, logits.shape[-1]).to(device)] = -torch.inf
    if forced and ends:
        allowed[on_device(forced, device)[:, None], on_device(ends, device)] = -torch.inf
    sampled: dict[tuple[float, int, float], list[int]] = {}
    for i, row in enumerate(rows):
        parameters = settings(row.request.sampling, len(row.ids))
        if parameters[0] > 0:
            sampled.setdefault(parameters, []).append(i)
    greedy = len(rows) > sum(map(len, sampled.values()))
    tokens = allowed.argmax(-1) if greedy else logits.new_empty(len(rows), dtype=torch.long)
    for parameters, members in sampled.items():
        index = on_device(members, device)
        u = on_device([rows[i].draw() for i in members], device, torch.float64)
        tokens[index] = draw(allowed if len(members) == len(rows) else allowed[index], u, *parameters)
    logprobs = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - normalisers
    columns = torch.stack([x.double() for x in (tokens, logprobs, normalisers)]).tolist()
    return [Sampled(int(token), *rest) for token, *rest in zip(*columns, strict=True)]


def settings(sampling: Sampling, step: int) -> tuple[float, int, float]:
    """Return ``(temperature, top_k, top_p)`` at ``step``; those of the first token may differ (FIRE)."""
    temperature, top_k = sampling.temperature, sampling.top_k
    if step == 0:
        temperature = temperature if sampling.first_temperature is None else sampling.first_temperature
        top_k = top_k if sampling.first_top_k is None else sampling.first_top_k
    return temperature, top_k, sampling.top_p


def draw(logits: Tensor, u: Tensor, temperature: float, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """Return tokens (R,) for ``logits`` (R, V) and uniform numbers ``u`` (R,).

    Filters act in the usual order: temperature, the ``top_k`` likeliest, then the smallest set of tokens
    whose probability reaches ``top_p``. Tokens are ordered by probability, equal ones by id; a row's token is
    the first at which the cumulative probability exceeds ``u``. It is looked for among the ``HEADS``
    likeliest tokens before all are sorted.
    """
    vocabulary = logits.shape[-1]
    tokens = torch.empty(len(logits), dtype=torch.long, device=logits.device)
    rest = torch.arange(len(logits), device=logits.device)
    for head in (*HEADS, vocabulary):
        remaining = logits if len(rest) == len(logits) else logits[rest]
        tokens[rest], decided = _draw_among(head, remaining, u[rest], temperature, top_k, top_p)
        rest = rest[~decided]
        if head >= vocabulary or not len(rest):
            break
    return tokens


def _draw_among(
    head: int, logits: Tensor, u: Tensor, temperature: float, top_k: int, top_p: float
) -> tuple[Tensor, Tensor]:
    """Return tokens (R,), and whether the ``head`` (or ``top_k``) likeliest tokens decide them."""
    vocabulary = logits.shape[-1]
    head = min(max(head, top_k), vocabulary)
    count = min(top_k, vocabulary) if top_k > 0 else vocabulary
    values, order = _likeliest(logits, head)
    highest = values[:, :1].double()
    weights = (values[:, :count].double() - highest).div_(temperature).exp_()
    total = weights.sum(-1, keepdim=True) if head >= count else _total(logits, highest, temperature)
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
    last = ((kept & (probabilities > 0)).sum(-1) - 1).clamp_min(0)  # of a row with NaN none is
    return order.gather(-1, place.minimum(last).unsqueeze(-1)).squeeze(-1), decided


def _total(logits: Tensor, highest: Tensor, temperature: float) -> Tensor:
    """(R, 1) float64 sums of the weights of all tokens.

    Row by row, since a sum over rows may differ in its last bits from one over a row alone.
    """
    tops = zip(logits, highest, strict=True)
    return torch.stack([(row.double() - top).div_(temperature).exp_().sum(-1, True) for row, top in tops])


def _likeliest(logits: Tensor, head: int) -> tuple[Tensor, Tensor]:
    """The ``head`` largest of ``logits`` (R, V) and their ids, (R, head) each; equal ones in order of ids."""
    if head == logits.shape[-1]:
        values, order = logits.sort(dim=-1, descending=True, stable=True)
        return values, order
    ids = logits.topk(head, sorted=False).indices.sort(dim=-1).values
    values, by_value = logits.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    return values, ids.gather(-1, by_value)
