"""The owners of the key/value pool's blocks: allocation, prefix sharing, eviction."""

from __future__ import annotations

from bisect import insort
from collections import OrderedDict
from dataclasses import dataclass

from soft_reasoning.engine.huggingface.sequence import Sequence

BLOCK = 32
"""Positions per block."""
LOWEST, HIGHEST = 0, -1
"""Index, among the free blocks, of the block that is taken."""


@dataclass
class _Shared:
    """A block of prompt positions. ``key`` is its parent's serial number and its content."""

    key: tuple[int, tuple[int, ...]]
    serial: int
    readers: int = 0


class BlockManager:
    """Allocates the blocks of a pool of ``limit + cache_limit`` blocks.

    A full block of a prompt is looked up by its content and the block before it. It counts the sequences that
    read it. At most ``cache_limit`` blocks without readers stay cached, and the least recently used of them
    is evicted first. Sequences in progress hold at most ``limit`` blocks, including those they will need, so
    a sequence never runs out of blocks half-way.

    Shared blocks are taken from the bottom of the pool, other blocks from its top: so the blocks of a decode
    step lie close together and can be read without a copy.
    """

    def __init__(self, limit: int, cache_limit: int) -> None:
        self.limit: int = limit
        self.cache_limit: int = cache_limit
        self.total: int = limit + cache_limit
        self._free = list(range(self.total))  # sorted
        self._by_key: dict[tuple[int, tuple[int, ...]], int] = {}
        self._shared: dict[int, _Shared] = {}
        self._unread: OrderedDict[int, None] = OrderedDict()  # cached blocks without readers, oldest first
        self._serial = 0
        self._reserved: dict[int, int] = {}  # blocks that each sequence still needs
        self._fresh: list[int] = []
        self.in_use: int = 0

    @property
    def committed(self) -> int:
        """Blocks in use, and those that the sequences in progress will need."""
        return self.in_use + sum(self._reserved.values())

    def can_allocate(self, sequence: Sequence) -> bool:
        """Whether ``sequence`` can be admitted without exceeding the limit."""
        read = sum(self._shared[block].readers > 0 for block in self._cached(sequence))
        return self.committed + blocks_for(sequence.max_tokens) - read <= self.limit

    def allocate(self, sequence: Sequence) -> int:
        """Give ``sequence`` the blocks of its prompt; return how many positions are computed already."""
        table = sequence.block_table = self._cached(sequence)
        hits, sequence.shared_blocks = len(table), _shareable(sequence)
        for block in table:
            if self._shared[block].readers == 0:
                del self._unread[block]
                self.in_use += 1
        while len(table) < sequence.shared_blocks:
            block, key = self._take(LOWEST), self._key(sequence, table)
            self._serial += 1
            self._shared[block], self._by_key[key] = _Shared(key, self._serial), block
            table.append(block)
        for block in table:
            self._shared[block].readers += 1
        unshared = blocks_for(sequence.prompt_tokens) - len(table)
        table += [self._take(HIGHEST) for _ in range(unshared)]
        self._reserved[id(sequence)] = blocks_for(sequence.max_tokens) - len(table)
        return hits * BLOCK

    def grow(self, sequence: Sequence) -> bool:
        """Make room for the newest token; return whether this took another block."""
        full = sequence.position == len(sequence.block_table) * BLOCK
        if full:
            self._reserved[id(sequence)] -= 1
            sequence.block_table.append(self._take(HIGHEST))
        return full

    def release(self, sequence: Sequence) -> None:
        """Take the blocks of ``sequence`` back; shared blocks stay cached as long as there is room."""
        del self._reserved[id(sequence)]
        for block in sequence.block_table[sequence.shared_blocks :]:
            self.in_use -= 1
            insort(self._free, block)
        for block in reversed(sequence.block_table[: sequence.shared_blocks]):
            self._shared[block].readers -= 1
            if self._shared[block].readers == 0:
                self._unread[block] = None
                self.in_use -= 1
        sequence.block_table, sequence.shared_blocks = [], 0
        while len(self._unread) > self.cache_limit:
            block, _ = self._unread.popitem(last=False)
            del self._by_key[self._shared.pop(block).key]
            insort(self._free, block)

    def take_fresh(self) -> list[int]:
        """Blocks allocated since the last call; their contents are undefined."""
        fresh, self._fresh = self._fresh, []
        return fresh

    @property
    def occupied(self) -> int:
        """Blocks in use or cached."""
        return self.in_use + len(self._unread)

    def _cached(self, sequence: Sequence) -> list[int]:
        """The leading blocks of ``sequence`` that are in the cache."""
        blocks: list[int] = []
        while len(blocks) < _shareable(sequence):
            block = self._by_key.get(self._key(sequence, blocks))
            if block is None:
                break
            blocks.append(block)
        return blocks

    def _key(self, sequence: Sequence, before: list[int]) -> tuple[int, tuple[int, ...]]:
        """The key of the shared block of ``sequence`` that follows the blocks ``before``."""
        at = len(before) * BLOCK
        parent = self._shared[before[-1]].serial if before else 0
        return parent, sequence.content[at : at + BLOCK]

    def _take(self, place: int) -> int:
        block = self._free.pop(place)
        self._fresh.append(block)
        self.in_use += 1
        return block


def blocks_for(positions: int) -> int:
    """How many blocks hold ``positions``."""
    return -(-positions // BLOCK)


def _shareable(sequence: Sequence) -> int:
    """Full blocks of the prompt in front of the positions that every sequence computes itself.

    These are its last, and those whose hidden states it averages.
    """
    first = sequence.average_from
    return (sequence.prompt_tokens - 1 if first is None else first) // BLOCK
