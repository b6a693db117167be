"""Informed subspaces: the search moves among the model's likeliest first tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from soft_reasoning.checks import real, whole
from soft_reasoning.search.embedding import MAX_DIM, MAX_SIGMA


def _likeliest(tokens: Tensor | None, count: int, anchor: Tensor) -> Tensor:
    """(count, D) or (m, count, D) float64: the first ``count`` of the likely tokens' embeddings."""
    if tokens is None or tokens.shape[-2] < count or tokens.shape[-1] != anchor.shape[-1]:
        came = None if tokens is None else tuple(tokens.shape)
        width = anchor.shape[-1]
        raise ValueError(f"expected embeddings of {count} likely tokens of width {width}, got {came}")
    return tokens[..., :count, :].double()


class SimplexSubspace:
    """x = sum_i softmax(tau u)_i e_i, over the same tokens for every soft token (or (m, t, D) of them)."""

    def __init__(self, tokens: Tensor, count: int, dim: int, tau: float):
        self.dim: int = count * dim
        self._tokens, self._count, self._each, self._tau = tokens, count, dim, tau

    def weights(self, U: Tensor) -> Tensor:
        if U.ndim != 2 or U.shape[1] != self.dim:
            raise ValueError(f"expected points of shape (n, {self.dim}), got {tuple(U.shape)}")
        return torch.softmax(self._tau * U.double().reshape(len(U), self._count, self._each), dim=-1)

    def __call__(self, U: Tensor) -> Tensor:
        return (self.weights(U).unsqueeze(-2) @ self._tokens).squeeze(-2).float()  # (n, m, D)


class TokenSimplexEmbedding:
    """The mixture of the ``dim`` likeliest first tokens' embeddings with weights softmax(tau u).

    ``tau`` sets how sharply u ~ N(0, I) picks: 0 gives their mean, large values single tokens.
    """

    def __init__(self, dim: int = 25, tau: float = 6.0):
        self.dim: int = whole("dim", dim, least=1, most=MAX_DIM)
        self.tau: float = real("tau", tau, least=0.0, most=MAX_SIGMA)
        self.likely_tokens: int = self.dim

    def bind(self, *, anchor: Tensor, rms: float, seed: int, tokens: Tensor | None = None) -> SimplexSubspace:
        return SimplexSubspace(_likeliest(tokens, self.dim, anchor), len(anchor), self.dim, self.tau)
