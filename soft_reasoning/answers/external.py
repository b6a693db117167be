"""Graders that read and compare exactly as other programs do.

lm-evaluation-harness (task ``gsm8k``, version 3.0): a filter extracts a piece of the text by a regular
expression. ``exact_match`` compares it with the reference after removing commas, dollars, everything before
``#### `` and a final full stop from both. The harness stops generation at "Question:", "</s>" and
"<|im_end|>"; a grader receives texts that were already stopped.

Math-Verify reads numbers and formulas, in the worker process of ``algebra``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from soft_reasoning.answers import algebra
from soft_reasoning.answers.grading import AnswerGrader
from soft_reasoning.answers.reader import last_match
from soft_reasoning.checks import choice
from soft_reasoning.types import Problem, UserError

_FIRST_AFTER_HASHES = re.compile(r"#### (\-?[0-9\.\,]+)")
_ANY_NUMBER = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_FINAL_STOP = re.compile(r"\.$")
NAMES = {"strict-match": "lm_eval_strict", "flexible-extract": "lm_eval_flexible"}


@dataclass(frozen=True)
class LmEvalGrader(AnswerGrader):
    """Reads and compares numbers as lm-evaluation-harness does for GSM8K.

    Args:
        filter: ``strict-match`` takes the number after the first ``#### ``, ``flexible-extract`` the last.

    Raises:
        UserError: for another filter, and where another type of answer than a number is read.
    """

    filter: str

    def __post_init__(self) -> None:
        choice("filter", self.filter, tuple(NAMES))

    @property
    def name(self) -> str:
        return NAMES[self.filter]

    def supports(self, answer_type: str) -> bool:
        return answer_type == "number"

    def extract(self, text: str, answer_type: str) -> str | None:
        """Return what the filter takes from the text; None where the harness says ``[invalid]``."""
        place = self.locate(text, answer_type)
        return None if place is None else text[slice(*place)]

    def locate(self, text: str, answer_type: str) -> tuple[int, int] | None:
        if not self.supports(answer_type):
            raise UserError(
                f"grader={self.name} reads numbers, got answers of type {answer_type}; use grader=default"
            )
        if self.filter == "strict-match":
            first = _FIRST_AFTER_HASHES.search(text)
            return None if first is None else first.span(1)
        last = last_match(_ANY_NUMBER, text)
        return None if last is None else last.span()

    def equal(self, a: str | None, b: str | None, answer_type: str) -> bool:
        return a is not None and b is not None and normalised(a) == normalised(b)


def normalised(text: str) -> str:
    """Return ``text`` as ``exact_match`` compares it: lower case, without ``regexes_to_ignore``."""
    text = text.replace(",", "").replace("$", "")
    text = text.rpartition("#### ")[2]  # (?s).*####\x20 removed, in linear time
    return _FINAL_STOP.sub("", text).lower()


TYPES = ("number", "latex")


@dataclass(frozen=True)
class MathVerifyGrader(AnswerGrader):
    """Grades as ``math_verify.verify(parse(gold), parse(text))`` does, with the library's defaults.

    An answer is a text with the same parse as the model's text.

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
        return algebra.ask("grader=math_verify", "parsed", text)

    def locate(self, text: str, answer_type: str) -> tuple[int, int] | None:
        """Return the last span of the answer in ``text``; None if Math-Verify spells it differently."""
        answer = self.extract(text, answer_type)
        start = -1 if answer is None else text.rfind(answer.strip("$"))
        return None if answer is None or start < 0 else (start, start + len(answer.strip("$")))

    def equal(self, a: str | None, b: str | None, answer_type: str) -> bool:
        """Whether either verifies the other, since Math-Verify is not symmetric."""
        if a is None or b is None:
            return False
        return a == b or _verified(a, b) or _verified(b, a)

    def correct(self, answer: str | None, problem: Problem) -> bool | None:
        """Whether Math-Verify accepts ``answer`` for the gold answer; None without a gold answer."""
        if problem.gold is None or answer is None:
            return None if problem.gold is None else False
        return _verified(f"${problem.gold}$", answer)


def _verified(gold: str, answer: str) -> bool:
    return bool(algebra.ask("grader=math_verify", "verified", gold, answer))
