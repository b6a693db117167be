"""Shared by methods: the options of sampled solutions, and the majority vote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from soft_reasoning.judge.final import eligible_answers
from soft_reasoning.schedule.method import Context
from soft_reasoning.schedule.solutions import read_candidate
from soft_reasoning.types import MAX_NEW_TOKENS, Completion, Problem, Result, Sampling


@dataclass(frozen=True, kw_only=True)
class SampledMethod:
    """The options of a method that samples solutions.

    Args:
        temperature: Sampling temperature.
        top_k: Number of likeliest tokens that are sampled from; 0 is off.
        top_p: Total probability of the likeliest tokens that are sampled from; 1 is off.
        max_new_tokens: Tokens per solution.
    """

    temperature: float = 0.8
    top_k: int = 50
    top_p: float = 1.0
    max_new_tokens: int = MAX_NEW_TOKENS
    short: ClassVar[Mapping[str, str]] = {"k": "samples", "temperature": "temperature"}

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen."""
        return Sampling(self.temperature, self.top_k, self.top_p)


def majority_vote(
    completions: Sequence[Completion], problem: Problem, context: Context, *trace: Mapping[str, object]
) -> Result:
    """Return the majority answer: unparsed answers do not vote, and the earliest wins a tie."""
    candidates = tuple(read_candidate(completion, problem, context) for completion in completions)
    answer = context.grader.vote(eligible_answers(candidates, problem.answer_type), problem.answer_type)
    return Result(answer, candidates, trace)
