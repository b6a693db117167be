"""A verifier that computes: candidates that agree with programs written from the question alone are correct.

Executed translations of solutions raise the accuracy of small models without training (PROVE, arXiv
2410.12608). A program from the question alone does not inherit a solution's misread facts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from soft_reasoning.judge.programs.writing import Program, Programs
from soft_reasoning.judge.verifier import Verdict
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.types import Candidate, Problem


@dataclass(frozen=True, kw_only=True)
class ProgramVerifier(Programs):
    """Scores a candidate by the share of the programs with an answer that agree with it.

    The programs are written in the first round and kept for the question. Their answers vote in the final
    answer like fresh solutions. If no program has an answer, no candidate is judged.
    """

    name: str = "program"
    short: ClassVar[Mapping[str, str]] = {}

    def verify(
        self, problem: Problem, candidates: Sequence[Candidate], context: Context, earlier: Sequence[Verdict]
    ) -> Steps[Verdict]:
        known = [answer for verdict in earlier for answer in verdict.answers]
        new: list[Program] = []
        if not earlier:
            new = yield from self.write(problem, context, role="verifier")
        answers = tuple(program.answer for program in new)
        ran = [answer for answer in (*known, *answers) if answer is not None]
        equal = context.grader.equal
        scores = [
            sum(equal(c.answer, answer, problem.answer_type) for answer in ran) / len(ran) if ran else None
            for c in candidates
        ]
        return Verdict(
            tuple(scores),
            answers,
            tuple(program.text for program in new),
            prompts=tuple(program.prompt for program in new),
            computed=True,
        )
