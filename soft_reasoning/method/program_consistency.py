"""Programs alone: the majority of several, or one greedy program.

``method=program`` writes one (program-aided language models, Gao et al., arXiv 2211.10435). Both are controls
of ``verifier=program``, which writes the same programs.
"""

from __future__ import annotations

from dataclasses import dataclass

from soft_reasoning.judge.programs.writing import INSTEAD, NOT_COMPUTED, Programs
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.types import Problem, Result, UserError


@dataclass(frozen=True, kw_only=True)
class ProgramConsistency(Programs):
    """The majority answer of ``samples`` programs; the earliest wins a tie.

    Programs without an answer do not vote. A candidate's text is a program, with its answer on the last line.
    """

    name: str = "program_consistency"

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        programs = yield from self.write(problem, context, role="candidate")
        if not programs:
            raise UserError(
                f"{NOT_COMPUTED}a question with an answer of type {problem.answer_type}; use {INSTEAD}"
            )
        answer = context.grader.vote([program.answer for program in programs], problem.answer_type)
        return Result(answer, tuple(program.candidate for program in programs))
