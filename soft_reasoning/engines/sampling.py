"""Choosing tokens: greedy and sampled rows side by side, each sampled row on a stream of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from soft_reasoning.types import Request, Sampling


class Chooser:
    """Chooses the next token of every row of a batch.

    A row's draws are uniform numbers drawn before its first token from a generator seeded by the
    request's own seed, turned into tokens by inverting the cumulative distribution. So what a row samples
    depends on its request and its logits, never on its neighbours.
    """

    def __init__(self, requests: Sequence[Request], eos: Sequence[int], vocabulary: int) -> None:
        self._requests = list(requests)
        self._least = [r.min_new_tokens for r in requests]
        self._eos = [token for token in eos if token < vocabulary]
        self._draws = [draws_of(r) if is_sampled(r.sampling) else None for r in requests]
        self._sampled = any(draws is not None for draws in self._draws)

    def choose(self, logits: Tensor, step: int, rows: Sequence[int]) -> Tensor:
        """(R,) token ids for ``logits`` (R, V) float32; ``rows[i]`` is the request of row i."""
        if self._eos and step < max(self._least):
            forced = [i for i, r in enumerate(rows) if step < self._least[r]]
            logits = logits.clone()
            logits[torch.tensor(forced).unsqueeze(1), torch.tensor(self._eos)] = -torch.inf
        tokens = logits.argmax(-1)
        if not self._sampled:
            return tokens
        sampled: dict[tuple[float, int, float], list[int]] = {}
        for i, r in enumerate(rows):
            if self._draws[r] is not None:
                sampled.setdefault(settings(self._requests[r].sampling, step), []).append(i)
        for (temperature, top_k, top_p), where in sampled.items():
            if temperature == 0:
                continue
            # A row that is over but not yet dropped has no draws left; its token is ignored.
            u = torch.stack([self._draws[rows[i]][min(step, len(self._draws[rows[i]]) - 1)] for i in where])
            u = u.to(logits.device)
            index = torch.tensor(where, device=logits.device)
            tokens[index] = draw(logits[index], u, temperature=temperature, top_k=top_k, top_p=top_p)
        return tokens


def draws_of(request: Request) -> Tensor:
    """(max_new_tokens,) float64: the uniform numbers that ``request``'s tokens are drawn with."""
    generator = torch.Generator().manual_seed(request.seed)
    return torch.rand(request.max_new_tokens, generator=generator, dtype=torch.float64)


def is_sampled(sampling: Sampling) -> bool:
    return sampling.temperature > 0 or bool(sampling.first_temperature)


def settings(sampling: Sampling, step: int) -> tuple[float, int, float]:
    """``(temperature, top_k, top_p)`` in force at ``step``; the first token may have its own (FIRE)."""
    temperature, top_k = sampling.temperature, sampling.top_k
    if step == 0:
        temperature = temperature if sampling.first_temperature is None else sampling.first_temperature
        top_k = top_k if sampling.first_top_k is None else sampling.first_top_k
    return temperature, top_k, sampling.top_p


def draw(logits: Tensor, u: Tensor, *, temperature: float, top_k: int = 0, top_p: float = 1.0) -> Tensor:
    """(R,) tokens for ``logits`` (R, V) and uniform numbers ``u`` (R,).

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
