"""Two ways to run a model over a batch of jobs: over a tree of shared keys and values, or plainly.

A runner is started on a batch and gives the logits (R, V) of each row's first new token; every ``step``
feeds one token a row and gives the next logits; ``keep`` drops rows. The decode loop sees nothing else.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engines.kv import TILE, Block, TreeCache, Wiring, join_blocks, round_up
from soft_reasoning.engines.planning import Job
from soft_reasoning.engines.tree import active

SHARED_KEPT = 4
"""How many run-wide prefixes stay in memory (candidates and verifier have one each)."""


class ModelCalls:
    """A model, its embedding lookup and its devices, called the way every runner needs it.

    ``rows`` is the multiple to which batches are filled up: on the CPU a row's result is then bitwise
    independent of how many rows there are; elsewhere it is 1.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.lookup = model.get_input_embeddings()
        weight = self.lookup.weight
        self.device, self.dtype = weight.device, weight.dtype
        self.rows = TILE if self.device.type == "cpu" else 1
        self.accepts = set(inspect.signature(model.forward).parameters)

    def embed(self, ids: Sequence[int]) -> Tensor:
        """(len(ids), D) on the model's device, scale included."""
        return self.lookup(torch.tensor([list(ids)], dtype=torch.long, device=self.device))[0]

    def own_embeddings(self, job: Job) -> Tensor:
        """(job.own, D): the soft tokens and what follows them."""
        parts = [] if job.soft is None else [job.soft.to(self.device, self.dtype)]
        return torch.cat([*parts, self.embed(job.tail)]) if job.tail else parts[0]

    def last_logits(self, **kwargs: Any) -> tuple[Tensor, Any]:
        """float32 logits (R, V) at the last position, and the model's whole output."""
        if "logits_to_keep" in self.accepts:
            kwargs["logits_to_keep"] = 1
        out = self.model(use_cache=True, return_dict=True, **kwargs)
        return out.logits[:, -1].float(), out


class TreeRunner:
    """Shared prefixes computed and kept once; see :mod:`soft_reasoning.engines.tree`."""

    def __init__(self, calls: ModelCalls, *, prefill_tokens: int) -> None:
        self.calls = calls
        self.granularity = calls.rows
        self.prefill_tokens = prefill_tokens
        self._shared: OrderedDict[tuple[int, ...], Block] = OrderedDict()
        self.cache: TreeCache
        self._offset: list[int] = []

    def start(self, jobs: Sequence[Job]) -> tuple[Tensor, list[int]]:
        """Logits (R, V) of the rows, the first ``len(jobs)`` of which are the jobs (the rest fills up the
        batch), and how many prompt positions of each job were computed for another row or run."""
        jobs = list(jobs)
        filled = jobs + [jobs[-1]] * (round_up(len(jobs), self.calls.rows) - len(jobs))
        parts, cached = self._parts(filled)
        self.cache = TreeCache(len(filled), parts, self.calls.device)
        self._offset = [len(j.prefix) for j in filled]
        unique: dict[int, Tensor] = {}
        for job in jobs:
            unique[id(job)] = self.calls.own_embeddings(job)
        own = [unique[id(job)] for job in filled]
        room = max(j.own for j in jobs) + min(64, max(j.max_new_tokens for j in jobs))
        before = [x[:-1] for x in own]
        if any(len(x) for x in before):
            self._pass(self.cache, before, self._offset, room)
        last = torch.stack([x[-1] for x in own]).unsqueeze(1)
        return self._step(last, room), cached[: len(jobs)]

    def step(self, tokens: Tensor) -> Tensor:
        """Feed ``tokens`` (R,); logits (R, V) of the next."""
        return self._step(self.calls.lookup(tokens.to(self.calls.device).unsqueeze(1)), 0)

    def keep(self, rows: Sequence[int]) -> list[int]:
        """Go on with ``rows``, filled up; returns the rows as they now are."""
        rows = list(rows)
        rows += [rows[-1]] * (round_up(len(rows), self.calls.rows) - len(rows))
        self.cache.keep(rows)
        self._offset = [self._offset[r] for r in rows]
        return rows

    def forget(self) -> None:
        """Drop what is kept between batches."""
        self._shared.clear()

    def _parts(self, jobs: list[Job]) -> tuple[list[tuple[Block, Wiring]], list[int]]:
        device = self.calls.device
        heads = list(dict.fromkeys(j.prefix[: j.shared] for j in jobs if j.shared))
        known = {head for head in heads if head in self._shared}
        prompts = list(dict.fromkeys((j.prefix, j.shared) for j in jobs))
        parts: list[tuple[Block, Wiring]] = []
        if heads:
            block = join_blocks([self._shared_block(head) for head in heads])
            parts.append((block, self._wire_heads(heads, [(j.prefix, j.shared) for j in jobs])))
        rest = [p for p in prompts if len(p[0]) > p[1]]
        if rest:
            where = {prompt: i for i, prompt in enumerate(rest)}
            prompt_block = self._prompt_block(rest, heads, parts[0][0] if heads else None)
            groups = [where.get((j.prefix, j.shared), -1) for j in jobs]
            parts.append((prompt_block, Wiring(groups, len(rest), device)))
        return parts, _cached_counts(jobs, known)

    def _wire_heads(self, heads: list[tuple[int, ...]], prompts: list[tuple[tuple[int, ...], int]]) -> Wiring:
        where = {head: i for i, head in enumerate(heads)}
        groups = [where[p[:shared]] if shared else -1 for p, shared in prompts]
        return Wiring(groups, len(heads), self.calls.device)

    def _shared_block(self, head: tuple[int, ...]) -> Block:
        if head not in self._shared:
            cache = TreeCache(1, [], self.calls.device)
            self._pass(cache, [self.calls.embed(head)], [0], 0)
            self._shared[head] = cache.as_block([0])
            while len(self._shared) > SHARED_KEPT:
                self._shared.popitem(last=False)
        self._shared.move_to_end(head)
        return self._shared[head]

    def _prompt_block(
        self, prompts: list[tuple[tuple[int, ...], int]], heads: list[tuple[int, ...]], block: Block | None
    ) -> Block:
        """Keys and values of each prompt behind its run-wide part, in passes of ``prefill_tokens``."""
        blocks, at = [], 0
        while at < len(prompts):
            longest, end = 0, at
            while end < len(prompts):
                longest = max(longest, len(prompts[end][0]) - prompts[end][1])
                if end > at and round_up(longest) * (end + 1 - at) > self.prefill_tokens:
                    break
                end += 1
            some = prompts[at:end]
            parts = [] if block is None else [(block, self._wire_heads(heads, some))]
            cache = TreeCache(len(some), parts, self.calls.device)
            starts = [shared for _, shared in some]
            self._pass(cache, [self.calls.embed(p[shared:]) for p, shared in some], starts, 0)
            blocks.append(cache.as_block(starts))
            at = end
        return join_blocks(blocks)

    def _pass(self, cache: TreeCache, rows: list[Tensor], starts: Sequence[int], room: int) -> None:
        """Run ``rows`` (ragged, (n, D) each) through the model for their keys and values alone."""
        counts = [len(x) for x in rows]
        steps = round_up(max(counts), TILE if self.calls.rows > 1 else 1)
        embeddings = rows[0].new_zeros(len(rows), steps, rows[0].shape[-1])
        for i, x in enumerate(rows):
            embeddings[i, : counts[i]] = x
        self._forward(cache, embeddings, starts, room)
        cache.advance(counts)

    def _step(self, embeddings: Tensor, room: int) -> Tensor:
        starts = [offset + own for offset, own in zip(self._offset, self.cache.own, strict=True)]
        # Half as much room again whenever a buffer is full: few copies, little left unused.
        logits = self._forward(self.cache, embeddings, starts, room or max(self.cache.own) * 3 // 2)
        self.cache.advance([1] * self.cache.rows)
        return logits

    def _forward(self, cache: TreeCache, embeddings: Tensor, starts: Sequence[int], room: int) -> Tensor:
        steps = embeddings.shape[1]
        positions = torch.tensor(list(starts), device=self.calls.device).view(-1, 1)
        positions = positions + torch.arange(steps, device=self.calls.device)
        cache.begin(positions, room, max(starts) + steps)
        with active(self.calls.model.config, cache):
            logits, _ = self.calls.last_logits(
                inputs_embeds=embeddings, position_ids=positions, past_key_values=cache
            )
        return logits


def _cached_counts(jobs: Sequence[Job], known: set[tuple[int, ...]]) -> list[int]:
    """Prompt positions of each job whose keys and values were there already when it came."""
    counts, prompts, heads = [], set(), set(known)
    for job in jobs:
        head = job.prefix[: job.shared]
        counts.append(len(job.prefix) if job.prefix in prompts else len(head) if head in heads else 0)
        prompts.add(job.prefix)
        heads.add(head)
    return counts


class PlainRunner:
    """Any architecture, with the cache that the model itself makes: rows of one length, no padding.

    For models whose attention cannot be replaced (alibi) and for recurrent ones.
    """

    def __init__(self, calls: ModelCalls) -> None:
        self.calls = calls
        self.granularity = calls.rows
        self._cache: dict[str, Any] = {}
        self._position = 0

    def start(self, jobs: Sequence[Job]) -> tuple[Tensor, list[int]]:
        """As :meth:`TreeRunner.start`; all jobs have prompts of one length."""
        jobs = list(jobs)
        filled = jobs + [jobs[-1]] * (round_up(len(jobs), self.calls.rows) - len(jobs))
        rows = []
        for job in filled:
            own = self.calls.own_embeddings(job)
            rows.append(torch.cat([self.calls.embed(job.prefix), own]) if job.prefix else own)
        self._cache, self._position = {}, 0
        return self._forward(inputs_embeds=torch.stack(rows)), [0] * len(jobs)

    def step(self, tokens: Tensor) -> Tensor:
        return self._forward(input_ids=tokens.to(self.calls.device).unsqueeze(1))

    def keep(self, rows: Sequence[int]) -> list[int]:
        rows = list(rows)
        rows += [rows[-1]] * (round_up(len(rows), self.calls.rows) - len(rows))
        index = torch.tensor(rows, device=self.calls.device)
        for cache in self._cache.values():
            cache.reorder_cache(index)
        return rows

    def forget(self) -> None:
        self._cache = {}

    def _forward(self, **inputs: Tensor) -> Tensor:
        given = next(iter(inputs.values()))
        if "position_ids" in self.calls.accepts:
            here = torch.arange(given.shape[1], device=self.calls.device) + self._position
            inputs["position_ids"] = here.expand(given.shape[0], -1)
        logits, out = self.calls.last_logits(**inputs, **self._cache)
        self._position += given.shape[1]
        for name in ("past_key_values", "cache_params"):
            if getattr(out, name, None) is not None:
                self._cache = {name: getattr(out, name)}
        return logits
