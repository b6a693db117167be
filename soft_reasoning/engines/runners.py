"""How a model is run over a batch of jobs: over a tree of shared keys and values, or plainly.

A runner is started on a batch and gives the logits (R, V) of each row's first new token; every ``step``
feeds one token a row and gives the next logits; ``keep`` drops rows. The decode loop sees nothing else.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engines.allocation import keep_freed_memory
from soft_reasoning.engines.kv import KeptPrefixes, round_up
from soft_reasoning.engines.passes import Over, Pass
from soft_reasoning.engines.planning import Job, Layout, Segment, packs, span
from soft_reasoning.engines.tree import active

ROWS, SIZES = 8, 16
"""On the CPU the tokens of a pass are a multiple of the first: with fewer, products of matrices take other
paths. From one power of two to the next they come in as many sizes as the second says: the library keeps some
100 KiB for each that a weight has met."""

Read = tuple[Any, Sequence[int]]
"""A block of shared prefixes, and for each row which of them it reads (-1: none)."""


class ModelCalls:
    """A model, its embedding lookup and its devices, called the way every runner needs it."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.lookup = model.get_input_embeddings()
        weight = self.lookup.weight
        self.device, self.dtype = weight.device, weight.dtype
        if self.device.type == "cpu":
            keep_freed_memory()
        self.accepts = set(inspect.signature(model.forward).parameters)

    def batch_size(self, count: int) -> int:
        """``count`` and what fills it up: on the CPU, where a row's result is then bitwise independent of how
        many there are."""
        if self.device.type != "cpu":
            return count
        return round_up(count, max(ROWS, 2 ** (count - 1).bit_length() // (2 * SIZES)))

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


class TreeRunner(ABC):
    """Shared prefixes computed and kept once, at most ``kept_tokens`` positions of them between batches.

    How keys and values are kept is the subclass's: it says what a block of prefixes is (with ``select`` and
    ``positions``), what the rows' own (with ``counts`` and ``keep``), and how a pass reads them.
    """

    compact_below = 0.9
    layout: Layout
    peak_kv_bytes: int
    held_kv_bytes: int

    def __init__(self, calls: ModelCalls, *, prefill_tokens: int, kept_tokens: int) -> None:
        self.calls, self.prefill_tokens = calls, prefill_tokens
        self._kept = KeptPrefixes(kept_tokens)
        self._last: int | None = None  # layer, once a pass went through all
        self._drop_batch()

    def start(self, jobs: Sequence[Job]) -> tuple[Tensor, list[int]]:
        """Logits (R, V) of the rows, the first ``len(jobs)`` of which are the jobs (the rest fills up the
        batch), and how many prompt positions of each job were computed for another row or run."""
        self._drop_batch()
        jobs = list(jobs)
        self._kept.next_batch()
        cached = _cached_counts(jobs, self._kept)
        filled = jobs + [jobs[-1]] * (self.calls.batch_size(len(jobs)) - len(jobs))
        reads = self._reads(jobs)
        self._offset = [len(job.prefix) for job in filled]
        # Rows that are over go on until they are dropped, and must not run out of the model's positions.
        self._most = max(job.prompt_tokens + job.max_new_tokens for job in jobs) - 1
        embedded = {id(job): self.calls.own_embeddings(job) for job in jobs}
        own = [embedded[id(job)] for job in filled]
        self._begin(reads, [len(x) - 1 for x in own], len(filled) - len(jobs))
        self._prefill([x[:-1] for x in own[: len(jobs)]], self._offset, reads, self._own)
        return self._step(torch.stack([x[-1] for x in own])), cached

    def step(self, tokens: Tensor) -> Tensor:
        """Feed ``tokens`` (R,); logits (R, V) of the next."""
        return self._step(self.calls.lookup(tokens.to(self.calls.device)))

    def batch_size(self, count: int) -> int:
        """How many rows a batch of ``count`` has."""
        return self.calls.batch_size(count)

    def keep(self, rows: Sequence[int], filling: int) -> None:
        """Go on with ``rows``, chosen by ``decode.packed``; the last ``filling`` of them do not matter."""
        self._offset = [self._offset[r] for r in rows]
        self._keep(rows, filling)

    def begin_run(self) -> None:
        """Forget the prefixes of earlier runs; peaks count from now on."""
        self._drop_batch()
        self._kept.clear()

    def forget(self) -> None:
        """Give the memory of keys and values back."""
        self._drop_batch()
        self._kept.clear()

    def keep_less(self) -> None:
        """Keep half as many positions between batches from now on."""
        self._kept.most //= 2

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
            block = self._block([span(segment) for segment in some], starts)
            rows = [self.calls.embed(ids[start:]) for (ids, _), start in zip(some, starts, strict=True)]
            behind = [(earlier, [groups[first[s]] for s in some]) for earlier, groups in before]
            self._prefill(rows, starts, behind, block)
            if again:
                self._kept.add(some, block)
            found.append((block, some))
        places = {segment: i for i, segment in enumerate(s for _, some in found for s in some)}
        return self._joined([block for block, _ in found]), [places.get(segment, -1) for segment in segments]

    def _prefill(
        self, rows: Sequence[Tensor], starts: Sequence[int], reads: Sequence[Read], kept: Any
    ) -> None:
        """Run ``rows`` (ragged, (n, D) each) through the model for their keys and values alone."""
        for some in packs([len(x) for x in rows], self.prefill_tokens):
            embeddings = rows[0].new_zeros(
                self.calls.batch_size(sum(n * len(r) for n, r in some)), rows[0].shape[-1]
            )
            positions = torch.zeros(len(embeddings), dtype=torch.long, device=self.calls.device)
            first = 0
            for n, which in some:
                here = torch.tensor([starts[r] for r in which], device=self.calls.device).view(-1, 1)
                here = here + torch.arange(n, device=self.calls.device)
                positions[first : first + here.numel()] = here.flatten()
                for r in which:
                    embeddings[first : first + len(rows[r])] = rows[r]
                    first += n
            now = self._prefill_pass(some, [len(x) for x in rows], positions, starts, reads, kept)
            with suppress(Over):
                self._forward(now, embeddings, positions, last=True)
            self._prefilled(now, reads, kept)

    def _forward(self, now: Pass, embeddings: Tensor, positions: Tensor, *, last: bool = False) -> Tensor:
        """Logits (N or 1, V) of the packed ``embeddings`` (N, D)."""
        with active(self.calls.model.config, now):
            logits, _ = self.calls.logits(
                last=last, inputs_embeds=embeddings.unsqueeze(0), position_ids=positions.unsqueeze(0),
                past_key_values=now,
            )  # fmt: skip
        self._last = now.deepest
        return logits[0]

    @abstractmethod
    def _drop_batch(self) -> None:
        """Let go what the last batch alone reads."""

    @abstractmethod
    def _begin(self, reads: Sequence[Read], counts: Sequence[int], filling: int) -> None:
        """A batch of rows that have ``counts`` (R,) keys of their own, the last ``filling`` without meaning,
        the others with ``reads``; ``_own`` is what they are kept in."""

    @abstractmethod
    def _keep(self, rows: Sequence[int], filling: int) -> None: ...

    @abstractmethod
    def _block(self, lengths: Sequence[int], starts: Sequence[int]) -> Any:
        """For prefixes of ``lengths`` keys from the positions ``starts`` on."""

    @abstractmethod
    def _joined(self, blocks: Sequence[Any]) -> Any:
        """One block of all prefixes of ``blocks``."""

    @abstractmethod
    def _prefill_pass(
        self, packed: Sequence[tuple[int, Sequence[int]]], lengths: Sequence[int], positions: Tensor,
        starts: Sequence[int], reads: Sequence[Read], kept: Any,
    ) -> Pass:  # fmt: skip
        """Over ``packed``, as ``planning.packs`` made it of rows of ``lengths`` tokens from the positions
        ``starts`` on, that leaves keys and values in ``kept`` and then is over; ``positions`` (N,) are
        those of all tokens."""

    @abstractmethod
    def _prefilled(self, now: Any, reads: Sequence[Read], kept: Any) -> None:
        """That pass is done."""

    @abstractmethod
    def _step(self, embeddings: Tensor) -> Tensor:
        """One token of every row; logits (R, V)."""


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

    compact_below = 0.9
    layout = Layout(shared=False, padded=True)

    def __init__(self, calls: ModelCalls) -> None:
        self.calls = calls
        self.peak_kv_bytes = self.held_kv_bytes = 0
        self._cache: dict[str, Any] = {}
        self._position = 0

    def start(self, jobs: Sequence[Job]) -> tuple[Tensor, list[int]]:
        """As :meth:`TreeRunner.start`; all jobs have prompts of one length."""
        jobs = list(jobs)
        filled = jobs + [jobs[-1]] * (self.calls.batch_size(len(jobs)) - len(jobs))
        rows = []
        for job in filled:
            own = self.calls.own_embeddings(job)
            rows.append(torch.cat([self.calls.embed(job.prefix), own]) if job.prefix else own)
        self._cache, self._position = {}, 0
        return self._forward(inputs_embeds=torch.stack(rows)), [0] * len(jobs)

    def step(self, tokens: Tensor) -> Tensor:
        return self._forward(input_ids=tokens.to(self.calls.device).unsqueeze(1))

    def batch_size(self, count: int) -> int:
        return self.calls.batch_size(count)

    def keep(self, rows: Sequence[int], filling: int) -> None:
        index = torch.tensor(list(rows), device=self.calls.device)
        for cache in self._cache.values():
            cache.reorder_cache(index)

    def begin_run(self) -> None:
        self._cache, self.peak_kv_bytes = {}, 0

    def forget(self) -> None:
        self._cache = {}

    def keep_less(self) -> None:
        """Nothing is kept."""

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
        self.held_kv_bytes = held
        self.peak_kv_bytes = max(self.peak_kv_bytes, held)
        return logits[:, 0]
