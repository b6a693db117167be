"""Drawing tokens: temperature, top-k and top-p, from uniform numbers that belong to a request."""

from __future__ import annotations

import torch
from torch import Tensor

from soft_reasoning.types import Request, Sampling


def draws_of(request: Request) -> Tensor:
    """Return the uniform numbers (max_new_tokens,) float64 from which ``request``'s tokens are drawn."""
    generator = torch.Generator().manual_seed(request.seed)
    return torch.rand(request.max_new_tokens, generator=generator, dtype=torch.float64)


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
