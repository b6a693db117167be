"""Numbers and formulas read and compared by Math-Verify, in the worker process of ``algebra``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from soft_reasoning.answers import algebra
from soft_reasoning.answers.grading import vote_by
from soft_reasoning.types import Problem, UserError

TYPES = ("number", "latex")


@dataclass(frozen=True)
class MathVerifyGrader:
    """Grades as ``math_verify.verify(parse(gold), parse(text))`` does, with the library's defaults.

    An answer is text that Math-Verify parses to what it found in the model's text.

    Raises:
        UserError: where another type of answer than a number or formula is read, and without math-verify.
    """

    @property
    def name(self) -> str:
        return "math_verify"

    def supports(self, answer_type: str) -> bool:
        return answer_type in TYPES

    def extract(self, text: str, answer_type: str) -> str | None:
        """Return what ``math_verify.parse`` finds in ``text``; None if it finds nothing in time."""
        if not self.supports(answer_type):
            raise UserError(
                f"grader={self.name} reads numbers and formulas, got answers of type {answer_type}; "
                "use grader=default"
            )
        return algebra.parsed(text)

    def locate(self, text: str, answer_type: str) -> tuple[int, int] | None:
        """Return the last place of the answer in ``text``; None if Math-Verify spells it differently."""
        answer = self.extract(text, answer_type)
        start = -1 if answer is None else text.rfind(answer.strip("$"))
        return None if answer is None or start < 0 else (start, start + len(answer.strip("$")))

    def equal(self, a: str | None, b: str | None, answer_type: str) -> bool:
        """Whether either verifies the other, since Math-Verify is not symmetric."""
        if a is None or b is None:
            return False
        return a == b or algebra.verified(a, b) or algebra.verified(b, a)

    def vote(
        self, answers: Sequence[str | None], answer_type: str, weights: Sequence[float] | None = None
    ) -> str | None:
        return vote_by(lambda a, b: self.equal(a, b, answer_type), answers, weights)

    def correct(self, answer: str | None, problem: Problem) -> bool | None:
        """Whether Math-Verify verifies ``answer`` by the problem's; None without a gold answer."""
        if problem.gold is None or answer is None:
            return None if problem.gold is None else False
        return algebra.verified(f"${problem.gold}$", answer)
