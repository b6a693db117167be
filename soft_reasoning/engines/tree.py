"""Attention over a tree of keys and values: shared blocks, kept once, and each row's own buffer.

A row of the batch attends to up to three parts: a prefix that all problems of a run begin with, the
prompt that the candidates of one problem share, and what is the row's own (soft tokens and completion).
Each part gives an output and the logarithm of its softmax denominator, and the parts are merged by
weights exp(lse_part - lse_all), which is exact. :func:`tree_attention` is registered with transformers and
stands in for a model's attention while a :class:`TreeCache` is active.

On the CPU every shape is chosen so that a row's result is bitwise independent of its neighbours: matrix
products whose height depends on them get at least ``MIN_ROWS`` rows, key counts are multiples of ``TILE``
(masked keys add exact zeros), and sums over keys run in blocks of ``KEY_BLOCK``, beyond which the library
splits a sum by its length. Measured with torch 2.13 and MKL, on one and two threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.cache_utils import Cache

NAME = "soft_reasoning_tree"
MIN_ROWS = 4
TILE = 32
KEY_BLOCK = 128
MASKED = -1e30
"""Finite, so that a part in which a row sees no key gives weight zero and not NaN."""


def round_up(n: int, multiple: int = TILE) -> int:
    return -(-n // multiple) * multiple


@dataclass
class Block:
    """Keys (S, heads, width, L) and values (S, heads, L, width) of S shared prefixes, one tensor a layer.

    Keys lie transposed, which makes the product with a few queries about twice as fast.
    ``lengths`` and ``starts`` (S,): how many keys are real, and the position of the first.
    """

    keys: list[Tensor]
    values: list[Tensor]
    lengths: Tensor
    starts: Tensor

    def select(self, which: Sequence[int]) -> Block:
        index = torch.tensor(list(which), device=self.lengths.device)
        return Block(
            [k[index] for k in self.keys], [v[index] for v in self.values], self.lengths[index],
            self.starts[index],
        )  # fmt: skip


def join_blocks(blocks: Sequence[Block]) -> Block:
    """One block of all prefixes of ``blocks``, padded to the longest."""
    if len(blocks) == 1:
        return blocks[0]
    longest = max(b.values[0].shape[2] for b in blocks)

    def join(parts: list[Tensor], dim: int) -> Tensor:
        shape = list(parts[0].shape)
        shape[0], shape[dim] = sum(p.shape[0] for p in parts), longest
        out, at = parts[0].new_zeros(shape), 0
        for part in parts:
            out[at : at + part.shape[0]].narrow(dim, 0, part.shape[dim]).copy_(part)
            at += part.shape[0]
        return out

    layers = range(len(blocks[0].keys))
    return Block(
        [join([b.keys[i] for b in blocks], 3) for i in layers],
        [join([b.values[i] for b in blocks], 2) for i in layers],
        torch.cat([b.lengths for b in blocks]),
        torch.cat([b.starts for b in blocks]),
    )


class Wiring:
    """Which rows of the batch read which prefix of a block.

    ``groups[r]`` is the prefix of row r, or -1 for none. ``slots`` (S, C) lists each prefix's rows (filled
    up with row 0), ``places`` (R,) finds a row's slot in the flattened (S * C), ``absent`` (R, 1, 1, 1)
    marks rows without a prefix (``None`` where there are none).
    """

    def __init__(self, groups: Sequence[int], prefixes: int, device: torch.device) -> None:
        members: list[list[int]] = [[] for _ in range(prefixes)]
        for row, group in enumerate(groups):
            if group >= 0:
                members[group].append(row)
        width = max(1, *(len(m) for m in members))
        places = [0] * len(groups)
        for group, rows in enumerate(members):
            for place, row in enumerate(rows):
                places[row] = group * width + place
        self.groups = list(groups)
        self.width = width
        self.slots = torch.tensor([m + [0] * (width - len(m)) for m in members], device=device)
        self.places = torch.tensor(places, device=device)
        absent = torch.tensor([g < 0 for g in groups], device=device)
        self.absent = absent.view(-1, 1, 1, 1) if bool(absent.any()) else None


class TreeCache(Cache):
    """The cache of one batch of R rows: ``parts`` shared blocks with their wiring, and own buffers.

    ``own`` (R,) counts the keys that each row has in its own buffer; ``positions`` (R, T) are those of the
    tokens now passing through. A buffer is allocated for ``capacity`` keys and grown when it is full.
    """

    def __init__(self, rows: int, parts: Sequence[tuple[Block, Wiring]], device: torch.device) -> None:
        super().__init__(layers=[])
        self.rows = rows
        self.parts = list(parts)
        self.device = device
        self.own = [0] * rows
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.positions = torch.empty(0)
        self.longest = 0
        self._biases: dict[Any, Tensor | None] = {}
        self._capacity = 0
        self._end = 0
        self._at: int | Tensor = 0

    def begin(self, positions: Tensor, capacity: int, longest: int) -> None:
        """Get ready for a pass of T tokens a row at ``positions`` (R, T), written behind what is there.

        No position reaches ``longest``; narrower sliding windows are felt.
        """
        self.positions = positions
        self.longest = longest
        self._biases = {}
        self._end = round_up(max(self.own) + positions.shape[1])
        self._capacity = max(self._capacity, self._end, round_up(capacity))
        same = min(self.own) == max(self.own)
        self._at = self.own[0] if same else torch.tensor(self.own, device=self.device)

    def advance(self, counts: Sequence[int]) -> None:
        """Count the tokens of the pass that are real; the rest is overwritten by the next."""
        self.own = [have + new for have, new in zip(self.own, counts, strict=True)]

    def update(self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any):
        if layer_idx == len(self.keys):
            self.keys.append(self._buffer(key_states))
            self.values.append(self._buffer(value_states))
        for store, new in ((self.keys, key_states), (self.values, value_states)):
            if store[layer_idx].shape[2] < self._end:
                grown = self._buffer(new)
                grown[:, :, : store[layer_idx].shape[2]] = store[layer_idx]
                store[layer_idx] = grown
            self._write(store[layer_idx], new)
        return self.keys[layer_idx][:, :, : self._end], self.values[layer_idx][:, :, : self._end]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    def _buffer(self, like: Tensor) -> Tensor:
        return like.new_zeros(self.rows, like.shape[1], self._capacity, like.shape[3])

    def _write(self, store: Tensor, new: Tensor) -> None:
        steps = new.shape[2]
        if isinstance(self._at, int):
            store[:, :, self._at : self._at + steps] = new
            return
        row = torch.arange(self.rows, device=self.device).view(-1, 1)
        at = self._at.view(-1, 1) + torch.arange(steps, device=self.device)
        store[row, :, at] = new.transpose(1, 2)

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with ``rows`` only, in that order (a row may be named twice)."""
        index = torch.tensor(list(rows), device=self.device)
        for layer in range(len(self.keys)):
            self.keys[layer] = self.keys[layer][index]
            self.values[layer] = self.values[layer][index]
        self.own = [self.own[r] for r in rows]
        self.rows = len(rows)
        self.parts = [rewire(block, [wiring.groups[r] for r in rows], self.device)
                      for block, wiring in self.parts]  # fmt: skip

    def as_block(self, starts: Sequence[int]) -> Block:
        """The own buffers as a block of prefixes that later rows can share."""
        end = round_up(max(self.own))
        return Block(
            [k[:, :, :end].transpose(2, 3).contiguous() for k in self.keys],
            [v[:, :, :end] for v in self.values],
            torch.tensor(self.own, device=self.device),
            torch.tensor(list(starts), device=self.device),
        )

    def shared_bias(self, part: int, window: int | None, repeat: int) -> Tensor:
        """(S, 1, 1 or rows, L): 0 for keys that may be seen, MASKED for the rest."""
        key = (part, window, repeat)
        if key not in self._biases:
            block, wiring = self.parts[part]
            j = torch.arange(block.values[0].shape[2], device=self.device)
            seen = (j < block.lengths.view(-1, 1)).view(len(block.lengths), 1, 1, -1)
            if window is not None:
                there = block.starts.view(-1, 1, 1, 1) + j
                here = self.positions[wiring.slots].unsqueeze(2)  # (S, C, 1, T)
                here = here.expand(-1, -1, repeat, -1).reshape(len(block.lengths), 1, -1, 1)
                seen = seen & (here - there < window)
            self._biases[key] = torch.where(seen, 0.0, MASKED)
        return self._biases[key]

    def own_bias(self, window: int | None, repeat: int) -> Tensor:
        """(R, 1, repeat * T, end): causal among a row's own keys."""
        key = ("own", window, repeat)
        if key not in self._biases:
            steps = torch.arange(self.positions.shape[1], device=self.device)
            first = torch.tensor(self.own if isinstance(self._at, Tensor) else self.own[:1], device=self.device)
            here = (first.view(-1, 1) + steps).view(len(first), 1, -1, 1)
            back = here - torch.arange(self._end, device=self.device)
            seen = (back >= 0) if window is None else (back >= 0) & (back < window)
            self._biases[key] = torch.where(seen, 0.0, MASKED).repeat(1, 1, repeat, 1)
        return self._biases[key]


def rewire(block: Block, groups: list[int], device: torch.device) -> tuple[Block, Wiring]:
    """The wiring of ``groups``; the block is packed once at least half of its prefixes are unread."""
    used = sorted({g for g in groups if g >= 0})
    if used and len(used) * 2 <= len(block.lengths):
        block = block.select(used)
        new = {g: i for i, g in enumerate(used)}
        groups = [new.get(g, -1) for g in groups]
    return block, Wiring(groups, len(block.lengths), device)


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
    """Output (B, H, M, dv) and log-sum-exp (B, H, M, 1) of queries (B, H, M, d) over ``keys`` (B, H, d, L)."""
    batch, heads, m, width = q.shape
    scores = torch.bmm(q.reshape(batch * heads, m, width), keys.reshape(batch * heads, width, -1)).float()
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    scores = scores.view(batch, heads, m, -1)
    scores += bias
    weights = scores.softmax(-1)
    # The largest weight is 1 / sum(exp(score - max)), so this is the log-sum-exp without a second pass of exp.
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
