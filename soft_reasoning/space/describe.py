"""What a trace says of soft tokens, which have no text: the tokens that are near them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engines.base import Engine
from soft_reasoning.search.embedding import Subspace

NEAREST = 3
"""Number of nearest tokens for each soft token."""


def describe_tokens(
    subspace: Subspace, points: Tensor, likely: Sequence[str], engine: Engine
) -> list[list[dict[str, Any]]]:
    """For each of ``points`` (n, d) and soft token: its nearest tokens by cosine, and its largest weights.

    There are weights if a soft token is a mixture of tokens, whose texts are ``likely``.
    """
    soft, weights, decode = subspace(points), subspace.weights(points), engine.tokenizer.decode
    nearest = iter(engine.nearest_tokens(soft.flatten(0, 1), NEAREST))

    def entry(i: int, j: int) -> dict[str, Any]:
        tokens = [[decode([token]), round(cosine, 4)] for token, cosine in next(nearest)]
        if weights is None:
            return {"nearest": tokens}
        heaviest = torch.topk(weights[i, j].abs(), min(NEAREST, weights.shape[-1])).indices.tolist()
        shares = [[likely[t], round(float(weights[i, j, t]), 4)] for t in heaviest]
        return {"nearest": tokens, "weights": shares}

    return [[entry(i, j) for j in range(soft.shape[1])] for i in range(len(soft))]
