"""Keys and values in the shape of a tree: blocks that many rows read, and each row's own buffer.

A row of a batch reads up to three parts: a prefix that all problems of a run begin with, the prompt that
the candidates of one problem share, and what is the row's own (soft tokens and completion).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache

TILE = 32
"""Key counts are multiples of it, and on the CPU so are the rows of a batch; see ``tree``."""
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
            ragged = isinstance(self._at, Tensor)
            first = torch.tensor(self.own if ragged else self.own[:1], device=self.device)
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
