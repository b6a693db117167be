"""Prepares one batch of sequences, runs the model over it, and returns the next tokens' logits."""

from __future__ import annotations

import inspect
from collections import deque
from functools import partial
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engines.huggingface.attention import Pass, Piece, Pool, current_pass, height
from soft_reasoning.engines.huggingface.block_manager import BLOCK, BlockManager, blocks_for
from soft_reasoning.engines.huggingface.sequence import Sequence

PREFILL_TOKENS = {"cpu": 2048, "cuda": 16384}
MOST_READERS = 64
"""Tokens that read a block in one matrix product."""
KEPT_SHARE, LEAST_KEPT = 4, 8192
"""Cached prefixes may hold this part of ``max_tokens``, or so many positions where that is less."""


class ModelCalls:
    """A model, its embedding lookup and its device, called the way the runners need it."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.lookup = model.get_input_embeddings()
        self.device, self.dtype = self.lookup.weight.device, self.lookup.weight.dtype
        self._accepts = set(inspect.signature(model.forward).parameters)

    def accepts(self, name: str) -> bool:
        """Whether the model's forward takes an argument of this name."""
        return name in self._accepts

    def rows(self, count: int) -> int:
        """How many rows a pass of ``count`` rows gets: on the CPU a result must not depend on their number,
        and products of few rows take other paths than those of many."""
        return count if self.device.type != "cpu" else -(-count // 8) * 8

    def embed(self, ids: list[int]) -> Tensor:
        """(len(ids), D) on the model's device, as its lookup returns it (scale included)."""
        return self.lookup(torch.tensor([ids], dtype=torch.long, device=self.device))[0]

    def embed_at(self, sequence: Sequence, start: int, end: int) -> Tensor:
        """(end - start, D): the prompt's embeddings from position ``start`` up to ``end``."""
        ids = [max(token, 0) for token in sequence.content[start:end]]
        rows = self.embed(ids)
        soft, first = sequence.prepared.soft, len(sequence.prepared.head)
        if soft is not None:
            low, high = max(start, first), min(end, first + len(soft))
            if low < high:
                rows = rows.clone()
                rows[low - start : high - start] = soft[low - first : high - first].to(rows)
        return rows


class ModelRunner:
    """Runs a model whose attention is :mod:`soft_reasoning.engines.huggingface.attention`.

    ``max_tokens`` bounds the positions that sequences in work may hold, prompts and new tokens together.
    """

    shares_prefixes = True

    def __init__(self, calls: ModelCalls, *, max_tokens: int) -> None:
        self.calls = calls
        self._pool = Pool(0)
        self._earlier_peak = 0
        self.resize(max_tokens)

    def resize(self, max_tokens: int) -> None:
        """Drop all keys and values, and bound them by ``max_tokens`` positions from now on."""
        self.max_tokens = max_tokens
        kept = max(max_tokens // KEPT_SHARE, min(max_tokens, LEAST_KEPT))
        self._reset(blocks_for(max_tokens), blocks_for(kept))

        self._pool = self._pool.resized(0)  # frees the memory
        self._reset(blocks_for(max_tokens), blocks_for(kept))

    def _reset(self, limit: int, kept: int) -> None:
        self.blocks = BlockManager(limit, kept)
        self._step: Pass | None = None
        self._rows: list[Sequence] = []

    def begin_run(self) -> None:
        """Forget cached prefixes; peaks count from now on."""
        self._reset(self.blocks.limit, self.blocks.kept)
        self._earlier_peak = 0

    @property
    def position_bytes(self) -> float:
        """Bytes of one position's keys and values, known after the first pass."""
        return self._pool.block_bytes / BLOCK

    @property
    def peak_kv_bytes(self) -> int:
        """Most bytes of keys and values held at once, cached ones included."""
        return max(self._earlier_peak, self.blocks.peak * self._pool.block_bytes)

    @property
    def held_kv_bytes(self) -> int:
        """Bytes of keys and values held now, cached ones included."""
        return self.blocks.held * self._pool.block_bytes

    @property
    def reserved_kv_bytes(self) -> int:
        """Bytes of the pool, most of which may be unused."""
        return self._pool.blocks * self._pool.block_bytes

    @property
    def held_tokens(self) -> int:
        """Positions that the sequences in work hold or will need."""
        return self.blocks.committed * BLOCK

    def admit(self, waiting: deque[Sequence], running: int) -> list[Sequence]:
        """Take sequences off ``waiting`` as long as there is room; at least one where none is running.

        While some are running, others wait until a quarter of the room is free, so that they come together.
        """
        blocks = self.blocks
        if not waiting or (running and blocks.committed > 0.75 * blocks.limit):
            return []
        if not running:  # a prompt beyond the bound runs alone
            limit = max(blocks_for(self.max_tokens), blocks_for(waiting[0].most_tokens))
            if limit != blocks.limit:
                self._earlier_peak = self.peak_kv_bytes
                self._reset(limit, blocks.kept)
        admitted = []
        while waiting and self.blocks.can_allocate(waiting[0]):
            sequence = waiting.popleft()
            sequence.cached_tokens = self.blocks.allocate(sequence)
            admitted.append(sequence)
        return admitted

    def release(self, sequence: Sequence) -> None:
        """``sequence`` is complete."""
        self.blocks.release(sequence)

    def prefill(self, sequences: list[Sequence]) -> Tensor:
        """Compute the prompts of ``sequences`` as far as they are not cached: (R, V) logits after each.

        Sequences that begin alike must be side by side.
        """
        self._prepare_pool()
        batch = _Prefill(sequences)
        limit = PREFILL_TOKENS.get(self.calls.device.type, PREFILL_TOKENS["cuda"])
        found = []
        for first in range(0, batch.tokens, limit):
            rows = batch.between(first, min(first + limit, batch.tokens))
            found.append(self._prefill_pass(batch, rows, first))
        return torch.cat([x for x in found if len(x)])

    def decode(self, sequences: list[Sequence]) -> Tensor:
        """Compute the newest token of every sequence: (R, V) logits of the next."""
        grown = [self.blocks.grow(sequence) for sequence in sequences]
        if self._step is None or any(grown) or sequences != self._rows:
            self._prepare_pool()
            self._step, self._rows = self._decode_pass(sequences), sequences
        else:
            self._step.advance()
        count = len(sequences)
        ids = [sequence.output.ids[-1] for sequence in sequences]
        embeddings = self.calls.embed(ids + [0] * (self.calls.rows(count) - count))
        return self._forward(self._step, embeddings, None)[:count]

    def _prepare_pool(self) -> None:
        if self._pool.blocks != self.blocks.total:
            self._pool = self._pool.resized(self.blocks.total)
        fresh = self.blocks.take_fresh()
        if fresh:
            self._pool.clear(fresh)

    def _forward(self, now: Pass, embeddings: Tensor, wanted: Tensor | None) -> Tensor:
        """float32 logits (N or len(wanted), V) after the packed ``embeddings`` (N, D)."""
        options = {}
        if wanted is not None and self.calls.accepts("logits_to_keep"):
            options["logits_to_keep"] = wanted
        token = current_pass.set(now)
        try:
            logits = self.calls.model(
                inputs_embeds=embeddings.unsqueeze(0), position_ids=now.positions[:-1].unsqueeze(0),
                use_cache=False, return_dict=True, **options,
            ).logits[0]  # fmt: skip
        finally:
            current_pass.reset(token)
        if wanted is not None and not options:
            logits = logits[wanted]
        return logits.float()

    def _prefill_pass(self, batch: _Prefill, rows: list[_Row], first: int) -> Tensor:
        """Run the tokens of ``rows``; logits of those rows whose prompt ends in this pass."""
        calls, device = self.calls, self.calls.device
        tokens = rows[-1].end
        embeddings = [calls.embed_at(row.sequence, row.position, row.position + row.count) for row in rows]
        filling = calls.rows(tokens) - tokens
        embeddings.append(embeddings[0].new_zeros(filling, embeddings[0].shape[1]))
        positions = torch.cat([torch.arange(row.count) + row.position for row in rows])
        written = batch.written(first, first + tokens)

        now = Pass(
            self._pool, torch.cat([positions, torch.zeros(filling, dtype=torch.long)]).to(device),
            written, partial(_prefill_pieces, rows),
        )  # fmt: skip
        last = [row.end - 1 for row in rows if row.position + row.count == row.sequence.prompt_tokens]
        wanted = torch.tensor(last + [0] * (calls.rows(max(len(last), 1)) - len(last)), device=device)
        return self._forward(now, torch.cat(embeddings), wanted)[: len(last)]

    def _decode_pass(self, sequences: list[Sequence]) -> Pass:
        device, count = self.calls.device, len(sequences)
        size = self.calls.rows(count)
        at = torch.tensor([sequence.position for sequence in sequences])
        block = torch.tensor([sequence.block_table[-1] for sequence in sequences])

        positions = torch.cat([at, torch.zeros(size - count, dtype=torch.long)])
        written = torch.arange(count), block, at % BLOCK
        return Pass(self._pool, positions.to(device), written, partial(_decode_pieces, sequences))


class _Row:
    """``count`` tokens of ``sequence`` from ``position`` on, which end before token ``end`` of a pass."""

    def __init__(self, sequence: Sequence, position: int, count: int, end: int) -> None:
        self.sequence, self.position, self.count, self.end = sequence, position, count, end


class _Prefill:
    """The prompt tokens that a batch computes, one after another, and where their keys go.

    A position that a sequence shares with the one before it is computed once. Where it lies in a block of its
    own (the last, unfinished block of a prompt), its keys are written to both.
    """

    def __init__(self, sequences: list[Sequence]) -> None:
        self.tokens = 0
        self._rows: list[tuple[Sequence, int, int]] = []  # sequence, first position, first token
        writes: list[tuple[int, int, int]] = []  # token, block, offset
        before: Sequence | None = None
        tail: list[int] = []  # tokens that ``before`` has in its own blocks
        for sequence in sequences:
            start, table = sequence.cached_tokens, sequence.block_table
            edge = sequence.shared_blocks * BLOCK
            tail = tail[: _common_tail(before, sequence)] if before is not None and start == edge else []
            start += len(tail)
            sequence.cached_tokens, before = start, sequence
            count = sequence.prompt_tokens - start
            new = range(self.tokens, self.tokens + count)
            tail = [*tail, *new[max(0, edge - start) :]]
            placed = [*zip(range(start, edge), new, strict=False), *enumerate(tail, edge)]
            writes += [(token, table[p // BLOCK], p % BLOCK) for p, token in placed]
            self._rows.append((sequence, start, self.tokens))
            self.tokens += count
        self._writes = torch.tensor(sorted(writes)).unbind(1)

    def between(self, low: int, high: int) -> list[_Row]:
        """The rows of a pass over the tokens from ``low`` up to ``high``."""
        rows = []
        for sequence, start, token in self._rows:
            first, end = max(token, low), min(token + sequence.prompt_tokens - start, high)
            if first < end:
                rows.append(_Row(sequence, start + first - token, end - first, end - low))
        return rows

    def written(self, low: int, high: int) -> tuple[Tensor, Tensor, Tensor]:
        """(source, block, offset) of the tokens from ``low`` up to ``high``."""
        first, end = torch.searchsorted(self._writes[0].contiguous(), torch.tensor([low, high])).tolist()
        source, block, offset = (x[first:end] for x in self._writes)
        return source - low, block, offset


def _common_tail(one: Sequence, other: Sequence) -> int:
    """How many positions behind their shared blocks both prompts have in common, other's last left out."""
    edge = one.shared_blocks * BLOCK
    if one.block_table[: one.shared_blocks] != other.block_table[: other.shared_blocks]:
        return 0
    count, most = 0, min(one.prompt_tokens, other.prompt_tokens - 1) - edge
    while count < most and one.content[edge + count] == other.content[edge + count]:
        count += 1
    return count


def _prefill_pieces(rows: list[_Row], window: int | None) -> list[Piece]:
    """Every block that the tokens of ``rows`` read."""
    ranges: dict[tuple[int, int], list[list[int]]] = {}
    diagonal: set[tuple[int, int]] = set()  # blocks that some of their own tokens read
    for row in rows:
        last, begin = row.position + row.count - 1, row.end - row.count
        for at in range(0, last + 1, BLOCK):
            first, end = max(row.position, at), last + 1
            if window is not None:
                end = min(end, at + BLOCK - 1 + window)
            if first < end:
                key = at, row.sequence.block_table[at // BLOCK]
                if first < at + BLOCK or window is not None:
                    diagonal.add(key)
                _extend(ranges.setdefault(key, []), begin + first - row.position, begin + end - row.position)
    return _pieces(ranges, diagonal)


def _decode_pieces(sequences: list[Sequence], window: int | None) -> list[Piece]:
    """Every block that one new token per sequence reads: shared ones, which are full, and their own."""
    shared: dict[tuple[int, int], list[list[int]]] = {}
    own = []
    for row, sequence in enumerate(sequences):
        first = 0 if window is None else max(0, sequence.position - window + 1) // BLOCK
        for i, block in enumerate(sequence.block_table[first:], first):
            if i < sequence.shared_blocks:
                _extend(shared.setdefault((i * BLOCK, block), []), row, row + 1)
            else:
                own.append(Piece(i * BLOCK, block, row, 1, 1, True))
    return _pieces(shared, set(shared) if window is not None else set()) + own


def _extend(ranges: list[list[int]], first: int, end: int) -> None:
    """Add the tokens from ``first`` up to ``end``, to the last range where they follow it."""
    if ranges and ranges[-1][1] == first:
        ranges[-1][1] = end
    else:
        ranges.append([first, end])


def _pieces(ranges: dict[tuple[int, int], list[list[int]]], masked: set[tuple[int, int]]) -> list[Piece]:
    """Pieces of the blocks (position, block), which ranges of tokens read."""
    pieces = []
    for key, some in ranges.items():
        for begin, end in some:
            for first in range(begin, end, MOST_READERS):
                count = min(MOST_READERS, end - first)
                pieces.append(Piece(*key, first, count, height(count), key in masked))
    return pieces
