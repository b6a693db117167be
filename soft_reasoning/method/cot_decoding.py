"""CoT-decoding: one path for each of the likeliest first tokens (Wang and Zhou 2024).

The confidence Delta of a path is the mean of p(likeliest) - p(second likeliest) over the tokens of its
answer. Only tokens that overlap the answer count.
"""

from __future__ import annotations

import os.path
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, fsum
from typing import Any, ClassVar

from soft_reasoning.checks import choice, counts
from soft_reasoning.engine.text import decode
from soft_reasoning.method.base import majority_vote
from soft_reasoning.schedule.effects import BudgetSpent
from soft_reasoning.schedule.method import Context, Generate, Steps
from soft_reasoning.schedule.solutions import SamplingOptions, join, resume, solution_request
from soft_reasoning.types import GREEDY, Completion, FinishReason, Problem, Result, UserError

CONTINUATIONS = ("sample", "greedy")
AGGREGATES = ("majority", "delta_sum")
MARGIN = 2
"""Number of likeliest tokens whose probabilities define a margin."""


@dataclass(frozen=True, kw_only=True)
class CotDecoding(SamplingOptions):
    """Continues the ``paths`` (k) likeliest first tokens and aggregates their answers.

    Soft Reasoning's comparison samples 5 paths at 0.8 and takes the majority. The original continues 10
    paths greedily and sums Deltas. Paths without an answer do not count. The other options are those of
    :class:`SamplingOptions`.

    Args:
        paths: Number of first tokens.
        continuation: ``sample`` or ``greedy``.
        aggregate: ``majority`` counts paths, ``delta_sum`` adds the Deltas of paths that agree. The likelier
            first token wins a tie.
    """

    paths: int = 5
    continuation: str = "sample"
    aggregate: str = "majority"
    name: str = "cot_decoding"
    short: ClassVar[Mapping[str, str]] = {"k": "paths", "temperature": "temperature"}
    needs: ClassVar[frozenset[str]] = frozenset({"ids", "logprobs"})
    instead: ClassVar[str] = "use method.continuation=greedy"

    def __post_init__(self) -> None:
        counts(self, "paths", "max_new_tokens")
        for key, choices in (("continuation", CONTINUATIONS), ("aggregate", AGGREGATES)):
            choice(key, getattr(self, key), choices)
        if self.continuation == "sample":
            super().__post_init__()

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        request, engine = solution_request(problem, context, self.max_new_tokens), context.engine
        likeliest = max(self.paths, MARGIN)
        [look] = yield Generate(
            [replace(request, max_new_tokens=0, top_logprobs=likeliest, role="first_token")]
        )
        if not look.top_logprobs:
            raise BudgetSpent
        [first] = look.top_logprobs
        if self.paths > len(first.ids):
            raise UserError(f"method.paths: expected at most the vocabulary's size, got {self.paths}")
        empty = Completion((), (), "", FinishReason.LENGTH, len(request.prompt_ids))
        prefixes = [
            replace(empty, token_ids=(token,), logprobs=(logprob,), top_logprobs=(first,))
            for token, logprob in zip(first.ids[: self.paths], first.logprobs, strict=False)
        ]
        starts = [join(empty, prefix, request, engine) for prefix in prefixes]
        path_request = replace(
            request,
            sampling=self.sampling if self.continuation == "sample" else GREEDY,
            top_logprobs=0 if self.aggregate == "majority" else MARGIN,
        )
        indices = range(len(starts))
        requests = [replace(path_request, seed=context.stream(problem.id, "sample", i)) for i in indices]
        paths = yield from resume(requests, starts, engine)
        deltas = None if self.aggregate == "majority" else _deltas(problem, paths, context)
        first_tokens = [engine.tokenizer.decode([path.token_ids[0]]) for path in paths]
        trace = {"round": 0, "first_tokens": first_tokens, "deltas": deltas}
        weights = None if deltas is None else [delta or 0.0 for delta in deltas]
        return majority_vote(paths, problem, context, trace, weights=weights)


def _deltas(problem: Problem, paths: Sequence[Completion], context: Context) -> list[float | None]:
    """Each path's Delta in [0, 1]: the mean margin between the two likeliest tokens over its answer.

    None for a path whose text does not contain its answer.
    """
    deltas: list[float | None] = []
    for path in paths:
        span = context.grader.locate(path.text, problem.answer_type, problem.question)
        indices = [] if span is None else overlapping_tokens(span, path, context.engine.tokenizer)
        tops = [path.top_logprobs[i].logprobs for i in indices]
        margins = [exp(top[0]) - exp(top[1]) for top in tops]
        deltas.append(fsum(margins) / len(margins) if margins else None)
    return deltas


def overlapping_tokens(span: tuple[int, int], completion: Completion, tokenizer: Any) -> range:
    """Return the tokens of ``completion`` that overlap the characters ``span`` of its text."""
    start, end = span
    ids, text = completion.token_ids, completion.text

    def begins(i: int) -> int:
        # The prefix that the tokens before i share with the text: part of a character decodes differently.
        return len(os.path.commonprefix([decode(tokenizer, ids[:i]), text]))

    every = range(len(ids))
    # A token may begin before ``start``, and several tokens may hold parts of the same character.
    first = min(bisect_left(every, start, key=begins), bisect_right(every, start, key=begins) - 1)
    return range(first, bisect_left(every, end, key=begins))
