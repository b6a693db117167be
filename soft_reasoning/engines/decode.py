"""The decode loop: one token a row a step, finished rows dropped, nothing vocabulary-sized kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from soft_reasoning.engines.kv import round_up
from soft_reasoning.engines.planning import Job
from soft_reasoning.engines.sampling import Chooser
from soft_reasoning.engines.text import StopWatch, finish
from soft_reasoning.types import Completion

COMPACT_BELOW = 0.75
"""Rows are packed once fewer than this share of them is unfinished."""


class Runner(Protocol):
    granularity: int

    def start(self, jobs: Sequence[Job]) -> tuple[Tensor, list[int]]: ...
    def step(self, tokens: Tensor) -> Tensor: ...
    def keep(self, rows: Sequence[int]) -> list[int]: ...


@torch.inference_mode()
def decode_batch(
    runner: Runner, jobs: Sequence[Job], *, tokenizer: Any, eos: frozenset[int], watch: StopWatch
) -> list[Completion]:
    """Complete ``jobs`` together, in their order."""
    logits, cached = runner.start(jobs)
    chooser = Chooser([job.request for job in jobs], sorted(eos), logits.shape[-1])
    ids: list[list[int]] = [[] for _ in jobs]
    logprobs: list[list[float]] = [[] for _ in jobs]
    # Row i of the batch belongs to job rows[i]; rows that only fill up the batch repeat a job.
    rows = [min(i, len(jobs) - 1) for i in range(len(logits))]
    alive = [i < len(jobs) for i in range(len(logits))]
    step = 0
    while True:
        tokens = chooser.choose(logits, step, rows)
        scores = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1)
        for i, (token, score) in enumerate(zip(tokens.tolist(), scores.tolist(), strict=True)):
            if alive[i]:
                row = rows[i]
                ids[row].append(token)
                logprobs[row].append(score)
                alive[i] = not _over(jobs[row], ids[row], eos, watch)
        step += 1
        left = [i for i, lives in enumerate(alive) if lives]
        if not left:
            break
        if round_up(len(left), runner.granularity) < COMPACT_BELOW * len(rows):
            kept = runner.keep(left)
            tokens = tokens[torch.tensor(kept, device=tokens.device)]
            rows = [rows[i] for i in kept]
            alive = [i < len(left) for i in range(len(kept))]
        logits = runner.step(tokens)
    return [
        _completion(job, ids[i], logprobs[i], cached[i], tokenizer, eos, watch) for i, job in enumerate(jobs)
    ]


def _over(job: Job, ids: list[int], eos: frozenset[int], watch: StopWatch) -> bool:
    if len(ids) >= job.max_new_tokens:
        return True
    if len(ids) < job.request.min_new_tokens:
        return False
    ended = ids[-1] in eos and len(ids) > job.request.min_new_tokens
    return ended or watch.hit(ids, job.request.stop)


def _completion(
    job: Job, ids: list[int], logprobs: list[float], cached: int, tokenizer: Any, eos: frozenset[int],
    watch: StopWatch,
) -> Completion:  # fmt: skip
    request = job.request
    count, text, reason = finish(
        tokenizer, ids, stop=request.stop, eos=eos, min_new_tokens=request.min_new_tokens, watch=watch
    )
    return Completion(
        token_ids=tuple(ids[:count]),
        logprobs=tuple(logprobs[:count]),
        text=text,
        finish_reason=reason,
        prompt_tokens=job.prompt_tokens,
        cached_tokens=cached,
    )
