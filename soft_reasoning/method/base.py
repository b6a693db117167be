"""Shared by methods: the majority vote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from soft_reasoning.judge.final import eligible_answers
from soft_reasoning.schedule.method import Context
from soft_reasoning.schedule.solutions import read_candidate
from soft_reasoning.types import Completion, Problem, Result


def majority_vote(
    completions: Sequence[Completion],
    problem: Problem,
    context: Context,
    *trace: Mapping[str, object],
    weights: Sequence[float] | None = None,
) -> Result:
    """Return the answer of most ``weights``: unparsed answers do not vote, and the earliest wins a tie."""
    candidates = tuple(read_candidate(completion, problem, context) for completion in completions)
    answers = eligible_answers(candidates, problem.answer_type)
    return Result(context.grader.vote(answers, problem.answer_type, weights), candidates, trace)
