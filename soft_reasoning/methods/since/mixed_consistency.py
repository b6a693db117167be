"""Solutions in words and programs vote together (arXiv 2604.17433).

What both find is rarely wrong for the same reason. It is a control of ``verifier=program``: the solutions are
those of ``method=self_consistency``, the programs those of ``method=program_consistency``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from soft_reasoning.checks import check_sampling, counts, real
from soft_reasoning.methods.base import SampledMethod
from soft_reasoning.rewards.history import same_answers
from soft_reasoning.rewards.programs import Programs
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.scheduling.solutions import read_candidate, solution_request
from soft_reasoning.types import Generate, Problem, Result


@dataclass(frozen=True, kw_only=True)
class MixedConsistency(SampledMethod):
    """A vote of ``samples`` solutions and ``programs.samples`` programs; the earliest answer wins a tie.

    Candidates are the solutions, then the programs. The trace holds the weight of each.
    The options of the solutions are those of :class:`SampledMethod`.

    Args:
        samples: Number of solutions.
        programs: How programs are written and run.
        program_weight: Votes of the first program with an answer; a solution has 1.
        repeat_weight: Votes of each further program with the same answer, as a share of the one before. At 1
            all count alike; programs for one question often err together.

    Raises:
        OptionError: For a value out of its range.
    """

    samples: int = 3
    programs: Programs = field(default_factory=Programs)
    program_weight: float = 1.0
    repeat_weight: float = 1.0
    name: str = "mixed_consistency"

    def __post_init__(self) -> None:
        counts(self, "samples", "max_new_tokens")
        check_sampling(self)
        real("program_weight", self.program_weight, above=0.0)
        real("repeat_weight", self.repeat_weight, least=0.0, most=1.0)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        solutions = [
            solution_request(problem, context, self.max_new_tokens, index=i, sampling=self.sampling)
            for i in range(self.samples)
        ]
        completions = yield Generate(solutions)
        candidates = [read_candidate(completion, problem, context) for completion in completions]
        programs = yield from self.programs.write(
            problem, context, 0, self.programs.samples, role="candidate"
        )
        candidates += [program.candidate for program in programs]
        answers, kind = [candidate.answer for candidate in candidates], problem.answer_type
        weights = [1.0] * len(answers)
        for group in same_answers(answers, context.grader, kind):
            for place, i in enumerate(i for i in group if i >= self.samples):
                weights[i] = self.program_weight * self.repeat_weight**place
        answer = context.grader.vote(answers, kind, weights)
        return Result(answer, tuple(candidates), ({"weights": weights},))
