"""Attention over a tree of keys and values: shared blocks, kept once, and each row's own.

Each part that a row reads (see :mod:`soft_reasoning.engines.kv`) gives an output and the logarithm of its
softmax denominator, and the parts are merged by weights exp(lse_part - lse_all), which is exact.
:func:`tree_attention` is registered with transformers and stands in for a model's attention while a pass
(:mod:`soft_reasoning.engines.passes`) is active.

On the CPU every shape is chosen so that a row's result is bitwise independent of its neighbours: matrix
products whose height depends on them get at least ``MIN_ROWS`` rows, key counts that depend on them are
multiples of ``TILE`` (masked keys add exact zeros), and sums over such keys run in blocks of ``KEY_BLOCK``,
beyond which the library splits a sum by its length. Measured with torch 2.13 and MKL, on one and two threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import AttentionInterface

from soft_reasoning.engines.kv import MASKED, Part, round_up
from soft_reasoning.engines.passes import Bucket, Prefill, Step

NAME = "soft_reasoning_tree"
MIN_ROWS = 4
KEY_BLOCK = 192
QUERIES = {"cpu": (64, 256), "cuda": (1024, 4096)}
"""Queries at a time, among a row's own tokens and over a shared block: their scores fit a cache or memory."""

_ACTIVE: ContextVar[Prefill | Step] = ContextVar("active pass")


@contextmanager
def active(config: Any, now: Prefill | Step) -> Iterator[None]:
    """Let the model of ``config`` attend as the pass ``now`` says, inside the block."""
    before = config._attn_implementation
    token = _ACTIVE.set(now)
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
    """Attention of the packed ``query`` (1, Hq, N, d) in the active pass; (1, N, Hq, dv).

    ``key`` (1, Hkv, N, d) and ``value`` (1, Hkv, N, dv) are the packed tokens' own.
    """
    if attention_mask is not None:
        raise NotImplementedError("the model brings an attention mask of its own")
    now, heads = _ACTIVE.get(), key.shape[1]
    query = query * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    done = []
    for bucket in now.buckets:
        window = _window(module, kwargs, bucket)
        q = bucket.split(query)  # (B, Hq, T, d)
        repeat = q.shape[1] // heads
        q = q.reshape(bucket.rows, heads, repeat * bucket.steps, -1)
        if isinstance(now, Step):
            keys, values = now.own(module.layer_idx)
            out, lse = _attend_own(q, keys, values, now.own_bias(bucket, window), softcap)
        else:
            keys, values = bucket.split(key), bucket.split(value)
            out, lse = _attend_causally(q, keys, values, partial(now.own_bias, bucket), window, softcap)
        for i, part in enumerate(bucket.parts):
            bias = bucket.part_bias(i, window, repeat)
            other, other_lse = _attend_part(q, part, module.layer_idx, bias, softcap)
            out = torch.lerp(out, other, torch.sigmoid(other_lse - lse).to(out.dtype))
            if i + 1 < len(bucket.parts) or s_aux is not None:
                lse = torch.logaddexp(lse, other_lse)
        if s_aux is not None:  # an attention sink is a part that adds weight and no value
            sink = s_aux.float().view(1, heads, -1, 1).repeat_interleave(bucket.steps, dim=2)
            out = out * torch.sigmoid(lse - sink).to(out.dtype)
        out = out.view(bucket.rows, query.shape[1], bucket.steps, -1).transpose(1, 2)
        done.append(out.reshape(bucket.rows * bucket.steps, query.shape[1], -1))
    filling = query.shape[2] - sum(len(out) for out in done)
    if filling:
        done.append(done[0].new_zeros(filling, *done[0].shape[1:]))
    return (torch.cat(done) if len(done) > 1 else done[0]).unsqueeze(0), None


def _window(module: Any, kwargs: dict[str, Any], bucket: Bucket) -> int | None:
    """The layer's sliding window, or None where it has none or the rows are too short to feel it."""
    window = kwargs.get("sliding_window")
    kinds = getattr(module.config, "layer_types", None)
    if "sliding_window" not in kwargs and kinds and kinds[module.layer_idx] == "sliding_attention":
        window = module.config.sliding_window
    return window if window is not None and bucket.longest > window else None


def _attend_own(
    q: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """Output (B, H, M, dv) and log-sum-exp (B, H, M, 1) of ``q`` (B, H, M, d) over ``keys`` (B, H, L, d)."""
    rows, heads, m, _ = q.shape
    keys, values = keys.flatten(0, 1).transpose(1, 2), values.flatten(0, 1)
    out, lse = _attend(q.flatten(0, 1), keys, values, bias, heads, softcap)
    return out.view(rows, heads, m, -1), lse.view(rows, heads, m, 1)


def _attend_causally(
    q: Tensor, keys: Tensor, values: Tensor, bias: Callable[..., Tensor], window: int | None,
    softcap: float | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As :func:`_attend_own`, for rows of T tokens (L = T, M = repeat * T) that see their earlier ones.

    In blocks of queries: less than half as much to compute, and scores that fit the CPU's cache.
    """
    rows, heads, m, width = q.shape
    steps = keys.shape[2]
    repeat, lone = m // steps, rows * heads == 1
    q = q.reshape(rows * heads, repeat, steps, width)
    keys, values = keys.flatten(0, 1).transpose(1, 2), values.flatten(0, 1)
    block = QUERIES.get(q.device.type, QUERIES["cuda"])[0]
    done = []
    for first in range(0, steps, block):
        end = min(first + block, steps)
        some, hidden = q[:, :, first:end].flatten(1, 2), bias(first, end, window, repeat)
        tall = some.shape[1]
        if lone:
            some, hidden = _fill(some, hidden)
        parts = _attend(some, keys[:, :, :end], values[:, :end], hidden, heads, softcap, whole=True)
        done.append([x[:, :tall].view(rows * heads, repeat, end - first, -1) for x in parts])
    out, lse = (torch.cat(parts, 2) if len(parts) > 1 else parts[0] for parts in zip(*done, strict=True))
    return out.reshape(rows, heads, m, -1), lse.reshape(rows, heads, m, 1)


def _attend_part(
    q: Tensor, part: Part, layer: int, bias: Tensor | None, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """As :func:`_attend_own`, for a block: the rows of one prefix are the queries of one matrix product."""
    rows, heads, m, width = q.shape
    take, back = part.indices(heads)
    tall = part.width * m
    grouped = q.reshape(rows * heads, m * width).index_select(0, take).view(-1, tall, width)
    if tall < MIN_ROWS or len(grouped) == 1:
        grouped, bias = _fill(grouped, bias)
    keys, values = part.keys(layer), part.values(layer)
    done = []
    block = QUERIES.get(q.device.type, QUERIES["cuda"])[1]
    for first in range(0, grouped.shape[1], block):
        some = slice(first, first + block)
        hidden = bias if bias is None or bias.shape[2] == 1 else bias[:, :, some]
        done.append(_attend(grouped[:, some], keys, values, hidden, heads, softcap))
    out, lse = (torch.cat(parts, 1) if len(parts) > 1 else parts[0] for parts in zip(*done, strict=True))
    out = out[:, :tall].reshape(len(take), -1).index_select(0, back).view(rows, heads, m, -1)
    lse = lse[:, :tall].reshape(len(take), -1).index_select(0, back).view(rows, heads, m, 1)
    return out, lse if part.absent is None else lse.masked_fill(part.absent, MASKED)


def _fill(q: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """``q`` (G, M, d) and ``bias`` (.., M or 1, L) with M rounded up.

    A low product takes other paths than a high one, and a lone one is split over threads by its rows.
    """
    spare = round_up(q.shape[1], MIN_ROWS) - q.shape[1]
    if bias is not None and bias.shape[2] > 1:
        bias = pad(bias, (0, 0, 0, spare))
    return pad(q, (0, 0, 0, spare)), bias


def _attend(
    q: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, heads: int, softcap: float | None, *,
    whole: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output (G, M, dv) and log-sum-exp (G, M, 1) of ``q`` (G, M, d) over ``keys`` (G, d, L); G = B * heads.

    ``bias`` (B or 1, 1, M or 1, L); softmax is taken in float32. ``whole``: L does not depend on the
    neighbours, so sums over keys need no blocks.
    """
    scores = torch.bmm(q, keys).float()
    if softcap is not None:
        scores = scores.div_(softcap).tanh_().mul_(softcap)
    if bias is not None:
        scores.view(-1, heads, *scores.shape[1:]).add_(bias)
    weights = scores.softmax(-1)
    # The largest weight is 1 / sum(exp(score - max)): the log-sum-exp without a second pass of exp.
    lse = scores.amax(-1, keepdim=True) - weights.amax(-1, keepdim=True).log_()
    weights = weights.to(values.dtype)
    if whole or weights.shape[-1] <= KEY_BLOCK or weights.device.type != "cpu":
        return torch.bmm(weights, values), lse
    out = torch.bmm(weights[:, :, :KEY_BLOCK], values[:, :KEY_BLOCK])
    for at in range(KEY_BLOCK, weights.shape[-1], KEY_BLOCK):
        out.baddbmm_(weights[:, :, at : at + KEY_BLOCK], values[:, at : at + KEY_BLOCK])
    return out, lse


AttentionInterface.register(NAME, tree_attention)
