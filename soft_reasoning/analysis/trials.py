"""Trying several settings of the search on all questions, in common batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from soft_reasoning.analysis.calibration import Tried
from soft_reasoning.context import Context
from soft_reasoning.display import Display
from soft_reasoning.methods.base import Steps, read_candidate, sampled
from soft_reasoning.methods.soft_reasoning import SoftReasoning
from soft_reasoning.scheduler import Clock, drive
from soft_reasoning.types import Candidate, Generate, Problem, Result, Sampling

LIVE = 16
"""Questions tried together; progress is shown after each step of them."""

Try = Callable[[Problem, Context], Steps[list[Candidate]]]


@dataclass(frozen=True)
class Trial:
    """Tries every setting on a question; the candidates come in the order of the settings."""

    settings: Sequence[Try]
    name: str = "calibration"

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        found: list[Candidate] = []
        for setting in self.settings:
            found += yield from setting(problem, context)
        return Result(None, tuple(found))


def at_points(method: SoftReasoning, points: Tensor) -> Try:
    """Try ``points`` (n, d) in the method's search space."""

    def steps(problem: Problem, context: Context) -> Steps[list[Candidate]]:
        box = yield from method.open(problem, context)
        return (yield from method.complete(box, points, context))

    return steps


def by_sampling(method: SoftReasoning, temperature: float, count: int) -> Try:
    """Sample ``count`` completions without a soft token."""

    def steps(problem: Problem, context: Context) -> Steps[list[Candidate]]:
        sampling = Sampling(temperature=temperature)
        completions = yield Generate(sampled(problem, context, sampling, count, method.max_new_tokens))
        return [
            replace(read_candidate(one, problem, context), coherence=method.reward.of_coherence(one))
            for one in completions
        ]

    return steps


def try_all(
    settings: Mapping[Any, tuple[Try, int]], problems: Sequence[Problem], context: Context, progress: bool
) -> dict[Any, Tried]:
    """Try each setting, given with its number of tries, on all problems."""
    found: dict[str, tuple[Candidate, ...]] = {}
    shown = Display(len(problems), "questions", enabled=progress)
    shown.open()
    try:
        trial = Trial([steps for steps, _ in settings.values()])
        live = min(LIVE, len(problems))
        for problem, result in drive(
            problems, trial, context, max_live=live,
            on_tick=lambda clock: shown.show(len(found), lambda: _state(clock)),
        ):  # fmt: skip
            found[problem.id] = result.candidates
    finally:
        shown.close()
    out: dict[Any, Tried] = {}
    start = 0
    for key, (_, count) in settings.items():
        rows = [(problem, found[problem.id][start : start + count]) for problem in problems]
        out[key] = _tried(rows, context)
        start += count
    return out


def _state(clock: Clock) -> str:
    return f"{clock.sequences:,} completions"


def _tried(rows: Sequence[tuple[Problem, Sequence[Candidate]]], context: Context) -> Tried:
    labelled = all(problem.gold is not None for problem, _ in rows)
    correct = [[bool(context.grader.correct(c.answer, problem)) for c in row] for problem, row in rows]
    return Tried(
        answers=[_alike([c.answer for c in row], problem, context) for problem, row in rows],
        coherence=[[c.coherence or 0.0 for c in row] for _, row in rows],
        correct=correct if labelled else None,
    )


def _alike(answers: Sequence[str | None], problem: Problem, context: Context) -> list[str | None]:
    """Replace each answer by the first one that equals it."""
    first: list[str] = []
    out: list[str | None] = []
    for answer in answers:
        same = (one for one in first if context.grader.equal(one, answer, problem.answer_type))
        known = next(same, answer)
        if known is not None and known not in first:
            first.append(known)
        out.append(known)
    return out
