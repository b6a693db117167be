"""Choosing tokens: greedy and sampled rows in one batch, each sampled row with its own random stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from soft_reasoning.types import Request, Sampling


class Row(Protocol):
    """A request in progress, and the ``ids`` generated so far."""

    request: Request
    ids: list[int]

    @property
    def draws(self) -> list[float]:
        """One uniform number per token."""
        ...


def choose(logits: Tensor, rows: Sequence[Row], eos: Sequence[int]) -> Tensor:
    """Choose the next token of every row.

    A row's uniform numbers come from a generator seeded by its own request and are turned into tokens by
    inverting the cumulative distribution. So a row's sample depends on its request and its logits alone.

    Args:
        logits: (R, V) float32.
        rows: the R requests and what was generated for them.
        eos: end tokens, which no row may choose before its ``min_new_tokens``.

    Returns:
        (R,) token ids.
    """
    forced = [i for i, row in enumerate(rows) if len(row.ids) < row.request.min_new_tokens]
    ends = [token for token in eos if token < logits.shape[-1]]
    if forced and ends:
        logits = logits.clone()
        logits[torch.tensor(forced).unsqueeze(1), torch.tensor(ends)] = -torch.inf
    tokens = logits.argmax(-1)
    sampled: dict[tuple[float, int, float], list[int]] = {}
    for i, row in enumerate(rows):
        if is_sampled(row.request.sampling):
            sampled.setdefault(settings(row.request.sampling, len(row.ids)), []).append(i)
    for (temperature, top_k, top_p), some in sampled.items():
        if temperature == 0:
            continue
        u = torch.tensor([rows[i].draws[len(rows[i].ids)] for i in some], dtype=torch.float64)
        index = torch.tensor(some, device=logits.device)
        tokens[index] = draw(
            logits[index], u.to(logits.device), temperature=temperature, top_k=top_k, top_p=top_p
        )
    return tokens


def adjusted(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """Return ``logits`` (R, V) as the requests that adjust theirs want them."""
    changed = [i for i, row in enumerate(rows) if row.request.adjust is not None]
    if changed:
        logits = logits.clone()
    for i in changed:
        adjust = rows[i].request.adjust
        logits[i] = logits[i] if adjust is None else adjust(rows[i].ids, logits[i])
    return logits


def draws_of(request: Request) -> Tensor:
    """Return the uniform numbers (max_new_tokens,) float64 from which ``request``'s tokens are drawn."""
    generator = torch.Generator().manual_seed(request.seed)
    return torch.rand(request.max_new_tokens, generator=generator, dtype=torch.float64)


def is_sampled(sampling: Sampling) -> bool:
    """Whether any token is drawn at random."""
    return sampling.temperature > 0 or bool(sampling.first_temperature)


def settings(sampling: Sampling, step: int) -> tuple[float, int, float]:
    """Return ``(temperature, top_k, top_p)`` at ``step``; the first token may have its own (FIRE)."""
    temperature, top_k = sampling.temperature, sampling.top_k
    if step == 0:
        temperature = temperature if sampling.first_temperature is None else sampling.first_temperature
        top_k = top_k if sampling.first_top_k is None else sampling.first_top_k
    return temperature, top_k, sampling.top_p


def draw(logits: Tensor, u: Tensor, *, temperature: float, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """Return tokens (R,) for ``logits`` (R, V) and uniform numbers ``u`` (R,).

    Filters act in the usual order: temperature, the ``top_k`` likeliest, then the smallest set of tokens
    whose probability reaches ``top_p``.
    """
    count = min(top_k, logits.shape[-1]) if top_k > 0 else logits.shape[-1]
    # Stable, so that tied logits fall in the same order whatever the other rows hold.
    values, order = logits.double().sort(dim=-1, descending=True, stable=True)
    values, order = values[:, :count], order[:, :count]
    probabilities = (values / temperature).softmax(-1)
    if top_p < 1:
        before = probabilities.cumsum(-1) - probabilities
        probabilities = probabilities.masked_fill(before >= top_p, 0.0)
        probabilities[:, 0] = probabilities[:, 0].clamp_min(1e-300)
    cumulative = probabilities.cumsum(-1)
    target = (u.to(cumulative) * cumulative[:, -1]).unsqueeze(-1)
    kept = (probabilities > 0).sum(-1, keepdim=True)
    place = torch.searchsorted(cumulative, target, right=True).minimum(kept - 1)
    return order.gather(-1, place).squeeze(-1)
