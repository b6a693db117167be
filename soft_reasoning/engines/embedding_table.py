"""A model's embedding table: tokens to embeddings, and points to the tokens nearest to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from soft_reasoning.types import UserError

CHUNK = 8192
"""Rows that are converted to float32 at a time: a table of 128,000 tokens is gigabytes in float32."""


class EmbeddingTable:
    """The embeddings of all tokens.

    Args:
        lookup: Token ids (1, n) to embeddings (1, n, D), as the model itself gets them (scale included).
        weight: (V, D) rows that ``lookup`` returns, up to a common scale.
    """

    def __init__(self, lookup: Callable[[Tensor], Tensor], weight: Tensor) -> None:
        self._lookup = lookup
        self.weight: Tensor = weight
        self._norms: Tensor | None = None

    def __len__(self) -> int:
        return self.weight.shape[0]

    @torch.inference_mode()
    def embed(self, ids: Sequence[int]) -> Tensor:
        """Return embeddings (len(ids), D) float32 on the CPU."""
        rows = self._lookup(torch.tensor([list(ids)], dtype=torch.long, device=self.weight.device))[0]
        return rows.float().cpu().clone()

    def rms(self) -> float:
        """Return the root mean square over the entries.

        Raises:
            UserError: If one is NaN or infinite.
        """
        total, count = 0.0, 0
        for start in range(0, len(self), CHUNK):
            some = self.embed(range(start, min(start + CHUNK, len(self)))).double()
            broken = (~some.isfinite().all(-1)).nonzero().flatten()
            if len(broken):
                token = start + int(broken[0])
                raise UserError(
                    f"expected finite embeddings, got NaN or infinity in that of token {token}; the weights "
                    "are damaged, or overflow in half precision: take model.dtype=bfloat16"
                )
            total, count = total + float(some.square().sum()), count + some.numel()
        return (total / count) ** 0.5

    @torch.inference_mode()
    def nearest(self, x: Tensor, count: int) -> list[list[tuple[int, float]]]:
        """Return the ``count`` tokens most similar by cosine to each row of ``x`` (n, D), best first."""
        table = self.weight.split(CHUNK)
        if self._norms is None:
            self._norms = torch.cat([some.float().norm(dim=-1) for some in table]).clamp_min(1e-12)
        x = torch.nn.functional.normalize(x.float().to(self.weight.device), dim=-1)
        cosines = torch.cat([x @ some.float().T for some in table], dim=-1) / self._norms
        best = cosines.topk(min(count, len(self)), dim=-1)
        return [
            list(zip(tokens, values, strict=True))
            for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]
