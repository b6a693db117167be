"""Attention over a tree of keys and values: shared blocks, kept once, and each row's own buffer.

Each part that a row reads (see :mod:`soft_reasoning.engines.kv`) gives an output and the logarithm of its
softmax denominator, and the parts are merged by weights exp(lse_part - lse_all), which is exact.
:func:`tree_attention` is registered with transformers and stands in for a model's attention while a
:class:`TreeCache` is active.

On the CPU every shape is chosen so that a row's result is bitwise independent of its neighbours: matrix
products whose height depends on them get at least ``MIN_ROWS`` rows, key counts are multiples of ``TILE``
(masked keys add exact zeros), and sums over keys run in blocks of ``KEY_BLOCK``, beyond which the library
splits a sum by its length. Measured with torch 2.13 and MKL, on one and two threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from soft_reasoning.engines.kv import MASKED, TreeCache, Wiring, round_up

NAME = "soft_reasoning_tree"
MIN_ROWS = 4
KEY_BLOCK = 128

_ACTIVE: ContextVar[TreeCache] = ContextVar("active tree cache")


@contextmanager
def active(config: Any, cache: TreeCache) -> Iterator[None]:
    """Let the model of ``config`` attend through ``cache`` inside the block."""
    before = config._attn_implementation
    token = _ACTIVE.set(cache)
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before
        _ACTIVE.reset(token)


def tree_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of ``query`` (R, Hq, T, d) over the active cache; (R, T, Hq, dv), as transformers wants it.

    ``key`` and ``value`` (R, Hkv, L, d) are the own buffers that the cache's ``update`` returned.
    """
    if attention_mask is not None:
        raise NotImplementedError("the model brings an attention mask of its own")
    cache = _ACTIVE.get()
    layer = module.layer_idx
    rows, heads, steps, width = query.shape
    repeat = heads // key.shape[1]
    window = _window(module, kwargs, cache)
    scale = width**-0.5 if scaling is None else scaling
    q = (query * scale).reshape(rows, key.shape[1], repeat * steps, width)
    outputs = [_attend(q, key.transpose(2, 3), value, cache.own_bias(window, repeat), softcap)]
    for part, (block, wiring) in enumerate(cache.parts):
        bias = cache.shared_bias(part, window, repeat)
        outputs.append(_attend_shared(q, block.keys[layer], block.values[layer], wiring, bias, softcap))
    out = _merge(outputs, None if s_aux is None else _sink(s_aux, key.shape[1], steps))
    return out.reshape(rows, heads, steps, -1).transpose(1, 2).contiguous(), None


def _window(module: Any, kwargs: dict[str, Any], cache: TreeCache) -> int | None:
    """The layer's sliding window, or None where it has none or the batch is too short to feel it."""
    window = kwargs.get("sliding_window")
    kinds = getattr(module.config, "layer_types", None)
    if "sliding_window" not in kwargs and kinds and kinds[module.layer_idx] == "sliding_attention":
        window = module.config.sliding_window
    return window if window is not None and cache.longest > window else None


def _attend(
    q: Tensor, keys: Tensor, v: Tensor, bias: Tensor, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """Output (B, H, M, dv) and log-sum-exp (B, H, M, 1) of ``q`` (B, H, M, d) over ``keys`` (B, H, d, L)."""
    batch, heads, m, width = q.shape
    scores = torch.bmm(q.reshape(batch * heads, m, width), keys.reshape(batch * heads, width, -1)).float()
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores.view(batch, heads, m, -1)
    scores += bias
    weights = scores.softmax(-1)
    # The largest weight is 1 / sum(exp(score - max)): the log-sum-exp without a second pass of exp.
    lse = scores.amax(-1, keepdim=True) - weights.amax(-1, keepdim=True).log()
    out = _weighted_sum(weights.flatten(0, 1).to(v.dtype), v.reshape(batch * heads, -1, v.shape[-1]))
    return out.view(batch, heads, m, -1), lse


def _weighted_sum(weights: Tensor, v: Tensor) -> Tensor:
    """weights (B, M, L) @ v (B, L, dv), in blocks of keys on the CPU."""
    if weights.device.type != "cpu" or weights.shape[-1] <= KEY_BLOCK:
        return torch.bmm(weights, v)
    out = torch.bmm(weights[:, :, :KEY_BLOCK], v[:, :KEY_BLOCK])
    for at in range(KEY_BLOCK, weights.shape[-1], KEY_BLOCK):
        out.baddbmm_(weights[:, :, at : at + KEY_BLOCK], v[:, at : at + KEY_BLOCK])
    return out


def _attend_shared(
    q: Tensor, keys: Tensor, v: Tensor, wiring: Wiring, bias: Tensor, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """As :func:`_attend`, for a block: the rows of one prefix are the queries of one matrix product."""
    _, heads, m, width = q.shape
    prefixes, tall = keys.shape[0], wiring.width * m
    grouped = q[wiring.slots].transpose(1, 2).reshape(prefixes, heads, tall, width)
    # A lone product is split over threads by its rows, so there an odd count would show as well.
    if tall < MIN_ROWS or prefixes * heads == 1:
        spare = round_up(tall, MIN_ROWS) - tall
        grouped = torch.nn.functional.pad(grouped, (0, 0, 0, spare))
        if bias.shape[2] > 1:
            bias = torch.nn.functional.pad(bias, (0, 0, 0, spare))
    out, lse = _attend(grouped, keys, v, bias, softcap)

    def back(x: Tensor) -> Tensor:
        x = x[:, :, :tall].reshape(prefixes, heads, wiring.width, m, -1).transpose(1, 2).flatten(0, 1)
        return x[wiring.places]

    out, lse = back(out), back(lse)
    return out, lse if wiring.absent is None else lse.masked_fill(wiring.absent, MASKED)


def _sink(s_aux: Tensor, heads: int, steps: int) -> Tensor:
    """(1, Hkv, repeat * T, 1): an attention sink is a part that adds weight and no value."""
    return s_aux.float().view(1, heads, -1, 1).repeat_interleave(steps, dim=2)


def _merge(parts: list[tuple[Tensor, Tensor]], sink: Tensor | None) -> Tensor:
    if len(parts) == 1 and sink is None:
        return parts[0][0]
    total = parts[0][1]
    for _, lse in parts[1:]:
        total = torch.logaddexp(total, lse)
    if sink is not None:
        total = torch.logaddexp(total, sink)
    out = parts[0][0] * (parts[0][1] - total).exp().to(parts[0][0].dtype)
    for part, lse in parts[1:]:
        out = out + part * (lse - total).exp().to(part.dtype)
    return out


AttentionInterface.register(NAME, tree_attention)
