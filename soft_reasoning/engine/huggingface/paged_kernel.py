"""Paged attention as Triton kernels: one new token per sequence attends over its blocks.

A row's result depends on that row alone, so it has the same bits in any batch: its blocks are cut into parts
of ``PART`` blocks, each with a softmax of its own, and the parts are summed in the order of their positions.
"""
# Triton is missing where there is no GPU, and its kernels are a language of their own.
# pyright: basic, reportMissingImports=false, reportIndexIssue=false

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from soft_reasoning.engine.huggingface.block_manager import BLOCK
from soft_reasoning.engine.huggingface.paged_attention import PART

LEAST = 16
"""Least rows and columns of a matrix product in a kernel."""


def attend_blocks(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    table: Tensor,
    positions: Tensor,
    scale: float,
    window: int | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """(R, Hq, dv), as :func:`paged_attention.attend_blocks` describes."""
    (rows, query_heads, d), (_, heads, _, dv) = q.shape, values.shape
    repeat, parts = query_heads // heads, -(-table.shape[1] // PART)
    q, window = q.contiguous(), window or 2**30
    sums = q.new_empty(rows, query_heads, parts, dv, dtype=torch.float32)
    lse = q.new_empty(rows, query_heads, parts, dtype=torch.float32)
    out = q.new_empty(rows, query_heads, dv)
    padded = {"D": max(LEAST, triton.next_power_of_2(d)), "DV": max(LEAST, triton.next_power_of_2(dv))}
    _attend_part[rows, heads, parts](
        q, keys, values, table, positions, sums, lse, scale, softcap or 0.0, window, table.stride(0), heads,
        parts, repeat=repeat, d=d, dv=dv, LANES=max(LEAST, triton.next_power_of_2(repeat)), BLOCK=BLOCK,
        PART=PART, CAPPED=softcap is not None, **padded,
    )  # fmt: skip
    _sum_parts[rows, query_heads](
        sums, lse, positions, lse if sinks is None else sinks, out, window, query_heads, parts,
        dv=dv, BLOCK=BLOCK, PART=PART, SINKS=sinks is not None, DV=padded["DV"],
    )  # fmt: skip
    return out


@triton.jit
def _attend_part(
    q, keys, values, table, positions, sums, lse, scale, softcap, window, width, heads, parts,
    repeat: tl.constexpr, d: tl.constexpr, dv: tl.constexpr, LANES: tl.constexpr, BLOCK: tl.constexpr,
    PART: tl.constexpr, CAPPED: tl.constexpr, D: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """The mean and log-sum-exp of one part of a row's blocks, for the queries that read one head's keys."""
    row, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    position = tl.load(positions + row).to(tl.int32)
    begin = tl.maximum(part * PART, tl.maximum(position - window + 1, 0) // BLOCK)
    end = tl.minimum((part + 1) * PART, position // BLOCK + 1)
    if begin >= end:
        return
    lane, place, at_d, at_dv = tl.arange(0, LANES), tl.arange(0, BLOCK), tl.arange(0, D), tl.arange(0, DV)
    query = (row * heads + head) * repeat + lane
    queries = tl.load(
        q + query[:, None] * d + at_d[None], mask=(lane < repeat)[:, None] & (at_d < d)[None], other=0.0
    )
    top = tl.full([LANES], -float("inf"), tl.float32)
    weight = tl.zeros([LANES], tl.float32)
    total = tl.zeros([LANES, DV], tl.float32)
    for i in range(begin, end):
        back = position - (i * BLOCK + place)
        seen = (back >= 0) & (back < window)
        block = tl.load(table + row * width + i).to(tl.int64) * heads + head
        k = tl.load(
            keys + block * d * BLOCK + at_d[:, None] * BLOCK + place[None],
            mask=(at_d < d)[:, None],
            other=0.0,
        )
        v = tl.load(
            values + block * BLOCK * dv + place[:, None] * dv + at_dv[None],
            mask=seen[:, None] & (at_dv < dv)[None],
            other=0.0,
        )
        scores = tl.dot(queries, k, input_precision="ieee") * scale
        if CAPPED:
            scores = softcap * (2 * tl.sigmoid(2 * scores / softcap) - 1)
        scores = tl.where(seen[None], scores, -float("inf"))
        higher = tl.maximum(top, tl.max(scores, 1))
        shares, shrink = tl.exp(scores - higher[:, None]), tl.exp(top - higher)
        weight = weight * shrink + tl.sum(shares, 1)
        total = total * shrink[:, None] + tl.dot(shares.to(v.dtype), v, input_precision="ieee")
        top = higher
    at = query * parts + part
    tl.store(lse + at, top + tl.log(weight), mask=lane < repeat)
    tl.store(
        sums + at[:, None] * dv + at_dv[None],
        total / weight[:, None],
        mask=(lane < repeat)[:, None] & (at_dv < dv)[None],
    )


@triton.jit
def _sum_parts(
    sums, lse, positions, sinks, out, window, query_heads, parts,
    dv: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr, SINKS: tl.constexpr, DV: tl.constexpr,
):  # fmt: skip
    """The mean of the parts of a row's blocks for one query, weighted by exp(lse)."""
    row, head = tl.program_id(0), tl.program_id(1)
    query = row * query_heads + head
    position = tl.load(positions + row).to(tl.int32)
    begin = tl.maximum(position - window + 1, 0) // (BLOCK * PART)
    end = position // (BLOCK * PART) + 1
    at_dv = tl.arange(0, DV)
    top, weight = tl.load(lse + query * parts + begin), 0.0
    if SINKS:
        top = tl.load(sinks + head).to(tl.float32)
        weight = 1.0
    total = tl.zeros([DV], tl.float32)
    for part in range(begin, end):
        log = tl.load(lse + query * parts + part)
        mean = tl.load(sums + (query * parts + part) * dv + at_dv, mask=at_dv < dv, other=0.0)
        higher = tl.maximum(top, log)
        share, shrink = tl.exp(log - higher), tl.exp(top - higher)
        weight = weight * shrink + share
        total = total * shrink + share * mean
        top = higher
    tl.store(out + query * dv + at_dv, total / weight, mask=at_dv < dv)
