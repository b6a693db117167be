"""Runs over keys and values in pages, which compiled attention reads: float32 on the CPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from soft_reasoning.engines.native import PagedAttention
from soft_reasoning.engines.pages import OwnPages, PagedBlock, Pool, Reading
from soft_reasoning.engines.passes import PagedPass
from soft_reasoning.engines.planning import Layout
from soft_reasoning.engines.runners import ModelCalls, Read, TreeRunner


class PagedRunner(TreeRunner):
    """``attention`` reads the pages; their memory is used again from batch to batch."""

    compact_below = 1.0  # nothing is copied
    layout = Layout(shared=True, padded=False)

    def __init__(
        self, calls: ModelCalls, attention: PagedAttention, *, prefill_tokens: int, kept_tokens: int
    ) -> None:
        self._attention, self._pool = attention, Pool()
        self._peak = 0  # bytes, of earlier pools
        super().__init__(calls, prefill_tokens=prefill_tokens, kept_tokens=kept_tokens)

    @property
    def peak_kv_bytes(self) -> int:
        return max(self._peak, self._pool.most * self._pool.page_bytes)

    @property
    def held_kv_bytes(self) -> int:
        return self._pool.used * self._pool.page_bytes

    def begin_run(self) -> None:
        super().begin_run()
        self._peak, self._pool.most = 0, self._pool.used

    def forget(self) -> None:
        self._peak = self.peak_kv_bytes
        super().forget()
        self._pool = Pool()

    def _drop_batch(self) -> None:
        self._now: PagedPass | None = None
        self._shared: list[Read] = []
        self._own: OwnPages | None = None

    def _begin(self, reads: Sequence[Read], counts: Sequence[int], filling: int) -> None:
        rows = len(counts) - filling
        self._shared = list(reads)
        self._own = OwnPages(self._pool, self._offset[:rows], counts[:rows], self._most)

    def _keep(self, rows: Sequence[int], filling: int) -> None:
        live = rows[: len(rows) - filling]
        self._shared = [(block, [groups[r] for r in live]) for block, groups in self._shared]
        self._own.keep(live)
        self._now = None

    def _block(self, lengths: Sequence[int], starts: Sequence[int]) -> PagedBlock:
        return PagedBlock.new(self._pool, lengths, starts)

    def _joined(self, blocks: Sequence[PagedBlock]) -> PagedBlock:
        return PagedBlock([prefix for block in blocks for prefix in block.pages])

    def _prefill_pass(
        self, packed: Sequence[tuple[int, Sequence[int]]], lengths: Sequence[int], positions: Tensor,
        starts: Sequence[int], reads: Sequence[Read], kept: PagedBlock | OwnPages,
    ) -> PagedPass:  # fmt: skip
        rows, tokens, first = [], [], 0
        for n, which in packed:
            for r in which:
                rows.append(r)
                tokens.append(range(first, first + lengths[r]))
                first += n
        own = Reading([kept.pages[r] for r in rows], tokens)
        shared = [Reading.of(block, [groups[r] for r in rows], tokens) for block, groups in reads]
        return PagedPass(self._attention, self._pool, positions, own, shared, self._last)

    def _prefilled(self, now: PagedPass, reads: Sequence[Read], kept: PagedBlock | OwnPages) -> None:
        """The pool counts what is held."""

    def _step(self, embeddings: Tensor) -> Tensor:
        self._own.grow()
        if self._now is None:
            self._now = self._new_step(len(embeddings))
        logits = self._forward(self._now, embeddings, self._now.positions)
        self._now.positions.add_(1).clamp_(max=self._most)
        self._own.counts = [count + 1 for count in self._own.counts]
        return logits

    def _new_step(self, rows: int) -> PagedPass:
        """Rows beyond those that keep something of their own only fill up."""
        own = self._own
        ends = [offset + count for offset, count in zip(self._offset, own.counts, strict=False)]
        positions = torch.zeros(rows, dtype=torch.long)
        positions[: len(ends)] = torch.tensor(ends).clamp_(max=self._most)
        each = [[row] for row in range(len(ends))]
        shared = [Reading.of(block, groups, each) for block, groups in self._shared]
        return PagedPass(self._attention, self._pool, positions, own.reading, shared)
