"""Solutions in words and programs vote together (arXiv 2604.17433).

They rarely make the same mistake, so an answer on which they agree is rarely wrong. It is a control of
``verifier=program``: the solutions are those of ``method=self_consistency``, the programs those of
``method=program_consistency``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import ClassVar

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.checks import counts, real
from soft_reasoning.judge.final import eligible_answers, lead_probability, same_answers
from soft_reasoning.judge.programs import Programs
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.schedule.solutions import SamplingOptions, read_candidate, sample_solutions
from soft_reasoning.task.probe import Probe
from soft_reasoning.types import Candidate, Problem, Result


@dataclass(frozen=True, kw_only=True)
class MixedConsistency(SamplingOptions):
    """A vote of programs and solutions; the earliest answer wins a tie, solutions before programs.

    The programs come first, since they are short. Then solutions follow in waves until the vote is settled
    (:func:`~soft_reasoning.judge.final.lead_probability`). With a probe a solution's weight is its score
    as a multiple of the mean score of those with an answer. Candidates are the solutions, then the programs.
    The trace holds the weight of each. The options of the solutions are those of :class:`SamplingOptions`.

    Args:
        samples: Maximum number of solutions.
        confidence: Probability at which the vote is settled; at 1 all solutions are written.
        wave: Solutions that are written together. On recorded answers (1,769 blocks of 1,300 questions) 5
            give the same answers as 1, with 9 % more tokens and 60 % fewer one after the other.
        programs: How programs are written and run.
        program_weight: Votes of the first program with an answer; a solution has 1.
        repeat_weight: Votes of each further program with the same answer, as a share of the one before. At 1
            all count the same; but programs for one question often share an error.
        probe: Scores the solutions: a probe, or a file of one that ``soft-reasoning tune tune=probe`` wrote.
            One of another model or prompt is refused. None gives each solution one vote.

    Raises:
        OptionError: For a value out of its range.
    """

    samples: int = 5
    confidence: float = 0.85
    wave: int = 5
    programs: Programs = field(default_factory=Programs)
    program_weight: float = 1.0
    repeat_weight: float = 1.0
    probe: Probe | str | PathLike[str] | None = None
    name: str = "mixed_consistency"
    short: ClassVar[Mapping[str, str]] = {**SamplingOptions.short, "probe": "probe"}

    def __post_init__(self) -> None:
        super().__post_init__()
        counts(self, "samples", "wave")
        real("confidence", self.confidence, above=0.5, most=1.0)
        real("program_weight", self.program_weight, above=0.0)
        real("repeat_weight", self.repeat_weight, least=0.0, most=1.0)
        if self.probe is not None:
            object.__setattr__(self, "probe", Probe.load(self.probe))

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        written = yield from self.programs.write(problem, context, role="candidate")
        programs, solutions = [program.candidate for program in written], list[Candidate]()
        grader, kind, log_odds = context.grader, problem.answer_type, list[float]()
        answers = eligible_answers(programs, kind)
        weights, sums = self.votes([], answers, grader, kind)
        while len(solutions) < self.samples and lead_probability(sums) < self.confidence:
            last = min(self.samples, len(solutions) + self.wave)
            completions = yield from sample_solutions(
                problem, context, self.max_new_tokens, self.sampling, range(len(solutions), last)
            )
            new = [read_candidate(completion, problem, context) for completion in completions]
            solutions += new
            if isinstance(self.probe, Probe):
                log_odds += yield from self.probe.read_log_odds(problem, new, context)
                scores = self.probe.scores(log_odds, [c.answer for c in solutions], grader, kind)
                solutions = [replace(c, verified=x) for c, x in zip(solutions, scores, strict=True)]
            answers, count = eligible_answers([*solutions, *programs], kind), len(solutions)
            scores = [candidate.verified for candidate in solutions]
            weights, sums = self.votes(answers[:count], answers[count:], grader, kind, scores)
        answer = grader.vote(answers, kind, weights)
        return Result(answer, (*solutions, *programs), ({"weights": weights},))

    def votes(
        self,
        solutions: Sequence[str | None],
        programs: Sequence[str | None],
        grader: AnswerGrader,
        answer_type: str,
        scores: Sequence[float | None] = (),
    ) -> tuple[list[float], list[float]]:
        """Return the weight of each answer of ``solutions``, then ``programs``, and of each distinct one.

        ``scores`` are those of the solutions, None for one that was not judged, which weighs 1. They are
        divided by their mean over the solutions with an answer.
        """
        answers = [*solutions, *programs]
        weights, sums = [1.0] * len(answers), list[float]()
        pairs = zip(solutions, scores, strict=False)
        judged = [score for answer, score in pairs if answer is not None and score is not None]
        if total := sum(judged):
            mean = total / len(judged)
            weights[: len(scores)] = [1.0 if score is None else score / mean for score in scores]
        for group in same_answers(answers, grader, answer_type):
            for place, i in enumerate(i for i in group if i >= len(solutions)):
                weights[i] = self.program_weight * self.repeat_weight**place
            sums.append(sum(weights[i] for i in group))
        return weights, sums
