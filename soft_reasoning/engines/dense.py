"""Runs over keys and values in dense tensors, which PyTorch's operations read: any device and dtype."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from soft_reasoning.engines.allocation import is_out_of_memory
from soft_reasoning.engines.graphs import Recorded
from soft_reasoning.engines.kv import Block, OwnKeys, Part, join
from soft_reasoning.engines.passes import Bucket, Prefill, Step
from soft_reasoning.engines.planning import Layout
from soft_reasoning.engines.runners import ModelCalls, Read, TreeRunner

log = logging.getLogger(__name__)


class DenseRunner(TreeRunner):
    """``record`` asks for steps replayed as CUDA graphs."""

    layout = Layout(shared=True, padded=True)

    def __init__(
        self, calls: ModelCalls, *, prefill_tokens: int, kept_tokens: int, record: bool = False
    ) -> None:
        super().__init__(calls, prefill_tokens=prefill_tokens, kept_tokens=kept_tokens)
        self.record = record
        self.peak_kv_bytes = self.held_kv_bytes = 0

    def begin_run(self) -> None:
        super().begin_run()
        self.peak_kv_bytes = 0

    def _drop_batch(self) -> None:
        self._changed()
        self._parts: list[Part] = []
        self._own = OwnKeys([], self.calls.device)

    def _begin(self, reads: Sequence[Read], counts: Sequence[int], filling: int) -> None:
        self._parts = _parts(reads, range(len(counts) - filling), filling, self.calls.device)
        self._own = OwnKeys(counts, self.calls.device)

    def _keep(self, rows: Sequence[int], filling: int) -> None:
        parts = [part.keep(rows[: len(rows) - filling], filling) for part in self._parts]
        self._parts = [part for part in parts if part is not None]
        self._own.keep(rows)
        self._changed()

    def _block(self, lengths: Sequence[int], starts: Sequence[int]) -> Block:
        return Block(lengths, starts)

    def _joined(self, blocks: Sequence[Block]) -> Block:
        return join(blocks)

    def _prefill_pass(
        self, packed: Sequence[tuple[int, Sequence[int]]], lengths: Sequence[int], positions: Tensor,
        starts: Sequence[int], reads: Sequence[Read], kept: Block | OwnKeys,
    ) -> Prefill:  # fmt: skip
        buckets, targets, first = [], [], 0
        for n, which in packed:
            here = positions[first : first + n * len(which)].view(-1, n)
            parts = _parts(reads, which, 0, self.calls.device)
            buckets.append(Bucket(first, len(which), n, parts, here, max(starts[r] for r in which) + n))
            targets.append(torch.tensor(which, device=self.calls.device))
            first += here.numel()
        return Prefill(buckets, targets, kept, self._last)

    def _prefilled(self, now: Prefill, reads: Sequence[Read], kept: Block | OwnKeys) -> None:
        blocks = [block for block, _ in reads] + ([kept] if isinstance(kept, Block) else [])
        self._count(blocks, (part for bucket in now.buckets for part in bucket.parts))

    def _step(self, embeddings: Tensor) -> Tensor:
        if self._own.reserve(max(self._own.counts) + 1):
            self._changed()
        if self._now is None:
            self._now = Step(self._own, self._parts, self._offset, self._most)
            logits = self._run(embeddings)
            self._count((part.block for part in self._parts), self._parts)  # nothing grows in later steps
        else:
            # What was just run once for these shapes can be recorded, and replayed until they change.
            logits = self._replay(embeddings) if self.record else self._run(embeddings)
        self._own.counts = [count + 1 for count in self._own.counts]
        return logits

    def _run(self, embeddings: Tensor) -> Tensor:
        logits = self._forward(self._now, embeddings, self._now.positions)
        self._now.advance()
        return logits

    def _replay(self, embeddings: Tensor) -> Tensor:
        try:
            self._recorded = self._recorded or Recorded(self._run, embeddings)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            log.warning("decode steps are not recorded as CUDA graphs: %s", error)
            self.record = False
            self._now = Step(self._own, self._parts, self._offset, self._most)
            return self._run(embeddings)
        return self._recorded(embeddings)

    def _changed(self) -> None:
        """Rows or room have changed."""
        self._now: Step | None = None
        self._recorded: Recorded | None = None

    def _count(self, blocks: Iterable[Block], parts: Iterable[Part]) -> None:
        """Note what is held: the rows' own, what is kept, ``blocks``, and what ``parts`` copied of them."""
        others = {id(block): block.bytes for block in (*blocks, *self._kept.blocks())}
        held = self._own.bytes + sum(others.values()) + sum(part.copied for part in parts)
        self.held_kv_bytes = held
        self.peak_kv_bytes = max(self.peak_kv_bytes, held)


def _parts(reads: Sequence[Read], rows: Sequence[int], filling: int, device: torch.device) -> list[Part]:
    """What ``rows`` read of each block, blocks that none of them reads left out."""
    chosen = [(block, [groups[r] for r in rows]) for block, groups in reads]
    return [Part(block, groups, filling, device) for block, groups in chosen if max(groups) >= 0]
