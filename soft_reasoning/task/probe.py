"""A judge that reads the model's hidden states in a candidate, and the votes for its answer.

It is a logistic regression, fitted once on labelled solutions of a task by
:class:`soft_reasoning.task.ProbeFitting`. LiLaVe (Piotrowski et al., arXiv 2504.16760) fits boosted trees to
hidden states. The judge writes nothing: reading takes one forward pass over a candidate's tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import ClassVar

import torch
from torch import Tensor

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.judge.final import same_answers
from soft_reasoning.judge.verifier import Verdict
from soft_reasoning.schedule.effects import BudgetSpent
from soft_reasoning.schedule.method import Context, Generate, Steps
from soft_reasoning.task.learnt import Learnt
from soft_reasoning.types import Candidate, Problem, Request

DEPTH = 2 / 3
"""Share of the layers below the states that are read."""


@dataclass(frozen=True, kw_only=True)
class Probe(Learnt):
    """A logistic regression: sigmoid(weights . h + vote_weight v + bias) is the score of a candidate.

    h (2D,) is the hidden state at its end and the mean over its tokens, and v the share of the other
    candidates with the same answer.

    Attributes:
        weights: (2D,).
        vote_weight: The log-odds that v = 1 adds.
        bias: The log-odds at h = 0 and v = 0.
        measured: Its cross-validated quality when it was fitted.

    Raises:
        OptionError: As for :class:`~soft_reasoning.task.learnt.Learnt`.
    """

    weights: Sequence[float]
    vote_weight: float
    bias: float
    measured: Mapping[str, float] = field(default_factory=dict[str, float])
    option: ClassVar[str] = "probe"
    needs: ClassVar[frozenset[str]] = frozenset({"hidden_states"})
    command: ClassVar[str] = "soft-reasoning tune tune=probe"
    numbers: ClassVar[Mapping[str, int]] = {"weights": 1, "vote_weight": 0, "bias": 0}

    @property
    def hidden_size(self) -> float:
        return len(self.weights) / 2

    def read_log_odds(
        self, problem: Problem, candidates: Sequence[Candidate], context: Context
    ) -> Steps[list[float]]:
        """Return the log-odds of each candidate's hidden states; NaN for one that is not read.

        A candidate without an answer is not read, and none is where the budget is spent.

        Raises:
            UserError: If the probe was made for another model or prompt.
        """
        self.check_fits(context)
        shown = [candidate.text for candidate in candidates if candidate.answer is not None]
        if not shown:
            return [math.nan] * len(candidates)
        try:
            states = yield from read_states(problem, shown, context)
        except BudgetSpent:
            return [math.nan] * len(candidates)
        read = iter((states.double() @ torch.tensor(self.weights, dtype=torch.float64)).tolist())
        return [math.nan if candidate.answer is None else next(read) for candidate in candidates]

    def scores(
        self, log_odds: Sequence[float], answers: Sequence[str | None], grader: AnswerGrader, answer_type: str
    ) -> list[float | None]:
        """Return the scores of candidates with these ``answers``; 0 without an answer, None if not read."""
        votes = torch.tensor(vote_shares(answers, grader, answer_type), dtype=torch.float64)
        odds = torch.tensor(log_odds, dtype=torch.float64) + self.vote_weight * votes + self.bias
        scores = zip(answers, torch.sigmoid(odds).tolist(), strict=True)
        return [0.0 if answer is None else None if math.isnan(score) else score for answer, score in scores]


def vote_shares(answers: Sequence[str | None], grader: AnswerGrader, answer_type: str) -> list[float]:
    """Return, for each answer, the share of the others that are equal to it; 0 for None."""
    shares = [0.0] * len(answers)
    for group in same_answers(answers, grader, answer_type):
        for i in group:
            shares[i] = (len(group) - 1) / max(len(answers) - 1, 1)
    return shares


def read_states(problem: Problem, texts: Sequence[str], context: Context) -> Steps[Tensor]:
    """Return the hidden states (n, 2D) of ``texts``, which follow the problem's prompt.

    These are the state at the end of a text, and the mean over its tokens. A text that fills the model's
    context is read up to its last token but one.

    Raises:
        BudgetSpent: If the problem's budget allows no more work.
    """
    ids, engine = context.prompts.solve(problem).ids, context.engine
    read = [
        (*ids, *engine.tokenizer.encode(text, add_special_tokens=False))[: engine.context_length - 1]
        for text in texts
    ]
    requests = [
        Request(
            row,
            max_new_tokens=0,
            hidden_state=DEPTH,
            average_from=min(len(ids), len(row) - 1),
            role="verifier",
        )
        for row in read
    ]
    looks = yield Generate(requests)
    states = [look.hidden_state.flatten() for look in looks if look.hidden_state is not None]
    if len(states) < len(texts):
        raise BudgetSpent
    return torch.stack(states)


@dataclass(frozen=True, kw_only=True)
class HiddenStateJudge:
    """Scores a candidate by a probe of its hidden states, and by the votes of the round for its answer.

    Args:
        probe: The probe, or a file of it that ``soft-reasoning tune tune=probe`` wrote. One of another model
            or prompt is refused.

    Raises:
        OptionError: For a file without a probe.
    """

    probe: Probe | str | PathLike[str]
    name: str = "probe"
    short: ClassVar[Mapping[str, str]] = {"probe": "probe"}

    def __post_init__(self) -> None:
        object.__setattr__(self, "probe", Probe.load(self.probe))

    def verify(
        self, problem: Problem, candidates: Sequence[Candidate], context: Context, earlier: Sequence[Verdict]
    ) -> Steps[Verdict]:
        probe, answers = Probe.load(self.probe), [candidate.answer for candidate in candidates]
        log_odds = yield from probe.read_log_odds(problem, candidates, context)
        return Verdict(tuple(probe.scores(log_odds, answers, context.grader, problem.answer_type)))
