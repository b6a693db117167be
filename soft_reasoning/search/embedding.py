"""Subspaces of the input embeddings: a random projection around the anchor, or mixtures of likely tokens.

The search runs over u in R^d, u ~ N(0, I) at the start; the model sees x in R^D (paper, Dimension
Reduction). The projection A depends only on a seed, so every problem of a run is searched in the same
directions around its own anchor z. The effective-dimension theorem then applies to the objective translated
by z.
"""

# torch.linalg has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from soft_reasoning.checks import choice, real, whole
from soft_reasoning.types import generator_for

ANCHORS = ("first_token", "none")
UNITS = ("rms", "absolute")
SIGMA = 2.0
MAX_DIM = 2**14
"""The width of the widest models' embeddings, which bounds the dimensions of a linear subspace."""
MAX_SIGMA = 1e9
"""With it the squares of soft tokens, which a model's norms compute, stay finite in float32."""


class Subspace(Protocol):
    """An embedding bound to a model and a problem."""

    dim: int
    """Dimensions of the search: the embedding's ``dim`` for each of the m soft tokens."""

    def __call__(self, U: Tensor) -> Tensor:
        """(n, dim) float64 points to (n, m, D) float32 soft tokens."""
        ...

    def weights(self, U: Tensor) -> Tensor | None:
        """Return weights (n, m, t) of the likely tokens in each soft token; None if it is not a mixture."""
        ...


class Embedding(Protocol):
    """A configured family of subspaces."""

    @property
    def dim(self) -> int:
        """Search dimensions for each soft token."""
        ...

    @property
    def likely_tokens(self) -> int:
        """Number of the model's likeliest first tokens that ``bind`` needs."""
        ...

    def bind(self, *, anchor: Tensor, rms: float, seed: int, tokens: Tensor | None = None) -> Subspace:
        """Return the subspace around ``anchor``.

        Args:
            anchor: (m, D) embeddings of the anchors.
            rms: Root mean square of the embedding table.
            seed: The run's seed.
            tokens: (t, D) embeddings of the likeliest first tokens, likeliest first.
        """
        ...


def _per_token(U: Tensor, dim: int, width: int) -> Tensor:
    """(n, m, width) float64: the part of width soft token in points ``U`` (n, dim)."""
    if U.ndim != 2 or U.shape[1] != dim:
        raise ValueError(f"expected points of shape (n, {dim}), got {tuple(U.shape)}")
    return U.double().reshape(len(U), -1, width)


class LinearSubspace:
    """x_j = z_j + scale A u_j for each of m soft tokens; ``A`` is (D, d) float64."""

    def __init__(self, anchor: Tensor, A: Tensor, scale: float):
        self.anchor: Tensor = anchor.double()  # (m, D)
        self.dim: int = len(anchor) * A.shape[1]
        self._A, self._scale = A, scale

    def __call__(self, U: Tensor) -> Tensor:
        u = _per_token(U, self.dim, self._A.shape[1])
        return (self.anchor + self._scale * (u @ self._A.T)).float()

    def weights(self, U: Tensor) -> Tensor | None:
        return None


@dataclass(frozen=True)
class GaussianEmbedding:
    """REMBO's random embedding: x = z + sigma A u / sqrt(d), with i.i.d. N(0, 1) entries of A (D, d).

    Over A and u ~ N(0, I) every coordinate of x - z has variance sigma^2.

    Args:
        dim: d, search dimensions per soft token.
        sigma: Standard deviation of a coordinate of x - z. None is 2 in the units ``rms``, and sqrt(d) in
            ``absolute`` units, which is x = z + A u without a scale.
        units: ``rms`` if sigma is in units of the embedding table's root mean square, else ``absolute``.
        anchor: ``first_token``, or ``none`` for z = 0.
        seed: Seed of A; None is the run's seed.
    """

    dim: int = 50
    sigma: float | None = None
    units: str = "rms"
    anchor: str = "first_token"
    seed: int | None = None
    likely_tokens: ClassVar[int] = 0

    def __post_init__(self) -> None:
        whole("dim", self.dim, least=1, most=MAX_DIM)
        if self.sigma is not None:
            real("sigma", self.sigma, least=0.0, most=MAX_SIGMA)
        choice("units", self.units, UNITS)
        choice("anchor", self.anchor, ANCHORS)
        if self.seed is not None:
            whole("seed", self.seed, least=0)

    def bind(self, *, anchor: Tensor, rms: float, seed: int, tokens: Tensor | None = None) -> LinearSubspace:
        default, unit = (SIGMA, rms) if self.units == "rms" else (math.sqrt(self.dim), 1.0)
        scale = (default if self.sigma is None else self.sigma) * unit
        start = anchor if self.anchor == "first_token" else torch.zeros_like(anchor)
        seed = seed if self.seed is None else self.seed
        A = gaussian_matrix(seed, anchor.shape[1], self.dim)
        return LinearSubspace(start, A, scale / math.sqrt(self.dim))


@lru_cache(maxsize=4)
def gaussian_matrix(seed: int, width: int, dim: int) -> Tensor:
    """(width, dim) float64 standard normal entries, which depend only on the arguments."""
    return torch.randn(width, dim, dtype=torch.float64, generator=generator_for(seed, "projection"))


class SimplexSubspace:
    """x = sum_i softmax(tau u)_i e_i for each of m soft tokens; ``tokens`` are (t, D) float64."""

    def __init__(self, tokens: Tensor, count: int, tau: float):
        self.dim: int = count * len(tokens)
        self._tokens, self._tau = tokens, tau

    def weights(self, U: Tensor) -> Tensor:
        return torch.softmax(self._tau * _per_token(U, self.dim, len(self._tokens)), dim=-1)

    def __call__(self, U: Tensor) -> Tensor:
        return (self.weights(U).unsqueeze(-2) @ self._tokens).squeeze(-2).float()  # (n, m, D)


@dataclass(frozen=True)
class TokenSimplexEmbedding:
    """The mixture of the ``dim`` likeliest first tokens' embeddings with weights softmax(tau u).

    ``tau`` sets how sharply u ~ N(0, I) selects tokens: 0 gives their mean, large values single tokens.
    """

    dim: int = 25
    tau: float = 6.0

    def __post_init__(self) -> None:
        whole("dim", self.dim, least=1, most=MAX_DIM)
        real("tau", self.tau, least=0.0, most=MAX_SIGMA)

    @property
    def likely_tokens(self) -> int:
        return self.dim

    def bind(self, *, anchor: Tensor, rms: float, seed: int, tokens: Tensor | None = None) -> SimplexSubspace:
        if tokens is None or len(tokens) < self.dim:
            count = 0 if tokens is None else len(tokens)
            raise ValueError(f"expected embeddings of {self.dim} likely tokens, got {count}")
        return SimplexSubspace(tokens[: self.dim].double(), len(anchor), self.tau)
