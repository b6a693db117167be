"""Several judges together: agreement of the texts, programs, the model's verdict, and coherence.

Weak judges that make different errors are better together than the best of them alone (Weaver, arXiv
2506.18203). The
agreement of the texts is self-consistency, so the other parts have to add to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from statistics import fmean

from soft_reasoning.checks import OptionError, real
from soft_reasoning.rewards.ensemble.fitted import FittedWeights
from soft_reasoning.rewards.judgement import NamedChoice
from soft_reasoning.rewards.presentation import OneByOne
from soft_reasoning.rewards.programs import ProgramVerifier
from soft_reasoning.rewards.verifiers import ModelVerifier, Verdict, Verifier, verify
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.types import Candidate, Problem

PARTS = ("texts", "programs", "verdict", "coherence")
WEIGHTS = {"texts": 1.0, "programs": 1.0, "verdict": 0.5, "coherence": 0.5}


def _probability() -> ModelVerifier:
    return ModelVerifier(
        name="single_judge", presentation=OneByOne(), judgement=NamedChoice(), confidence="verdict_prob"
    )


@dataclass(frozen=True)
class Ensemble:
    """Scores a candidate by the weighted mean of the scores of its parts, each in [0, 1].

    ``texts`` is the share of the other candidates, of this and earlier rounds, that have its answer;
    ``programs`` how many programs have it; ``verdict`` the score of the verifier ``verdict``; ``coherence``
    the mean probability of its tokens. A part without a score is left out. Candidates without an answer
    score 0. The programs do not vote in the final answer and the reward adds no coherence: both are in the
    score.

    Args:
        programs: Writes programs; its answers are counted.
        verdict: Judges each candidate.
        texts_weight: Weight of a part. A part of weight 0 costs nothing.
        programs_weight: The same.
        verdict_weight: The same.
        coherence_weight: The same.
        repeat_weight: Weight of each further program that agrees, as a share of the one before: programs for
            one question often share an error. At 1 all count the same, at 0 only the first counts.
        fitted: Weights of :class:`FittedWeights`, or a file of them; the score then is a probability.

    Raises:
        OptionError: For a value out of its range, or if all weights are 0.
    """

    programs: Verifier = field(default_factory=ProgramVerifier)
    verdict: Verifier = field(default_factory=_probability)
    texts_weight: float = WEIGHTS["texts"]
    programs_weight: float = WEIGHTS["programs"]
    verdict_weight: float = WEIGHTS["verdict"]
    coherence_weight: float = WEIGHTS["coherence"]
    repeat_weight: float = 0.5
    fitted: FittedWeights | str | PathLike[str] | None = None
    name: str = "ensemble"

    def __post_init__(self) -> None:
        for part in PARTS:
            real(f"{part}_weight", getattr(self, f"{part}_weight"), least=0.0)
        real("repeat_weight", self.repeat_weight, least=0.0, most=1.0)
        if self.fitted is not None and not isinstance(self.fitted, FittedWeights):
            object.__setattr__(self, "fitted", FittedWeights.load(self.fitted))
        if not self.weights:
            raise OptionError("texts_weight", "expected a part with a weight above 0, got none")

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each part that has one."""
        weights = {part: getattr(self, f"{part}_weight") for part in PARTS}
        if isinstance(self.fitted, FittedWeights):
            weights = {
                part: weight and self.fitted.weights.get(part, 0.0) for part, weight in weights.items()
            }
        return {part: weight for part, weight in weights.items() if weight > 0}

    @property
    def judges(self) -> list[Verifier]:
        """The verifiers that are asked."""
        return [getattr(self, part) for part in ("programs", "verdict") if part in self.weights]

    @property
    def reads_coherence(self) -> bool:
        """Whether the score holds the coherence, so that the reward must not add it."""
        return "coherence" in self.weights

    def verify(
        self, problem: Problem, candidates: Sequence[Candidate], context: Context, earlier: Sequence[Verdict]
    ) -> Steps[Verdict]:
        weights, answers = self.weights, tuple(candidate.answer for candidate in candidates)
        parts: dict[str, list[float | None]] = {}
        programs = verdict = Verdict(())
        if "texts" in weights:
            known = [answer for before in earlier for answer in before.judged]
            parts["texts"] = _agreement(answers, known, problem, context)
        if "programs" in weights:
            programs = yield from verify(self.programs, problem, candidates, context, earlier)
            written = [answer for before in (*earlier, programs) for answer in before.answers]
            parts["programs"] = self._support(answers, written, problem, context)
        if "verdict" in weights:
            verdict = yield from verify(self.verdict, problem, candidates, context, earlier)
            parts["verdict"] = list(verdict.scores)
        if "coherence" in weights:
            parts["coherence"] = [_mean_probability(candidate) for candidate in candidates]
        part_scores = [{part: parts[part][i] for part in parts} for i in range(len(candidates))]
        return Verdict(
            tuple(self.score(answer, values) for answer, values in zip(answers, part_scores, strict=True)),
            programs.answers,
            programs.texts + verdict.texts,
            (0.0,) * len(programs.answers),
            prompts=programs.prompts + verdict.prompts,
            parts={part: tuple(values) for part, values in parts.items()},
            judged=answers,
        )

    def score(self, answer: str | None, values: Mapping[str, float | None]) -> float | None:
        """Return the score of a candidate from the scores of the parts; None if no part has one."""
        known = {part: value for part, value in values.items() if value is not None}
        if not known:
            return None
        if answer is None:
            return 0.0
        if isinstance(self.fitted, FittedWeights):
            return self.fitted.probability(known)
        weights = self.weights
        total = math.fsum(weights[part] for part in known)
        return math.fsum(weights[part] * value for part, value in known.items()) / total

    def _support(
        self, answers: Sequence[str | None], written: Sequence[str | None], problem: Problem, context: Context
    ) -> list[float | None]:
        """How many of the programs with an answer agree with each candidate, in [0, 1]."""
        ran = [answer for answer in written if answer is not None]
        most = saturating(len(ran), self.repeat_weight)
        equal = context.grader.equal
        agreeing = [sum(equal(a, b, problem.answer_type) for b in ran) for a in answers]
        return [saturating(count, self.repeat_weight) / most if ran else None for count in agreeing]


def _agreement(
    answers: Sequence[str | None], known: Sequence[str | None], problem: Problem, context: Context
) -> list[float | None]:
    """The share of the other candidates that have each candidate's answer; None without others."""
    every, others = [*known, *answers], len(known) + len(answers) - 1
    equal = context.grader.equal
    counts = [sum(equal(a, b, problem.answer_type) for b in every) - (a is not None) for a in answers]
    return [count / others if others else None for count in counts]


def saturating(count: int, share: float) -> float:
    """Return 1 + share + share^2 + ..., ``count`` terms."""
    return math.fsum(share**i for i in range(count))


def _mean_probability(candidate: Candidate) -> float | None:
    return fmean(map(math.exp, candidate.logprobs)) if candidate.logprobs else None
