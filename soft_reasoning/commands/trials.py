"""Trying several settings of the search on all questions, in common batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.methods.base import read_candidate, solution_request
from soft_reasoning.methods.soft_reasoning import SoftReasoning
from soft_reasoning.reports.calibration import Tried
from soft_reasoning.rewards.estimates import same_answers
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.search.features import Features
from soft_reasoning.search.surrogate import Surrogate
from soft_reasoning.types import Candidate, Generate, Problem, Result, Sampling

SHOWN = 10
"""Points of a question whose worth the surrogate is told."""
Try = Callable[[Problem, Context], Steps[list[Candidate]]]


@dataclass(frozen=True)
class Trial:
    """Tries every setting on a question; the candidates come in the order of the settings.

    The answer is their vote.
    """

    settings: Sequence[Try]
    name: str = "calibration"

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        candidates: list[Candidate] = []
        for setting in self.settings:
            candidates += yield from setting(problem, context)
        answer = context.grader.vote([each.answer for each in candidates], problem.answer_type)
        return Result(answer, tuple(candidates))


def at_points(method: SoftReasoning, points: Tensor) -> Try:
    """Try ``points`` (n, d) in the method's search space."""

    def steps(problem: Problem, context: Context) -> Steps[list[Candidate]]:
        box = yield from method.open(problem, context)
        return (yield from method.complete(box, points, context))

    return steps


def by_sampling(method: SoftReasoning, temperature: float, count: int) -> Try:
    """Sample ``count`` completions without a soft token."""

    def steps(problem: Problem, context: Context) -> Steps[list[Candidate]]:
        top = getattr(method.reward, "top_logprobs", 0)
        how = {"sampling": Sampling(temperature=temperature), "top_logprobs": top}
        most = method.max_new_tokens
        completions = yield Generate(
            [solution_request(problem, context, most, index=i, **how) for i in range(count)]
        )
        return [read_candidate(done, problem, context, reward=method.reward) for done in completions]

    return steps


@dataclass(frozen=True)
class Foresight:
    """Asks how well the surrogate foresees a point's worth, for each choice of features.

    It is told the worth of a question's first points, and ranks the others.

    Args:
        method: Its search space is that of the points.
        features: By name.
        surrogate: Fitted to the features.
        points: (n, d), tried on all questions.
        worth: What each point's try at a question, by its id, was worth, for example 1 if it is right.
        texts: What it wrote.
        found: Filled with each question's shares, by name, of pairs ranked rightly: of all, and of new texts.
    """

    method: SoftReasoning
    features: Mapping[str, Features]
    surrogate: Surrogate
    points: Tensor
    worth: Mapping[str, Sequence[float]]
    texts: Mapping[str, Sequence[str]]
    found: dict[str, list[tuple[float, float]]]
    name: str = "foresight"

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        box = yield from self.method.open(problem, context)
        worth = torch.tensor(self.worth[problem.id], dtype=torch.float64)
        texts = self.texts[problem.id]
        new = torch.tensor([text not in texts[:SHOWN] for text in texts[SHOWN:]])
        for name, features in self.features.items():
            pool = yield from self.method.look(box, self.points, context, features)
            with torch.no_grad():
                gp = self.surrogate.fit(pool.features[:SHOWN], worth[:SHOWN])
                expected, _ = gp.marginals(pool.features[SHOWN:])
            rest = worth[SHOWN:]
            shares = ranked(expected, rest), ranked(expected[new], rest[new])
            self.found.setdefault(name, []).append(shares)
        return Result(None, ())


def ranked(expected: Tensor, worth: Tensor) -> float:
    """Return the share of pairs of unequal worth (n,) that ``expected`` (n,) ranks rightly; NaN without one.

    A tie counts half.
    """
    right = (expected.unsqueeze(-1) - expected).sign() / 2 + 0.5
    return float(right[worth.unsqueeze(-1) > worth].mean())


def tried(
    records: Mapping[str, Mapping[str, Any]],
    settings: Mapping[Any, tuple[Try, int]],
    problems: Sequence[Problem],
    context: Context,
) -> dict[Any, Tried]:
    """Return what each setting gave, from the records of a run of :class:`Trial`.

    Args:
        records: Each problem's record by its id.
        settings: The trial's settings, each with its number of tries, in their order.
        problems: The problems.
        context: For its grader.
    """
    out: dict[Any, Tried] = {}
    start = 0
    for key, (_, count) in settings.items():
        rows = [(problem, records[problem.id]["candidates"][start : start + count]) for problem in problems]
        out[key] = _tried(rows, context)
        start += count
    return out


def _tried(rows: Sequence[tuple[Problem, Sequence[Mapping[str, Any]]]], context: Context) -> Tried:
    labelled = all(problem.gold is not None for problem, _ in rows)
    correct = [[bool(context.grader.correct(c["answer"], problem)) for c in row] for problem, row in rows]
    return Tried(
        answers=[_alike([c["answer"] for c in row], problem, context) for problem, row in rows],
        coherence=[[c["coherence"] or 0.0 for c in row] for _, row in rows],
        correct=correct if labelled else None,
    )


def _alike(answers: Sequence[str | None], problem: Problem, context: Context) -> list[str | None]:
    """Replace each answer by the first one that equals it."""
    out = list(answers)
    for group in same_answers(answers, context.grader, problem.answer_type):
        for i in group:
            out[i] = answers[group[0]]
    return out
