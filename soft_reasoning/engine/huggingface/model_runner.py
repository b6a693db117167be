"""Prepares one batch of sequences, runs the model over it, and returns the next tokens' logits."""

from __future__ import annotations

import copy
import inspect
import math
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from soft_reasoning.engine.devices import on_device
from soft_reasoning.engine.huggingface.attention import NAME, KeyValuePool, Pass, current_pass
from soft_reasoning.engine.huggingface.block_manager import BLOCK, BlockManager, blocks_for
from soft_reasoning.engine.huggingface.sequence import Sequence
from soft_reasoning.engine.huggingface.tiles import Piece, height

PREFILL_TOKENS = {"cpu": 2048, "cuda": 16384}
PADDING = 8
"""On the CPU a pass has a multiple of this many rows: products of fewer rows may sum in another order."""
MOST_READERS = 64
"""Tokens that read a block in one matrix product."""
CACHE_SHARE, LEAST_CACHED = 16, 8192
"""Cached prefixes hold at most the larger of ``max_tokens / CACHE_SHARE`` and ``LEAST_CACHED`` positions."""


class Runner:
    """A model, its embedding lookup and its device: the base of both runners.

    A pass has a multiple of ``padding`` rows. ``batch_invariant``: in the probe no bit of a row depended on
    the other rows of its batch. ``max_rows`` bounds the rows of a batch. ``position_bytes`` is the size of a
    position's keys and values, known after the first pass.
    """

    max_rows: int | None = None
    position_bytes: float = 0.0
    peak_kv_bytes: int = 0
    batch_invariant: bool = False

    def __init__(self, model: Any) -> None:
        self.model = model
        self.lookup: Any = model.get_input_embeddings()
        self.device: torch.device = self.lookup.weight.device
        self.dtype: torch.dtype = self.lookup.weight.dtype
        self.accepts = set(inspect.signature(model.forward).parameters)
        self.padding: int = PADDING if self.device.type == "cpu" else 1

    @property
    def reserved_kv_bytes(self) -> int:
        """Bytes that are reserved for keys and values."""
        return 0

    def padded_count(self, count: int) -> int:
        """Return how many rows a pass of ``count`` rows gets: the next multiple of ``padding``."""
        return -(-count // self.padding) * self.padding

    def embed(self, ids: list[int]) -> Tensor:
        """(len(ids), D) on the model's device, as the model's lookup returns it (scale included)."""
        return self.lookup(on_device(ids, self.device)[None])[0]

    def embed_newest(self, sequences: list[Sequence]) -> Tensor:
        """(padded_count(len(sequences)), D): the embeddings of the newest tokens, and filler rows."""
        ids = [sequence.ids[-1] for sequence in sequences]
        return self.embed(ids + ids[-1:] * (self.padded_count(len(ids)) - len(ids)))

    @contextmanager
    def reading_states(self, sequences: list[Sequence]) -> Generator[dict[float, Tensor]]:
        """Collect the hidden states at the depths that ``sequences`` request, in the order of the pass."""
        asked = [sequence.request.hidden_state for sequence in sequences]
        depths = {depth for depth in asked if depth is not None}
        states: dict[float, Tensor] = {}
        handles = [self._read_at(depth, states) for depth in depths]
        try:
            yield states
        finally:
            for handle in handles:
                handle.remove()

    def _read_at(self, depth: float, states: dict[float, Tensor]) -> RemovableHandle:
        """Keep what the layer at ``depth`` returns, or what the LM head reads at depth 1."""
        if depth == 1:
            head = self.model.get_output_embeddings()
            return head.register_forward_pre_hook(lambda _, inputs: states.update({depth: inputs[0]}))

        def keep(_: object, __: object, output: Any) -> None:
            states[depth] = output if isinstance(output, Tensor) else output[0]

        layers = next(x for x in self.model.get_decoder().modules() if isinstance(x, torch.nn.ModuleList))
        return layers[max(round(depth * len(layers)), 1) - 1].register_forward_hook(keep)

    def embed_at(self, sequence: Sequence, start: int, end: int) -> Tensor:
        """(end - start, D): the prompt's embeddings from position ``start`` up to ``end``."""
        ids = [max(token, 0) for token in sequence.content[start:end]]
        rows = self.embed(ids)
        soft, first = sequence.soft, len(sequence.head)
        if soft is not None:
            low, high = max(start, first), min(end, first + len(soft))
            if low < high:
                rows = rows.clone()
                rows[low - start : high - start] = soft[low - first : high - first].to(rows)
        return rows


class ModelRunner(Runner):
    """Runs a model whose attention is :mod:`soft_reasoning.engine.huggingface.attention`.

    It runs a copy of ``model`` that shares its weights. ``max_tokens`` bounds the positions of all sequences
    in progress, prompts and new tokens together.
    """

    def __init__(self, model: Any, *, max_tokens: int) -> None:
        view = copy.deepcopy(model, {id(x): x for x in (*model.parameters(), *model.buffers())})
        view.set_attn_implementation(NAME)
        super().__init__(view)
        self._pool = KeyValuePool(0)
        self._pass_tokens = PREFILL_TOKENS.get(self.device.type, PREFILL_TOKENS["cuda"])
        self.resize(max_tokens)

    def resize(self, max_tokens: int) -> None:
        """Drop all keys and values, and bound them by ``max_tokens`` positions from now on."""
        self.max_tokens = max_tokens
        cached = max(max_tokens // CACHE_SHARE, min(max_tokens, LEAST_CACHED))
        self._pool = self._pool.resized(0)  # frees the memory
        self._reset(blocks_for(max_tokens), blocks_for(cached))

    def _reset(self, limit: int, cache_limit: int) -> None:
        self.blocks: BlockManager = BlockManager(limit, cache_limit)
        self._step: Pass | None = None
        self._rows: list[Sequence] = []
        self._entering = False

    def begin_run(self) -> None:
        """Forget cached prefixes, and restart ``peak_kv_bytes``."""
        self._reset(self.blocks.limit, self.blocks.cache_limit)
        self.peak_kv_bytes = 0

    @property
    def reserved_kv_bytes(self) -> int:
        """Bytes of the pool, much of which may be unused."""
        return self._pool.blocks * self._pool.block_bytes

    @property
    def reserved_tokens(self) -> int:
        """Positions that the sequences in progress hold or will need."""
        return self.blocks.committed * BLOCK

    def admit(self, waiting: deque[Sequence], running: int) -> list[Sequence]:
        """Remove sequences from ``waiting`` as long as there is room; at least one if none is running.

        While some are running, new sequences wait until a quarter of the room is free, to form a batch. The
        batch enters by prompts of about one pass a call, so that no call takes minutes.
        """
        blocks, rows = self.blocks, self.max_rows or math.inf
        full = blocks.committed > 0.75 * blocks.limit or running > 0.75 * rows
        if not waiting or (running and full and not self._entering):
            return []
        if not running:  # a prompt beyond the bound runs alone
            limit = max(blocks_for(self.max_tokens), blocks_for(waiting[0].max_tokens))
            if limit != blocks.limit:
                self._reset(limit, blocks.cache_limit)
        admitted, left = list[Sequence](), 0.75 * self._pass_tokens
        while (
            waiting and left > 0 and running + len(admitted) < rows and self.blocks.can_allocate(waiting[0])
        ):
            sequence = waiting.popleft()
            sequence.cached_tokens = self.blocks.allocate(sequence)
            left -= sequence.prompt_tokens - sequence.cached_tokens
            admitted.append(sequence)
        self._entering = left <= 0
        return admitted

    def release(self, sequence: Sequence) -> None:
        """Free the blocks of ``sequence``, which is complete."""
        self.blocks.release(sequence)

    def prefill(self, sequences: list[Sequence]) -> Tensor:
        """Compute what is not cached of the prompts of ``sequences``: (R, V) logits after each prompt."""
        self._prepare_pool()
        logits = [self._prefill_pass(rows) for rows in _passes(sequences, self._pass_tokens)]
        return torch.cat([x for x in logits if len(x)])

    def decode(self, sequences: list[Sequence]) -> Tensor:
        """Compute the newest token of every sequence: (R, V) logits of the next token."""
        grown = [self.blocks.grow(sequence) for sequence in sequences]
        self._prepare_pool()
        if self._step is None or any(grown) or sequences != self._rows:
            self._rows = list(sequences)  # the caller's list may change
            self._step = self._decode_pass(self._rows)
        else:
            self._step.advance()
        return self._forward(self._step, self.embed_newest(sequences), None)[: len(sequences)]

    def _prepare_pool(self) -> None:
        if self._pool.blocks != self.blocks.total:
            self._pool = self._pool.resized(0)  # frees the memory
            self._pool = self._pool.resized(self.blocks.total)
        if fresh := self.blocks.take_fresh():
            self._pool.clear(fresh)

    def _forward(self, current: Pass, embeddings: Tensor, wanted: Tensor | None) -> Tensor:
        """Logits (N or len(wanted), V) after the packed ``embeddings`` (N, D)."""
        options = {}
        if wanted is not None and "logits_to_keep" in self.accepts:
            options["logits_to_keep"] = wanted
        token = current_pass.set(current)
        try:
            [logits] = self.model(
                inputs_embeds=embeddings.unsqueeze(0),
                position_ids=current.positions.unsqueeze(0),
                use_cache=False,
                return_dict=True,
                **options,
            ).logits
        finally:
            current_pass.reset(token)
        self.peak_kv_bytes = max(self.peak_kv_bytes, self.blocks.occupied * self._pool.block_bytes)
        self.position_bytes = self._pool.block_bytes / BLOCK
        return logits if wanted is None or options else logits[wanted]

    def _prefill_pass(self, rows: list[_Row]) -> Tensor:
        """Run the tokens of ``rows``; return logits of those rows whose prompt ends in this pass."""
        device, tokens = self.device, rows[-1].end
        embeddings = [self.embed_at(row.sequence, row.position, row.position + row.tokens) for row in rows]
        filling = self.padded_count(tokens) - tokens
        embeddings.append(embeddings[0].new_zeros(filling, embeddings[0].shape[1]))
        positions = torch.cat([torch.arange(row.tokens) + row.position for row in rows])
        tables = [torch.tensor(row.sequence.block_table).repeat_interleave(BLOCK) for row in rows]
        blocks = [table[row.position :][: row.tokens] for row, table in zip(rows, tables, strict=True)]
        written = torch.cat(blocks), positions % BLOCK
        padded = torch.cat([positions, torch.zeros(filling, dtype=torch.long)])
        current = Pass(self._pool, padded, written, partial(_prefill_pieces, rows), device)
        ending = [row for row in rows if row.position + row.tokens == row.sequence.prompt_tokens]
        last = [row.end - 1 for row in ending]
        wanted = on_device(last + [0] * (self.padded_count(max(len(last), 1)) - len(last)), device)
        with self.reading_states([row.sequence for row in rows]) as states:
            logits = self._forward(current, torch.cat(embeddings), wanted)
        self._keep_states(rows, ending, {depth: read[0] for depth, read in states.items()})
        return logits[: len(last)]

    def _keep_states(self, rows: list[_Row], ending: list[_Row], states: dict[float, Tensor]) -> None:
        """Give the sequences of ``rows`` their ``states`` (N, D) of this pass, by depth."""
        for row in rows:
            depth = row.sequence.request.hidden_state
            if depth is not None and depth < 1:
                row.sequence.sum_states(states[depth][row.end - row.tokens : row.end], row.position)
        for place, row in enumerate(ending):
            depth = row.sequence.request.hidden_state
            if depth is not None:
                chosen = depth == 1 and "logits_to_keep" in self.accepts  # the LM head reads what is wanted
                row.sequence.keep_state(states[depth][place if chosen else row.end - 1])

    def _decode_pass(self, sequences: list[Sequence]) -> Pass:
        count = len(sequences)
        positions = torch.tensor([sequence.position for sequence in sequences])
        block = torch.tensor([sequence.block_table[-1] for sequence in sequences])
        padded = torch.cat([positions, torch.zeros(self.padded_count(count) - count, dtype=torch.long)])
        written = block, positions % BLOCK
        return Pass(self._pool, padded, written, partial(_decode_pieces, sequences), self.device)


class _Row(NamedTuple):
    """``tokens`` tokens of ``sequence`` from ``position`` on, whose place in a pass ends before ``end``."""

    sequence: Sequence
    position: int
    tokens: int
    end: int


def _passes(sequences: list[Sequence], max_tokens: int) -> list[list[_Row]]:
    """The prompt tokens of ``sequences`` that are not cached, at most ``max_tokens`` in a pass."""
    passes: list[list[_Row]] = [[]]
    end = 0
    for sequence in sequences:
        position = sequence.cached_tokens
        while position < sequence.prompt_tokens:
            if end == max_tokens:
                passes.append([])
                end = 0
            count = min(sequence.prompt_tokens - position, max_tokens - end)
            end += count
            passes[-1].append(_Row(sequence, position, count, end))
            position += count
    return passes


def _prefill_pieces(rows: list[_Row], window: int | None) -> list[Piece]:
    """Every block that the tokens of ``rows`` read."""
    ranges: dict[tuple[int, int], list[list[int]]] = {}
    diagonal: set[tuple[int, int]] = set()  # blocks read by tokens whose own keys are in them
    for row in rows:
        last, begin = row.position + row.tokens - 1, row.end - row.tokens
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
    """Every block that one new token per sequence reads: shared blocks, which are full, and unshared."""
    shared: dict[tuple[int, int], list[list[int]]] = {}
    unshared = []
    for row, sequence in enumerate(sequences):
        first = 0 if window is None else max(0, sequence.position - window + 1) // BLOCK
        for i, block in enumerate(sequence.block_table[first:], first):
            if i < sequence.shared_blocks:
                _extend(shared.setdefault((i * BLOCK, block), []), row, row + 1)
            else:
                unshared.append(Piece(i * BLOCK, block, row, 1, 1, True))
    return _pieces(shared, set(shared) if window is not None else set()) + unshared


def _extend(ranges: list[list[int]], first: int, end: int) -> None:
    """Add the tokens from ``first`` up to ``end``, to the last range where they follow it."""
    if ranges and ranges[-1][1] == first:
        ranges[-1][1] = end
    else:
        ranges.append([first, end])


def _pieces(ranges: dict[tuple[int, int], list[list[int]]], masked: set[tuple[int, int]]) -> list[Piece]:
    """Cut ``ranges``, the ranges of tokens that read each block (position, block), into pieces."""
    pieces = []
    for key, block_ranges in ranges.items():
        for begin, end in block_ranges:
            for first in range(begin, end, MOST_READERS):
                count = min(MOST_READERS, end - first)
                pieces.append(Piece(*key, first, count, height(count), key in masked))
    return pieces
