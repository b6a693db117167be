"""The decode loop: one token a row a step, finished rows dropped, nothing vocabulary-sized kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from soft_reasoning.engines.planning import Job
from soft_reasoning.engines.sampling import Chooser
from soft_reasoning.engines.text import StopWatch, finish
from soft_reasoning.types import Completion


class Runner(Protocol):
    """``compact_below``: rows are packed once fewer than this share of them is unfinished."""

    compact_below: float

    def batch_size(self, count: int) -> int: ...
    def start(self, jobs: Sequence[Job]) -> tuple[Tensor, list[int]]: ...
    def step(self, tokens: Tensor) -> Tensor: ...
    def keep(self, rows: Sequence[int], filling: int) -> None: ...


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
    live = list(range(len(jobs)))
    step = 0
    while True:
        tokens = chooser.choose(logits, step, rows)
        scores = (logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - logits.logsumexp(-1)).tolist()
        chosen = tokens.tolist()
        left = []
        for i in live:
            row = rows[i]
            ids[row].append(chosen[i])
            logprobs[row].append(scores[i])
            if not _over(jobs[row], ids[row], eos, watch):
                left.append(i)
        live = left
        step += 1
        if not live:
            break
        total = runner.batch_size(len(live))
        if total < runner.compact_below * len(rows):
            kept = packed(live, total)
            runner.keep(kept, total - len(live))
            tokens = tokens[torch.tensor(kept, device=tokens.device)]
            rows, live = [rows[i] for i in kept], list(range(len(live)))
        logits = runner.step(tokens)
    return [
        _completion(job, ids[i], logprobs[i], cached[i], tokenizer, eos, watch) for i, job in enumerate(jobs)
    ]


def packed(live: Sequence[int], total: int) -> list[int]:
    """Which row comes to each of ``total`` places: a live one in the first, and as few as may be move."""
    ahead = {i for i in live if i < len(live)}
    behind = iter([i for i in live if i >= len(live)])
    return [i if i in ahead or i >= len(live) else next(behind) for i in range(total)]


def _over(job: Job, ids: list[int], eos: frozenset[int], watch: StopWatch) -> bool:
    count, request = len(ids), job.request
    if count >= job.max_new_tokens:
        return True
    if count < request.min_new_tokens:
        return False
    if ids[-1] in eos and count > request.min_new_tokens:
        return True
    return watch.before_stop(ids, request.stop) is not None


def _completion(
    job: Job, ids: list[int], logprobs: list[float], cached: int, tokenizer: Any, eos: frozenset[int],
    watch: StopWatch,
) -> Completion:  # fmt: skip
    request = job.request
    # Nothing ended it before its last token, so only that one is looked at.
    least = max(request.min_new_tokens, len(ids) - 1)
    count, text, reason = finish(
        tokenizer, ids, stop=request.stop, eos=eos, min_new_tokens=least, watch=watch
    )
    return Completion(
        token_ids=tuple(ids[:count]),
        logprobs=tuple(logprobs[:count]),
        text=text,
        finish_reason=reason,
        prompt_tokens=job.prompt_tokens,
        cached_tokens=cached,
    )
