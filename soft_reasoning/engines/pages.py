"""Keys and values in pages: what compiled attention reads, where nothing is copied, moved or padded.

A page has room for ``PAGE`` positions in every layer. Shared prefixes and rows hold pages of one pool: a row
takes another when its last is full, and what nobody reads any more goes to the next that asks.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate

import torch
from torch import Tensor

PAGE = 32
SLAB = 64
"""How many pages are allocated at a time."""
UNBOUNDED = 2**62


class Layer(ctypes.Structure):
    """Where a layer's pages are, as ``attention.c`` says."""

    _fields_ = [("slabs", ctypes.c_void_p)] + [
        (name, ctypes.c_int64) for name in ("heads", "width", "value_width")
    ]


class Pool:
    """The pages of all layers, float32: ``used`` of them now, at most ``most`` since that was last set."""

    def __init__(self) -> None:
        self.used = self.most = self._total = 0
        self._free: list[int] = []
        self._layers: dict[int, _Slabs] = {}

    def take(self, count: int) -> list[int]:
        while len(self._free) < count:
            self._free[:0] = range(self._total + SLAB - 1, self._total - 1, -1)  # taken after the others
            self._total += SLAB
        self.used += count
        self.most = max(self.most, self.used)
        return [self._free.pop() for _ in range(count)]

    def give_back(self, pages: Sequence[int]) -> None:
        self.used -= len(pages)
        self._free.extend(pages)

    def layer(self, layer: int, heads: int, width: int, value_width: int) -> Layer:
        """For ``heads`` keys and values of these widths a position. RuntimeError where memory runs out."""
        if layer not in self._layers:
            self._layers[layer] = _Slabs(heads, width, value_width)
        return self._layers[layer].up_to(self._total // SLAB)

    @property
    def page_bytes(self) -> int:
        """Of a page in all layers that were asked for."""
        return sum(slabs.page_bytes for slabs in self._layers.values())


class _Slabs:
    """One layer's."""

    def __init__(self, heads: int, width: int, value_width: int) -> None:
        self.page_bytes = 4 * PAGE * heads * (width + value_width)
        self._slabs: list[Tensor] = []
        self._addresses = torch.empty(0, dtype=torch.long)
        self.place = Layer(0, heads, width, value_width)

    def up_to(self, count: int) -> Layer:
        while len(self._slabs) < count:
            self._slabs.append(_memory(SLAB * self.page_bytes))
            self._addresses = torch.tensor([slab.data_ptr() for slab in self._slabs])
            self.place.slabs = self._addresses.data_ptr()
        return self.place


def _memory(size: int) -> Tensor:
    """``size`` bytes as float32, in large pages of the system where it has them: reading them takes fewer
    lookups, and first touching them fewer faults."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size // 4, dtype=torch.float32)
    try:
        memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise RuntimeError(f"can't allocate memory for keys and values: {error}") from error
    with suppress(OSError):  # a system that was built without
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.float32)


class Pages:
    """Those of one prefix or row in order, for at most ``length`` keys from the position ``start`` on; back
    they go once nobody holds this."""

    def __init__(self, pool: Pool, start: int, length: int = UNBOUNDED) -> None:
        self.start, self.length, self.ids = start, length, []
        self._pool = pool

    def reserve(self, positions: int) -> bool:
        """Have room for so many; whether that takes a page more."""
        missing = -(-positions // PAGE) - len(self.ids)
        if missing > 0:
            self.ids += self._pool.take(missing)
        return missing > 0

    def __del__(self) -> None:
        self._pool.give_back(self.ids)


class PagedBlock:
    """Shared prefixes, each in pages of its own."""

    def __init__(self, pages: Sequence[Pages]) -> None:
        self.pages = list(pages)

    @classmethod
    def new(cls, pool: Pool, lengths: Sequence[int], starts: Sequence[int]) -> PagedBlock:
        """With room for ``lengths`` (S,) keys from the positions ``starts`` (S,) on."""
        block = cls([Pages(pool, start, length) for start, length in zip(starts, lengths, strict=True)])
        for prefix in block.pages:
            prefix.reserve(prefix.length)
        return block

    def select(self, which: Sequence[int]) -> PagedBlock:
        return PagedBlock([self.pages[i] for i in which])

    @property
    def positions(self) -> int:
        """How many it has room for."""
        return PAGE * sum(len(prefix.ids) for prefix in self.pages)


class Reading:
    """Which tokens of a pass read which pages, as ``attention.c`` says.

    ``table`` (S, room or as many as there are) holds the pages of each prefix or row.
    """

    class Layout(ctypes.Structure):
        _fields_ = [(name, ctypes.c_void_p) for name in ("table", "lengths", "starts", "bounds", "tokens")]
        _fields_ += [(name, ctypes.c_int64) for name in ("count", "room", "most")]

    def __init__(self, pages: Sequence[Pages], tokens: Sequence[Sequence[int]], room: int = 0) -> None:
        self.pages = list(pages)
        room = max(room, *(len(some.ids) for some in pages))
        self.table = torch.tensor([some.ids + [0] * (room - len(some.ids)) for some in pages])
        bounds = [0, *accumulate(map(len, tokens))]
        lists = (
            [some.length for some in pages],
            [some.start for some in pages],
            bounds,
            [t for some in tokens for t in some],
        )
        self._tensors = [self.table, *map(torch.tensor, lists)]
        addresses = (tensor.data_ptr() for tensor in self._tensors)
        self.layout = self.Layout(*addresses, len(pages), room, max(map(len, tokens)))

    @classmethod
    def of(cls, block: PagedBlock, groups: Sequence[int], tokens: Sequence[Sequence[int]]) -> Reading | None:
        """By rows of ``tokens``, of which row r reads the prefix ``groups[r]`` (-1: none)."""
        read: dict[int, list[int]] = {}
        for group, some in zip(groups, tokens, strict=True):
            if group >= 0:
                read.setdefault(group, []).extend(some)
        return cls([block.pages[group] for group in read], list(read.values())) if read else None


class OwnPages:
    """Of rows, for keys of their own behind ``offsets`` (R,) positions and up to the position ``most``.

    ``counts`` (R,): how many keys each row has.
    """

    def __init__(self, pool: Pool, offsets: Sequence[int], counts: Sequence[int], most: int) -> None:
        self.pages, self.counts = [Pages(pool, offset) for offset in offsets], list(counts)
        self._most = most
        self._read()

    def keep(self, rows: Sequence[int]) -> None:
        """Go on with ``rows`` only."""
        self.pages, self.counts = [self.pages[r] for r in rows], [self.counts[r] for r in rows]
        self._read()

    def grow(self) -> None:
        """Make room for one more key a row; ``counts`` are one more than at the last call, or not."""
        self._spare -= 1
        if self._spare >= 0:
            return
        spare = [PAGE]
        for i, (row, count) in enumerate(zip(self.pages, self.counts, strict=True)):
            if row.start + count <= self._most:
                if row.reserve(count + 1):
                    self.reading.table[i, : len(row.ids)] = torch.tensor(row.ids)
                spare.append(PAGE * len(row.ids) - count - 1)
        self._spare = min(spare)

    def _read(self) -> None:
        room = -(-max((self._most + 1 - row.start for row in self.pages), default=0) // PAGE)
        self.reading = Reading(self.pages, [[i] for i in range(len(self.pages))], room)
        self._spare = 0  # how often a key more needs no page
        self.grow()
