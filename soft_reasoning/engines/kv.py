"""Keys and values in the shape of a tree: blocks that many rows read, and each row's own buffer.

A row of a batch reads a few parts: a prefix that all problems of a run begin with, one that the requests of
its problem begin with, the rest of the prompt that its candidates share, and what is the row's own (soft
tokens and completion). Every part is written once; the first two are kept for batches to come.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

TILE = 32
"""Key counts are multiples of it, and on the CPU so are the tokens of a pass; see ``tree``."""
GROWTH = {"cpu": TILE, "cuda": 2 * TILE}
"""By how many keys a row's own buffer grows: read whole, it is best full, and growing takes a copy."""
MASKED = -1e30
"""Finite, so that a part in which a row sees no key gives weight zero and not NaN."""


def round_up(n: int, multiple: int = TILE) -> int:
    return -(-n // multiple) * multiple


def held(tensors: Iterable[Tensor]) -> int:
    """Bytes of memory behind ``tensors``, what they do not show of it included."""
    return sum(t.untyped_storage().nbytes() for t in tensors)


class Block:
    """Keys (S, heads, width, L) and values (S, heads, L, width) of S shared prefixes, one tensor a layer.

    Keys lie transposed, which makes the product with a few queries faster. ``lengths`` (S,): how many keys
    are real; ``starts`` (S,): the position of the first.
    """

    def __init__(self, lengths: Sequence[int], starts: Sequence[int]) -> None:
        self.lengths, self.starts = list(lengths), list(starts)
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def store(self, layer: int, which: Tensor, keys: Tensor, values: Tensor) -> None:
        """Keep ``keys`` and ``values`` (B, heads, n, width) of the prefixes ``which`` (B,)."""
        if layer == len(self.keys):
            count, room = len(self.lengths), round_up(max(self.lengths))
            heads, width = keys.shape[1], keys.shape[3]
            self.keys.append(keys.new_zeros(count, heads, width, room))
            self.values.append(values.new_zeros(count, heads, room, values.shape[3]))
        self.keys[layer][which, :, :, : keys.shape[2]] = keys.transpose(2, 3)
        self.values[layer][which, :, : values.shape[2]] = values

    def select(self, which: Sequence[int]) -> Block:
        if list(which) == list(range(len(self.lengths))):
            return self
        chosen = Block([self.lengths[i] for i in which], [self.starts[i] for i in which])
        room = round_up(max(chosen.lengths))
        for keys, values in zip(self.keys, self.values, strict=True):
            index = torch.tensor(list(which), device=keys.device)
            chosen.keys.append(keys[index, :, :, :room])
            chosen.values.append(values[index, :, :room])
        return chosen

    @property
    def positions(self) -> int:
        """How many it has room for."""
        return len(self.lengths) * round_up(max(self.lengths))

    @property
    def bytes(self) -> int:
        return held((*self.keys, *self.values))


def join(blocks: Sequence[Block]) -> Block:
    """One block of all prefixes of ``blocks``."""
    if len(blocks) == 1:
        return blocks[0]
    joined = Block([n for b in blocks for n in b.lengths], [s for b in blocks for s in b.starts])
    for layer in range(len(blocks[0].keys)):
        at = 0
        for block in blocks:
            keys, values = block.keys[layer].transpose(2, 3), block.values[layer]
            which = torch.arange(at, at + len(block.lengths), device=keys.device)
            joined.store(layer, which, keys, values)
            at += len(block.lengths)
    return joined


class KeptPrefixes:
    """Prefixes of finished batches, those of one block together, at most ``most`` positions.

    The blocks that were not read for longest go first, and those not read for ``age`` batches go without
    need: what a solved problem left, say. ``held`` counts positions. A block, dense or in pages, tells its
    ``positions`` and can ``select`` some of its prefixes.
    """

    def __init__(self, most: int, age: int = 32) -> None:
        self.most, self.age = most, age
        self._batch = 0
        self._read: dict[int, int] = {}  # in which batch a block was last
        self.held = 0
        self._blocks: OrderedDict[int, tuple[Any, list[Hashable]]] = OrderedDict()
        self._where: dict[Hashable, tuple[int, int]] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._where

    def add(self, keys: Sequence[Hashable], block: Any) -> None:
        """Keep ``block``, whose prefixes are ``keys``."""
        if block.positions > self.most:
            return
        self._blocks[id(block)] = block, list(keys)
        self._read[id(block)] = self._batch
        self._where.update({key: (id(block), i) for i, key in enumerate(keys)})
        self.held += block.positions
        while self.held > self.most:
            self._drop_oldest()

    def next_batch(self) -> None:
        """A batch begins."""
        self._batch += 1
        while self._blocks and self._read[next(iter(self._blocks))] < self._batch - self.age:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        name, (block, keys) = self._blocks.popitem(last=False)
        self.held -= block.positions
        del self._read[name]
        for key in keys:
            del self._where[key]

    def find(self, keys: Iterable[Hashable]) -> list[tuple[Any, list[Hashable]]]:
        """Those of ``keys`` that are kept, as blocks of their own."""
        wanted: dict[int, list[Hashable]] = {}
        for key in keys:
            if key in self._where:
                wanted.setdefault(self._where[key][0], []).append(key)
        found = []
        for name, some in wanted.items():
            self._blocks.move_to_end(name)
            self._read[name] = self._batch
            found.append((self._blocks[name][0].select([self._where[key][1] for key in some]), some))
        return found

    def blocks(self) -> list[Any]:
        return [block for block, _ in self._blocks.values()]

    def clear(self) -> None:
        self.held = 0
        self._blocks.clear()
        self._read.clear()
        self._where.clear()


class Part:
    """A block as some rows read it: ``groups[r]`` is the prefix of row r, or -1 for none.

    The rows of one prefix are the queries of one matrix product: ``take`` arranges the rows' queries by
    prefix, ``back`` undoes it, ``width`` is the largest number of rows a prefix has, ``absent`` marks rows
    without a prefix (``None`` where there are none). ``filling`` rows follow, whose results do not matter;
    they get another row's.
    """

    def __init__(self, block: Block, groups: Sequence[int], filling: int, device: torch.device) -> None:
        self.block, self.groups, self.device = block, list(groups), device
        self._used = sorted({group for group in groups if group >= 0})
        self.count = len(self._used)
        self.lengths = [block.lengths[i] for i in self._used]
        self.room = round_up(max(self.lengths))
        self._lengths = torch.tensor(self.lengths, device=device).view(-1, 1, 1, 1)
        starts = [block.starts[i] for i in self._used]
        self._starts = torch.tensor(starts, device=device).view(-1, 1, 1, 1)
        members: list[list[int]] = [[] for _ in self._used]
        places_of = {group: i for i, group in enumerate(self._used)}
        for row, group in enumerate(groups):
            if group >= 0:
                members[places_of[group]].append(row)
        self.width = max(map(len, members))
        places = [0] * (len(groups) + filling)
        for group, rows in enumerate(members):
            for place, row in enumerate(rows):
                places[row] = group * self.width + place
        self._places = torch.tensor(places, device=device)
        self._slots = torch.tensor([m + [0] * (self.width - len(m)) for m in members], device=device)
        absent = torch.tensor([g < 0 for g in groups] + [False] * filling, device=device)
        self._absent = absent.view(-1, 1, 1) if min(groups) < 0 else None
        self._indices: dict[int, tuple[Tensor, Tensor, Tensor | None]] = {}
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._bias: Tensor | None = None

    def keys(self, layer: int) -> Tensor:
        """(S * heads, width, L)."""
        if layer not in self._keys:
            self._keys[layer] = self._read(self.block.keys[layer])[:, :, :, : self.room].flatten(0, 1)
        return self._keys[layer]

    def values(self, layer: int) -> Tensor:
        """(S * heads, L, width)."""
        if layer not in self._values:
            self._values[layer] = self._read(self.block.values[layer])[:, :, : self.room].flatten(0, 1)
        return self._values[layer]

    def _read(self, kept: Tensor) -> Tensor:
        """Of ``kept`` (S, ...) the prefixes that are read; a view where they lie side by side."""
        first, end = self._used[0], self._used[-1] + 1
        if end - first == self.count:
            return kept[first:end]
        return kept[torch.tensor(self._used, device=self.device)]

    @property
    def copied(self) -> int:
        """Bytes held beside the block's, where what is read does not lie side by side."""
        if self._used[-1] + 1 - self._used[0] == self.count:
            return 0
        return held((*self._keys.values(), *self._values.values()))

    def indices(self, heads: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """``take`` (S * heads * C,) from (R * heads) to (S, heads, C), ``back`` (R * heads,) and ``absent``
        (R * heads, 1, 1)."""
        if heads not in self._indices:
            head = torch.arange(heads, device=self.device)
            take = self._slots.unsqueeze(1) * heads + head.view(1, -1, 1)
            group, place = self._places // self.width, self._places % self.width
            back = (group.view(-1, 1) * heads + head) * self.width + place.view(-1, 1)
            absent = None if self._absent is None else self._absent.repeat_interleave(heads, 0)
            self._indices[heads] = take.flatten(), back.flatten(), absent
        return self._indices[heads]

    def bias(self, window: int | None, positions: Tensor, repeat: int) -> Tensor | None:
        """(S, 1, 1 or rows, L): 0 for keys that may be seen, MASKED for the rest; None if all may be.

        ``positions`` (R, T) are those of the queries; they matter under a sliding ``window`` alone.
        """
        if window is None and min(self.lengths) == self.room:
            return None
        if window is None and self._bias is not None:
            return self._bias
        j = torch.arange(self.room, device=self.device)
        seen = j < self._lengths
        if window is None:
            self._bias = torch.where(seen, 0.0, MASKED)
            return self._bias
        here = positions[self._slots].unsqueeze(2)  # (S, C, 1, T)
        here = here.expand(-1, -1, repeat, -1).reshape(self.count, 1, -1, 1)
        return torch.where(seen & (here - self._starts - j < window), 0.0, MASKED)

    def keep(self, rows: Sequence[int], filling: int) -> Part | None:
        """As ``rows`` alone read it, ``filling`` more behind them; the block is packed once a quarter of
        it is unread."""
        groups = [self.groups[r] for r in rows]
        used = sorted({g for g in groups if g >= 0})
        if not used:
            return None
        block = self.block
        if len(used) <= 0.75 * len(block.lengths):
            block = block.select(used)
            groups = [used.index(g) if g >= 0 else -1 for g in groups]
        return Part(block, groups, filling, self.device)


class OwnKeys:
    """Buffers (R, heads, capacity, width) for the keys and values of R rows, grown when they are full.

    ``counts`` (R,): how many keys each row has.
    """

    def __init__(self, counts: Sequence[int], device: torch.device) -> None:
        self.counts = list(counts)
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self.capacity = 0
        self.device = device
        self.reserve(max(counts, default=0) + 1)

    def reserve(self, most: int) -> bool:
        """Make room for ``most`` keys a row; whether there was too little."""
        grows = most > self.capacity
        if grows:
            self.capacity = round_up(most, GROWTH.get(self.device.type, GROWTH["cuda"]))
        return grows

    def store(self, layer: int, which: Tensor, keys: Tensor, values: Tensor) -> None:
        """Keep ``keys`` and ``values`` (B, heads, n, width) as the first of rows ``which`` (B,)."""
        for buffers, new in ((self.keys, keys), (self.values, values)):
            self._room(buffers, layer, new)[which, :, : new.shape[2]] = new

    def append(self, layer: int, keys: Tensor, values: Tensor, places: Tensor) -> None:
        """Keep ``keys`` and ``values`` (R, heads, width) at ``places`` (R * heads,) of the flat buffers."""
        for buffers, new in ((self.keys, keys), (self.values, values)):
            buffer = self._room(buffers, layer, new.unsqueeze(2))
            buffer.view(-1, new.shape[2]).index_copy_(0, places, new.flatten(0, 1))

    def _room(self, buffers: list[Tensor], layer: int, like: Tensor) -> Tensor:
        have = buffers[layer].shape[2] if layer < len(buffers) else 0
        if have < self.capacity:
            grown = like.new_empty(len(self.counts), like.shape[1], self.capacity, like.shape[3])
            grown[:, :, have:] = 0
            if have:
                grown[:, :, :have] = buffers[layer]
                buffers[layer] = grown
            else:
                buffers.append(grown)
        return buffers[layer]

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with ``rows`` only; as in ``decode.packed``, row i is the old i or one beyond the new."""
        moved = [(old, new) for new, old in enumerate(rows) if old != new]
        source, target = torch.tensor(moved, dtype=torch.long, device=self.device).view(-1, 2).unbind(1)
        for buffers in (self.keys, self.values):
            for layer, buffer in enumerate(buffers):
                buffer[target] = buffer[source]
                buffers[layer] = buffer[: len(rows)]
        self.counts = [self.counts[r] for r in rows]

    @property
    def bytes(self) -> int:
        return held((*self.keys, *self.values))
