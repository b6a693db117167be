"""Two ways to run a model over a batch of jobs: over a tree of shared keys and values, or plainly.

A runner is started on a batch and gives the logits (R, V) of each row's first new token; every ``step``
feeds one token a row and gives the next logits; ``keep`` drops rows. The decode loop sees nothing else.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Container, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engines.allocation import is_out_of_memory, keep_freed_memory
from soft_reasoning.engines.graphs import Recorded
from soft_reasoning.engines.kv import Block, KeptPrefixes, OwnKeys, Part, join, round_up
from soft_reasoning.engines.native import StepAttention
from soft_reasoning.engines.passes import Bucket, Pass, Prefill, Step
from soft_reasoning.engines.planning import Job, Segment, packs, span
from soft_reasoning.engines.tree import active

log = logging.getLogger(__name__)

ROWS = 8
"""On the CPU the tokens of a pass are a multiple of it: with fewer, products of matrices take other paths."""

Read = tuple[Block, Sequence[int]]
"""A block of shared prefixes, and for each row which of them it reads (-1: none)."""


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
        self.rows = 1
        if self.device.type == "cpu":
            self.rows = ROWS
            keep_freed_memory()
        self.accepts = set(inspect.signature(model.forward).parameters)

    def embed(self, ids: Sequence[int]) -> Tensor:
        """(len(ids), D) on the model's device, scale included."""
        return self.lookup(torch.tensor([list(ids)], dtype=torch.long, device=self.device))[0]

    def own_embeddings(self, job: Job) -> Tensor:
        """(job.own, D): the soft tokens and what follows them."""
        parts = [] if job.soft is None else [job.soft.to(self.device, self.dtype)]
        return torch.cat([*parts, self.embed(job.tail)]) if job.tail else parts[0]

    def logits(self, *, last: bool, **kwargs: Any) -> tuple[Tensor, Any]:
        """float32 logits (B, T, V), of the ``last`` position alone if asked, and the model's whole output."""
        if last and "logits_to_keep" in self.accepts:
            kwargs["logits_to_keep"] = 1
        out = self.model(use_cache=True, return_dict=True, **kwargs)
        return (out.logits[:, -1:] if last else out.logits).float(), out


class TreeRunner:
    """Shared prefixes computed and kept once; see :mod:`soft_reasoning.engines.tree`.

    At most ``kept_tokens`` positions are kept between batches. ``record`` asks for steps replayed as CUDA
    graphs; ``native`` attends in steps on the CPU where it can.
    """

    def __init__(
        self, calls: ModelCalls, *, prefill_tokens: int, kept_tokens: int, record: bool = False,
        native: StepAttention | None = None,
    ) -> None:  # fmt: skip
        self.calls, self.record, self._native = calls, record, native
        self.granularity = calls.rows
        self.prefill_tokens = prefill_tokens
        self.peak_kv_bytes = 0
        self._kept = KeptPrefixes(kept_tokens)
        self._parts: list[Part] = []
        self._own = OwnKeys(0, calls.device)
        self._offset: list[int] = []
        self._most = 0
        self._changed()

    def start(self, jobs: Sequence[Job]) -> tuple[Tensor, list[int]]:
        """Logits (R, V) of the rows, the first ``len(jobs)`` of which are the jobs (the rest fills up the
        batch), and how many prompt positions of each job were computed for another row or run."""
        self._changed()
        self._parts, self._own = [], OwnKeys(0, self.calls.device)  # the last batch's
        jobs = list(jobs)
        self._kept.next_batch()
        cached = _cached_counts(jobs, self._kept)
        filled = jobs + [jobs[-1]] * (round_up(len(jobs), self.calls.rows) - len(jobs))
        reads = self._reads(jobs)
        self._parts = _parts(reads, range(len(jobs)), len(filled) - len(jobs), self.calls.device)
        self._own = OwnKeys(len(filled), self.calls.device)
        self._offset = [len(job.prefix) for job in filled]
        # Rows that are over go on until they are dropped, and must not run out of the model's positions.
        self._most = max(job.prompt_tokens + job.max_new_tokens for job in jobs) - 1
        embedded = {id(job): self.calls.own_embeddings(job) for job in jobs}
        own = [embedded[id(job)] for job in filled]
        counts = [len(x) - 1 for x in own]
        self._own.reserve(max(counts) + 1)
        self._prefill([x[:-1] for x in own[: len(jobs)]], self._offset, reads, self._own)
        self._own.counts = counts
        return self._step(torch.stack([x[-1] for x in own])), cached

    def step(self, tokens: Tensor) -> Tensor:
        """Feed ``tokens`` (R,); logits (R, V) of the next."""
        if self._own.reserve(max(self._own.counts) + 1):
            self._changed()
        return self._step(self.calls.lookup(tokens.to(self.calls.device)))

    def keep(self, rows: Sequence[int], filling: int) -> None:
        """Go on with ``rows``, chosen by ``decode.packed``; the last ``filling`` of them do not matter."""
        parts = [part.keep(rows[: len(rows) - filling], filling) for part in self._parts]
        self._parts = [part for part in parts if part is not None]
        self._own.keep(rows)
        self._offset = [self._offset[r] for r in rows]
        self._changed()

    def forget(self) -> None:
        """Drop what is kept between batches."""
        self._changed()
        self._kept.clear()
        self._parts, self._own = [], OwnKeys(0, self.calls.device)

    def _reads(self, jobs: Sequence[Job]) -> list[Read]:
        """The shared blocks of ``jobs``, level by level, and which prefix of each every job reads."""
        reads: list[Read] = []
        while any(len(job.cuts) > len(reads) for job in jobs):
            reads.append(self._level(jobs, reads))
        return reads

    def _level(self, jobs: Sequence[Job], before: Sequence[Read]) -> Read:
        """The segments of ``jobs`` behind those in ``before``: the kept ones, and the others computed."""
        level = len(before)
        segments = [job.segment(level) for job in jobs]
        first: dict[Segment, int] = {}  # the first job that reads it
        recurring: set[Segment] = set()
        for i, segment in enumerate(segments):
            if segment is not None:
                first.setdefault(segment, i)
                if level < jobs[i].recurring:
                    recurring.add(segment)
        missing = sorted((s for s in first if s not in self._kept), key=lambda s: (span(s), first[s]))
        found = self._kept.find(first)
        for again in (True, False):
            some = [segment for segment in missing if (segment in recurring) is again]
            if not some:
                continue
            starts = [len(segment[0]) - span(segment) for segment in some]
            block = Block([span(segment) for segment in some], starts, tiled=self._native is not None)
            rows = [self.calls.embed(ids[start:]) for (ids, _), start in zip(some, starts, strict=True)]
            behind = [(earlier, [groups[first[s]] for s in some]) for earlier, groups in before]
            self._prefill(rows, starts, behind, block)
            if again:
                self._kept.add(some, block)
            found.append((block, some))
        places = {segment: i for i, segment in enumerate(s for _, some in found for s in some)}
        return join([block for block, _ in found]), [places.get(segment, -1) for segment in segments]

    def _prefill(
        self, rows: Sequence[Tensor], starts: Sequence[int], reads: Sequence[Read], kept: Block | OwnKeys
    ) -> None:
        """Run ``rows`` (ragged, (n, D) each) through the model for their keys and values alone."""
        for some in packs([len(x) for x in rows], self.prefill_tokens):
            embeddings = rows[0].new_zeros(
                round_up(sum(n * len(r) for n, r in some), self.calls.rows), rows[0].shape[-1]
            )
            positions = torch.zeros(len(embeddings), dtype=torch.long, device=self.calls.device)
            buckets, targets, first = [], [], 0
            for n, which in some:
                here = torch.tensor([starts[r] for r in which], device=self.calls.device).view(-1, 1)
                here = here + torch.arange(n, device=self.calls.device)
                parts = _parts(reads, which, 0, self.calls.device)
                buckets.append(Bucket(first, len(which), n, parts, here, max(starts[r] for r in which) + n))
                targets.append(torch.tensor(which, device=self.calls.device))
                positions[buckets[-1].tokens] = here.flatten()
                for r in which:
                    embeddings[first : first + len(rows[r])] = rows[r]
                    first += n
            self._forward(Prefill(buckets, targets, kept), embeddings, positions, last=True)
            blocks = [block for block, _ in reads] + ([kept] if isinstance(kept, Block) else [])
            self._count(blocks, (part for bucket in buckets for part in bucket.parts))

    def _step(self, embeddings: Tensor) -> Tensor:
        if self._now is None:
            self._now = self._new_step()
            logits = self._run(embeddings)
            self._count((part.block for part in self._parts), self._parts)  # nothing grows in later steps
        else:
            # What was just run once for these shapes can be recorded, and replayed until they change.
            logits = self._replay(embeddings) if self.record else self._run(embeddings)
        self._own.counts = [count + 1 for count in self._own.counts]
        return logits

    def _new_step(self) -> Step:
        return Step(self._own, self._parts, self._offset, self._most, self._native)

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
            self._now = self._new_step()
            return self._run(embeddings)
        return self._recorded(embeddings)

    def _changed(self) -> None:
        """Rows or room have changed."""
        self._now: Step | None = None
        self._recorded: Recorded | None = None

    def _forward(self, now: Pass, embeddings: Tensor, positions: Tensor, *, last: bool = False) -> Tensor:
        """Logits (N or 1, V) of the packed ``embeddings`` (N, D)."""
        with active(self.calls.model.config, now):
            return self.calls.logits(
                last=last, inputs_embeds=embeddings.unsqueeze(0), position_ids=positions.unsqueeze(0),
                past_key_values=now,
            )[0][0]  # fmt: skip

    def _count(self, blocks: Iterable[Block], parts: Iterable[Part]) -> None:
        """Note what is held: the rows' own, what is kept, ``blocks``, and what ``parts`` copied of them."""
        others = {id(block): block.bytes for block in blocks if not self._kept.holds(block)}
        held = self._own.bytes + self._kept.bytes + sum(others.values()) + sum(p.copied for p in parts)
        self.peak_kv_bytes = max(self.peak_kv_bytes, held)


def _parts(reads: Sequence[Read], rows: Sequence[int], filling: int, device: torch.device) -> list[Part]:
    """What ``rows`` read of each block, blocks that none of them reads left out."""
    chosen = [(block, [groups[r] for r in rows]) for block, groups in reads]
    return [Part(block, groups, filling, device) for block, groups in chosen if max(groups) >= 0]


def _cached_counts(jobs: Sequence[Job], kept: Container[Segment]) -> list[int]:
    """Prompt positions of each job whose keys and values were there already when it came."""
    counts: list[int] = []
    seen: set[Segment] = set()
    for job in jobs:
        counts.append(0)
        for level, cut in enumerate(job.cuts):
            segment = job.segment(level)
            if segment in seen or segment in kept:
                counts[-1] = cut
            seen.add(segment)
    return counts


class PlainRunner:
    """Any architecture, with the cache that the model itself makes: rows of one length, no padding.

    For models whose attention cannot be replaced (alibi) and for recurrent ones.
    """

    def __init__(self, calls: ModelCalls) -> None:
        self.calls = calls
        self.granularity = calls.rows
        self.peak_kv_bytes = 0
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

    def keep(self, rows: Sequence[int], filling: int) -> None:
        index = torch.tensor(list(rows), device=self.calls.device)
        for cache in self._cache.values():
            cache.reorder_cache(index)

    def forget(self) -> None:
        self._cache = {}

    def _forward(self, **inputs: Tensor) -> Tensor:
        given = next(iter(inputs.values()))
        if "position_ids" in self.calls.accepts:
            here = torch.arange(given.shape[1], device=self.calls.device) + self._position
            inputs["position_ids"] = here.expand(given.shape[0], -1)
        logits, out = self.calls.logits(last=True, **inputs, **self._cache)
        self._position += given.shape[1]
        for name in ("past_key_values", "cache_params"):
            if getattr(out, name, None) is not None:
                self._cache = {name: getattr(out, name)}
        layers = [layer for cache in self._cache.values() for layer in getattr(cache, "layers", ())]
        tensors = [t for layer in layers for t in vars(layer).values() if isinstance(t, Tensor)]
        held = sum(t.numel() * t.element_size() for t in tensors)
        self.peak_kv_bytes = max(self.peak_kv_bytes, held)
        return logits[:, 0]
