"""Attention over a tree of keys and values: shared blocks, kept once, and each row's own.

:func:`tree_attention` is registered with transformers and stands in for a model's attention while a pass
(:mod:`soft_reasoning.engines.passes`) is active. Over pages it is compiled C
(:mod:`soft_reasoning.engines.native`). Over dense tensors (:mod:`soft_reasoning.engines.kv`) each part that a
row reads gives an output and the logarithm of its softmax denominator, and the parts are merged by weights
exp(lse_part - lse_all), which is exact.

On the CPU the latter's shapes are chosen so that a row's result is bitwise independent of its neighbours:
matrix products whose height depends on them get at least ``MIN_ROWS`` rows, key counts that depend on them
are multiples of ``TILE`` (masked keys add exact zeros), and sums over such keys run in blocks of
``KEY_BLOCK``, beyond which the library splits a sum by its length. Measured with torch 2.13 and MKL, on one
and two threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import AttentionInterface

from soft_reasoning.engines.kv import MASKED, Part, round_up
from soft_reasoning.engines.passes import Bucket, PagedPass, Pass, Step

NAME = "soft_reasoning_tree"
MIN_ROWS = 4
KEY_BLOCK = 192
QUERIES = {"cpu": (64, 256), "cuda": (1024, 4096)}
"""Queries at a time, among a row's own tokens and over a shared block: their scores fit a cache or memory."""

_ACTIVE: ContextVar[Pass] = ContextVar("active pass")


@contextmanager
def active(config: Any, now: Pass) -> Iterator[None]:
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
    query = query * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    query, key, value = (x[0].transpose(0, 1) for x in (query, key, value))
    window = kwargs.get("sliding_window")
    kinds = getattr(module.config, "layer_types", None)
    if "sliding_window" not in kwargs and kinds and kinds[module.layer_idx] == "sliding_attention":
        window = module.config.sliding_window
    now = _ACTIVE.get()
    options = {"window": window, "softcap": softcap, "sinks": s_aux}
    if isinstance(now, PagedPass):
        out = now.attend(module.layer_idx, query, key, value, **options)
    else:
        out = attend(now, module.layer_idx, query, key, value, **options)
    return out.unsqueeze(0).contiguous(), None


def attend(
    now: Pass, layer: int, q: Tensor, k: Tensor, v: Tensor, *, window: int | None = None,
    softcap: float | None = None, sinks: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Attention of the pass's tokens ``q`` (N, Hq, d), scaled already; (N, Hq, dv).

    ``k`` (N, Hkv, d) and ``v`` (N, Hkv, dv) are their own, which the pass was given before. ``window``: how
    many positions back a token sees; ``sinks`` (Hq,): logits that take weight and add no value.
    """
    heads, done = k.shape[1], []
    for bucket in now.buckets:
        felt = window if window is not None and bucket.longest > window else None
        done.append(_attend_bucket(now, bucket, layer, q, k, v, heads, felt, softcap, sinks))
    filling = len(q) - sum(len(out) for out in done)
    if filling:
        done.append(done[0].new_zeros(filling, *done[0].shape[1:]))
    return torch.cat(done) if len(done) > 1 else done[0]


def _attend_bucket(
    now: Pass, bucket: Bucket, layer: int, q: Tensor, k: Tensor, v: Tensor, heads: int, window: int | None,
    softcap: float | None, sinks: Tensor | None,
) -> Tensor:  # fmt: skip
    """(rows * steps, Hq, dv): a bucket's own keys and shared parts, merged.

    Inside, G = rows * heads and M = repeat * steps, where ``repeat`` query heads share a key head.
    """
    rows, steps, repeat = bucket.rows, bucket.steps, q.shape[1] // heads
    if isinstance(now, Step):
        q = q.reshape(rows * heads, repeat, -1)
        keys, values = now.own(layer)
        bias = now.own_bias(window)
        out, lse = _attend(q, keys.flatten(0, 1).transpose(1, 2), values.flatten(0, 1), bias, heads, softcap)
    else:
        q, k, v = (bucket.split(x).reshape(rows * heads, -1, x.shape[-1]) for x in (q, k, v))
        out, lse = _attend_causally(q, k, v, now.own_bias, heads, window, softcap)
    for i, part in enumerate(bucket.parts):
        other, other_lse = _attend_part(q, part, layer, bucket.part_bias(i, window, repeat), heads, softcap)
        share = torch.sigmoid(other_lse - lse)
        if i + 1 < len(bucket.parts) or sinks is not None:
            lse = torch.logaddexp(lse, other_lse)
        out = torch.lerp(out, other, share.to(out.dtype))
    if sinks is not None:  # a part that adds weight and no value
        sink = sinks.float().view(heads, repeat, 1).repeat_interleave(steps, dim=1).repeat(rows, 1, 1)
        out = out * torch.sigmoid(lse - sink).to(out.dtype)
    if steps == 1:
        return out.reshape(rows, heads * repeat, -1)
    out = out.reshape(rows, heads * repeat, steps, -1).transpose(1, 2)
    return out.reshape(rows * steps, heads * repeat, -1)


def _attend_causally(
    q: Tensor, k: Tensor, v: Tensor, bias: Callable[..., Tensor], heads: int, window: int | None,
    softcap: float | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Output (G, M, dv) and log-sum-exp (G, M, 1) of ``q`` (G, M, d) over a row's earlier tokens (G, T, d).

    In blocks of queries: less than half as much to compute, and scores that fit the CPU's cache.
    """
    lone, steps = len(q) == 1, k.shape[1]
    repeat = q.shape[1] // steps
    q, keys = q.reshape(len(q), repeat, steps, -1), k.transpose(1, 2)
    block = QUERIES.get(q.device.type, QUERIES["cuda"])[0]
    done = []
    for first in range(0, steps, block):
        end = min(first + block, steps)
        low = 0 if window is None else max(0, first + 1 - window)
        some = q[:, :, first:end].flatten(1, 2)
        # Without a window all may see what lies before the block.
        hidden = bias(end - first, end - (first if window is None else low), window, repeat)
        tall = some.shape[1]
        if lone:
            some, hidden = _fill(some, hidden)
        parts = _attend(some, keys[:, :, low:end], v[:, low:end], hidden, heads, softcap, whole=True)
        done.append([x[:, :tall].reshape(len(q), repeat, end - first, -1) for x in parts])
    out, lse = (torch.cat(parts, 2) if len(parts) > 1 else parts[0] for parts in zip(*done, strict=True))
    return out.flatten(1, 2), lse.flatten(1, 2)


def _attend_part(
    q: Tensor, part: Part, layer: int, bias: Tensor | None, heads: int, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """As above, over a block: the rows (of R * heads in ``q``) of one prefix are one product's queries."""
    groups, m, width = q.shape
    take, back, absent = part.indices(heads)
    tall = part.width * m
    grouped = q.reshape(groups, m * width).index_select(0, take).reshape(-1, tall, width)
    if tall < MIN_ROWS or len(grouped) == 1:
        grouped, bias = _fill(grouped, bias)
    keys, values = part.keys(layer), part.values(layer)
    block = QUERIES.get(q.device.type, QUERIES["cuda"])[1]
    if grouped.shape[1] <= block:
        out, lse = _attend(grouped, keys, values, bias, heads, softcap)
    else:
        done = []
        for first in range(0, grouped.shape[1], block):
            some = slice(first, first + block)
            hidden = bias if bias is None or bias.shape[2] == 1 else bias[:, :, some]
            done.append(_attend(grouped[:, some], keys, values, hidden, heads, softcap))
        out, lse = (torch.cat(parts, 1) for parts in zip(*done, strict=True))
    if grouped.shape[1] > tall:
        out, lse = out[:, :tall], lse[:, :tall]
    out = out.reshape(len(take), -1).index_select(0, back).reshape(groups, m, -1)
    lse = lse.reshape(len(take), -1).index_select(0, back).reshape(groups, m, 1)
    return out, lse if absent is None else lse.masked_fill_(absent, MASKED)


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

    ``bias`` (B or 1, 1, M or 1, L or fewer, of the last keys); softmax is taken in float32. ``whole``: L
    does not depend on the neighbours, so sums over keys need no blocks.
    """
    scores = torch.bmm(q, keys).float()
    if softcap is not None:
        scores = scores.div_(softcap).tanh_().mul_(softcap)
    if bias is not None:
        scores.view(-1, heads, *scores.shape[1:])[..., -bias.shape[3] :].add_(bias)
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
