"""What a request asks of a model, and which requests are computed together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from soft_reasoning.engines.kv import round_up
from soft_reasoning.types import Prompt, Request, UserError

LEAST_SHARED = 32
"""A shared prefix shorter than this many tokens is not worth a part of its own."""


Segment = tuple[tuple[int, ...], tuple[int, ...]]
"""Leading token ids and where they are cut, the last cut behind the last of them: two requests with the same
of both can read the same keys and values."""


@dataclass(frozen=True, eq=False)
class Job:
    """A request cut into parts, in a way that depends on the request alone.

    ``prefix`` are the leading token ids whose keys and values can be shared with other rows, in segments
    that end at ``cuts``; the first ``recurring`` of them are shared with requests to come. Behind the prefix
    come the soft tokens and the rest of the prompt: ``tail`` token ids after ``soft`` (m, D). The last
    position is where decoding starts, so it is never part of the prefix.
    """

    index: int
    request: Request
    prefix: tuple[int, ...]
    cuts: tuple[int, ...]
    recurring: int
    tail: tuple[int, ...]
    soft: Tensor | None
    max_new_tokens: int

    def segment(self, level: int) -> Segment | None:
        """What the ``level``-th segment and those before it are; None where there are fewer."""
        if level >= len(self.cuts):
            return None
        return self.prefix[: self.cuts[level]], self.cuts[: level + 1]

    @property
    def own(self) -> int:
        """How many positions follow the prefix."""
        return len(self.tail) + (0 if self.soft is None else self.soft.shape[0])

    @property
    def prompt_tokens(self) -> int:
        return len(self.prefix) + self.own


def span(segment: Segment) -> int:
    """How many tokens lie behind the last cut but one."""
    cuts = segment[1]
    return cuts[-1] - (cuts[-2] if len(cuts) > 1 else 0)


def job_of(index: int, request: Request, *, hidden_size: int, context_length: int) -> Job:
    """Check ``request`` and cut it into parts; UserError or ValueError as ``Engine.generate`` says."""
    ids, soft = tuple(request.prompt_ids), request.soft
    if request.max_new_tokens < 1:
        raise ValueError(f"expected max_new_tokens >= 1, got {request.max_new_tokens}")
    if soft is None:
        cut, position = len(ids) - 1, len(ids)
        if not ids:
            raise ValueError("expected a prompt of at least one token, got none")
    else:
        if soft.ndim != 2 or soft.shape[0] == 0 or soft.shape[1] != hidden_size:
            raise ValueError(f"expected soft tokens (m, {hidden_size}), got {tuple(soft.shape)}")
        if not bool(torch.isfinite(soft).all()):
            raise ValueError("expected finite soft tokens, got NaN or infinity")
        position = len(ids) if request.position is None else request.position
        if not 0 <= position <= len(ids):
            raise ValueError(f"expected a position in 0..{len(ids)}, got {position}")
        cut = position
    length = len(ids) + (0 if soft is None else soft.shape[0])
    if length >= context_length:
        raise UserError(
            f"expected a prompt shorter than the model's context of {context_length} tokens, got {length}; "
            "shorten the prompt, use fewer exemplars or a model with a longer context"
        )
    cuts: list[int] = []
    for end in (min(request.shared, cut), min(request.common, cut)):
        if end - (cuts[-1] if cuts else 0) >= LEAST_SHARED:
            cuts.append(end)
    recurring = len(cuts)
    if cut > (cuts[-1] if cuts else 0):
        cuts.append(cut)
    return Job(
        index=index,
        request=request,
        prefix=ids[:cut],
        cuts=tuple(cuts),
        recurring=recurring,
        tail=ids[cut:],
        soft=soft,
        max_new_tokens=min(request.max_new_tokens, context_length - length),
    )


def reading(prompt: Prompt) -> Request:
    """The request of which only the prompt is read."""
    return Request(prompt.ids, shared=prompt.shared, common=prompt.common, max_new_tokens=1)


@dataclass(frozen=True)
class Layout:
    """How keys and values lie. ``shared``: a segment that many jobs read once, in whole tiles or pages.
    ``padded``: the segments of a level, and the rows' own, in one tensor, each as long as the longest."""

    shared: bool
    padded: bool


class Held:
    """Counts the positions that a batch of jobs has room for at its end, prompts and new tokens."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._seen: set[Segment] = set()
        self._levels: dict[int | None, tuple[int, int, int]] = {}  # how many, the longest, all together

    def add(self, job: Job) -> None:
        own = job.own + job.max_new_tokens
        if not self._layout.shared:
            self._note(None, len(job.prefix) + own)
            return
        self._note(None, round_up(own))
        for level in reversed(range(len(job.cuts))):
            segment = job.segment(level)
            if segment in self._seen:
                break  # and all before it
            self._seen.add(segment)
            self._note(level, round_up(span(segment)))

    def _note(self, level: int | None, length: int) -> None:
        count, longest, total = self._levels.get(level, (0, 0, 0))
        self._levels[level] = count + 1, max(longest, length), total + length

    @property
    def positions(self) -> int:
        levels = self._levels.values()
        return sum(count * longest if self._layout.padded else total for count, longest, total in levels)


def batches(jobs: Sequence[Job], max_tokens: int, layout: Layout) -> Iterator[list[Job]]:
    """Jobs of like lengths together, those of one prompt side by side, that hold at most ``max_tokens``
    positions a batch (a single job may exceed that)."""
    order = sorted(jobs, key=lambda j: (j.own, len(j.prefix), j.prefix, j.max_new_tokens, j.index))
    batch: list[Job] = []
    held = Held(layout)
    for job in order:
        held.add(job)
        if batch and held.positions > max_tokens:
            yield batch
            batch, held = [], Held(layout)
            held.add(job)
        batch.append(job)
    if batch:
        yield batch


def positions(batch: Sequence[Job], layout: Layout) -> int:
    """How many ``batch`` holds, as :class:`Held` counts them."""
    held = Held(layout)
    for job in batch:
        held.add(job)
    return held.positions


def packs(counts: Sequence[int], most: int) -> Iterator[list[tuple[int, list[int]]]]:
    """Rows of ``counts`` tokens in forward passes of about ``most`` tokens (a longer row has its own).

    A pass is a list of ``(length, rows)``: rows filled up to a common length, which depends on the row
    alone and leaves little unused. Rows without tokens are left out.
    """
    rows = sorted((i for i, n in enumerate(counts) if n), key=lambda i: filled(counts[i]))
    some: list[tuple[int, list[int]]] = []
    total = 0
    for i in rows:
        length = filled(counts[i])
        if some and total + length > most:
            yield some
            some, total = [], 0
        if some and some[-1][0] == length:
            some[-1][1].append(i)
        else:
            some.append((length, [i]))
        total += length
    if some:
        yield some


def filled(count: int) -> int:
    """``count`` up to 8, the next multiple of 16 beyond."""
    return count if count <= 8 else -(-count // 16) * 16
