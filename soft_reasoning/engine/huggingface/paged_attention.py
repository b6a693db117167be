"""Paged attention: one new token per sequence attends over its blocks.

A GPU runs the kernel in ``paged_kernel.py``. Elsewhere PyTorch computes the same, for tests.
"""

from __future__ import annotations

import torch
from torch import Tensor

PART = 8
"""Blocks that one program of the kernel reads."""


def attend_blocks(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    positions: Tensor,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention of R tokens, one of each sequence, over their sequences' blocks.

    Scores, softmax and sums are float32. What lies at positions that a token does not see has no effect, even
    if it is NaN.

    Args:
        q: (R, Hq, d).
        keys: (blocks, Hkv, d, BLOCK) and ``values`` (blocks, Hkv, BLOCK, dv), a layer of the pool.
        table: (R, W) int32: each sequence's blocks in order, then any blocks.
        positions: (R,) the tokens' positions; the last position that a token sees is its own.
        scale: The factor of the scores.
        window: How many positions a token sees, including its own; None for all.
        softcap: Scores s become softcap * tanh(s / softcap).
        sinks: (Hq,) logits that take weight and add no value.

    Returns:
        (R, Hq, dv).
    """
    if q.device.type == "cuda":
        from soft_reasoning.engine.huggingface import paged_kernel  # without a GPU there may be no Triton

        return paged_kernel.attend_blocks(q, keys, values, table, positions, scale, window, softcap, sinks)
    rows, (_, heads, _, block) = len(q), keys.shape
    k = keys[table].permute(0, 2, 3, 1, 4).flatten(3).float()  # (R, Hkv, d, W * BLOCK)
    v = values[table].transpose(1, 2).flatten(2, 3).float()
    back = positions[:, None] - torch.arange(table.shape[1] * block, device=q.device)
    seen = (back >= 0) if window is None else (back >= 0) & (back < window)
    k, v = k.where(seen[:, None, None], 0.0), v.where(seen[:, None, :, None], 0.0)
    scores = q.float().view(rows, heads, -1, q.shape[2]) @ k * scale
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    scores = scores.masked_fill(~seen[:, None, None], -torch.inf)
    if sinks is not None:
        extra = sinks.float().view(1, heads, -1, 1).expand(rows, -1, -1, -1)
        scores = torch.cat([scores, extra], -1)
    weights = scores.softmax(-1)[..., : v.shape[2]]
    return (weights @ v).flatten(1, 2).to(q.dtype)
