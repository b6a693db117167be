"""CoT-decoding: one path for each of the likeliest first tokens (Wang and Zhou 2024).

This is the variant of Soft Reasoning's comparison, whose paths are sampled and vote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from soft_reasoning.checks import counts
from soft_reasoning.method.base import majority_vote
from soft_reasoning.schedule.effects import BudgetSpent
from soft_reasoning.schedule.method import Context, Generate, Steps
from soft_reasoning.schedule.solutions import SamplingOptions, join, resume, solution_request
from soft_reasoning.types import Completion, FinishReason, Problem, Result, UserError


@dataclass(frozen=True, kw_only=True)
class CotDecoding(SamplingOptions):
    """Continues the ``paths`` (k) likeliest first tokens and takes the majority of their answers.

    Paths without an answer do not count, and the likelier first token wins a tie. The other options are those
    of :class:`SamplingOptions`.

    Args:
        paths: Number of first tokens.
    """

    paths: int = 5
    name: str = "cot_decoding"
    short: ClassVar[Mapping[str, str]] = {"k": "paths", "temperature": "temperature"}
    needs: ClassVar[frozenset[str]] = frozenset({"ids", "logprobs"})

    def __post_init__(self) -> None:
        super().__post_init__()
        counts(self, "paths")

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        request, engine = solution_request(problem, context, self.max_new_tokens), context.engine
        [look] = yield Generate(
            [replace(request, max_new_tokens=0, top_logprobs=self.paths, role="first_token")]
        )
        if not look.top_logprobs:
            raise BudgetSpent
        [first] = look.top_logprobs
        if self.paths > len(first.ids):
            raise UserError(f"method.paths: expected at most the vocabulary's size, got {self.paths}")
        empty = Completion((), (), "", FinishReason.LENGTH, len(request.prompt_ids))
        prefixes = [
            replace(empty, token_ids=(token,), logprobs=(logprob,))
            for token, logprob in zip(first.ids, first.logprobs, strict=True)
        ]
        starts = [join(empty, prefix, request, engine) for prefix in prefixes]
        seeds = [context.stream(problem.id, "sample", i) for i in range(len(starts))]
        requests = [replace(request, sampling=self.sampling, seed=seed) for seed in seeds]
        paths = yield from resume(requests, starts, engine)
        first_tokens = [engine.tokenizer.decode([path.token_ids[0]]) for path in paths]
        return majority_vote(paths, problem, context, {"round": 0, "first_tokens": first_tokens})
