"""How the attention of a pass is cut into batched matrix products: pieces, tiles of one size, and chunks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from soft_reasoning.engine.huggingface.block_manager import BLOCK

MASKED = -1e30
"""Finite, so that a tile in which a token sees no key gets weight zero, not NaN."""
MOST_ROWS = {"cpu": 2**13, "cuda": 2**15}
"""Queries times blocks per chunk: the scores fit the CPU's cache, and take little memory of a GPU."""


@dataclass(frozen=True)
class Piece:
    """A block that starts at position ``start``, and ``count`` tokens that read it, from ``first`` on.

    ``size`` >= ``count`` is the height of its matrix products. ``masked``: some reader does not see all of
    the block.
    """

    start: int
    block: int
    first: int
    count: int
    size: int
    masked: bool


def height(count: int) -> int:
    """Return the size of a piece with ``count`` readers.

    Products of fewer than four rows may sum in another order. Few different sizes make few batches.
    """
    return max(count, 4) if count <= 8 else -(-count // 8) * 8


class Tiles:
    """Pieces of one size: blocks (U,), the positions of their first keys, and ``readers`` (U, size).

    A reader equal to ``tokens`` is padding. Where the blocks lie close together, ``blocks`` is a slice, which
    is read without a copy. ``rows`` gives the index of each piece's tile.
    """

    def __init__(self, pieces: Tensor, size: int, masked: bool, tokens: int, device: torch.device) -> None:
        starts, blocks, first, count = pieces.unbind(1)
        place = torch.arange(size)
        readers = torch.where(place < count[:, None], first[:, None] + place, tokens)
        self.masked: bool = masked
        self.blocks: Tensor | slice = blocks.to(device)
        self.rows: Tensor = torch.arange(len(pieces))
        low, high = int(blocks.min()), int(blocks.max()) + 1
        if high - low <= 1.5 * len(blocks) and len(blocks.unique()) == len(blocks):
            self.blocks, self.rows = slice(low, high), blocks - low
            readers = torch.full((high - low, size), tokens).index_copy_(0, self.rows, readers)
            starts = torch.zeros(high - low, dtype=torch.long).index_copy_(0, self.rows, starts)
        self.readers: Tensor = readers.to(device)
        self.starts: Tensor = starts.to(device)
        self._queries: dict[int, Tensor] = {}

    def queries(self, heads: int) -> Tensor:
        """(U * heads * size,): the readers' rows among queries laid out as (tokens, heads)."""
        if heads not in self._queries:
            head = torch.arange(heads, device=self.readers.device)[:, None]
            self._queries[heads] = (self.readers[:, None] * heads + head).flatten()
        return self._queries[heads]

    def select(self, pool: Tensor) -> Tensor:
        """(U, ...): the tiles' blocks of ``pool``."""
        return pool[self.blocks] if isinstance(self.blocks, slice) else pool.index_select(0, self.blocks)

    def bias(self, positions: Tensor, window: int | None) -> Tensor | None:
        """(U, 1, size, 1, BLOCK): 0 for keys that a reader sees, MASKED for others; None if all are seen."""
        if not self.masked:
            return None
        keys = (self.starts[:, None] + torch.arange(BLOCK, device=self.starts.device))[:, None]
        back = positions[self.readers].unsqueeze(2) - keys
        seen = back >= 0 if window is None else (back >= 0) & (back < window)
        return torch.where(seen, 0.0, MASKED)[:, None, :, None]


class Chunk:
    """Pieces that are computed together, as :class:`Tiles`, and how their results are summed.

    The results of all tiles, of (U, heads, size) each, form one list. :meth:`order` selects the results of
    real tokens, by ascending position. ``tokens`` (P,) are their tokens. ``rows`` counts the list for a head.
    """

    def __init__(self, pieces: list[Piece], tokens: int, device: torch.device) -> None:
        values = torch.tensor([(p.start, p.block, p.first, p.count) for p in pieces])
        groups: dict[tuple[int, bool], list[int]] = {}
        for i, piece in enumerate(pieces):
            groups.setdefault((piece.size, piece.masked), []).append(i)
        self.tiles: list[Tiles] = []
        self.rows: int = 0
        first_row = torch.empty(len(pieces), dtype=torch.long)
        sizes = torch.tensor([piece.size for piece in pieces])
        tile = torch.empty(len(pieces), dtype=torch.long)
        for (size, masked), members in groups.items():
            indices = torch.tensor(members)
            tiles = Tiles(values[indices], size, masked, tokens, device)
            first_row[indices], tile[indices] = self.rows, tiles.rows
            self.rows += tiles.readers.numel()
            self.tiles.append(tiles)
        first, count = values[:, 2], values[:, 3]
        within = torch.arange(int(count.sum())) - (count.cumsum(0) - count).repeat_interleave(count)
        self.tokens: Tensor = (first.repeat_interleave(count) + within).to(device)
        each = (x.repeat_interleave(count).to(device) for x in (first_row, tile, sizes))
        self._places = *each, within.to(device)
        self._orders: dict[int, Tensor] = {}

    def order(self, heads: int) -> Tensor:
        """(P * heads,): the indices of the results of each token and head."""
        if heads not in self._orders:
            first_row, tile, size, within = (x[:, None] for x in self._places)
            head = torch.arange(heads, device=within.device)
            self._orders[heads] = (heads * first_row + (heads * tile + head) * size + within).flatten()
        return self._orders[heads]


def split_into_chunks(pieces: list[Piece], tokens: int, device: torch.device) -> list[Chunk]:
    """Sort ``pieces`` by position and split them into chunks of bounded size."""
    most = MOST_ROWS.get(device.type, MOST_ROWS["cuda"])
    chunks: list[list[Piece]] = [[]]
    rows = 0
    for piece in sorted(pieces, key=lambda piece: piece.start):
        if rows + piece.size > most and chunks[-1]:
            chunks.append([])
            rows = 0
        chunks[-1].append(piece)
        rows += piece.size
    return [Chunk(members, tokens, device) for members in chunks if members]
