"""Graders that read and compare exactly as other programs do.

lm-evaluation-harness (task ``gsm8k``, version 3.0): a filter extracts a piece of the text by a regular
expression. ``exact_match`` compares it with the reference after removing commas, dollars, everything before
``#### `` and a final full stop from both. The harness stops generation at "Question:", "</s>" and
"<|im_end|>"; a grader receives texts that were already stopped.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass

from soft_reasoning.answers import latex
from soft_reasoning.answers.grading import AnswerGrader
from soft_reasoning.checks import choice
from soft_reasoning.types import Problem

_FIRST_AFTER_HASHES = re.compile(r"#### (\-?[0-9\.\,]+)")
_ANY_NUMBER = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")
_FINAL_STOP = re.compile(r"\.$")
NAMES = {"strict-match": "lm_eval_strict", "flexible-extract": "lm_eval_flexible"}


@dataclass(frozen=True)
class LmEvalGrader(AnswerGrader):
    """Reads and compares numbers as lm-evaluation-harness does for GSM8K.

    Args:
        filter: ``strict-match`` takes the number after the first ``#### ``, ``flexible-extract`` the last.
    """

    filter: str
    types = ("number",)

    def __post_init__(self) -> None:
        choice("filter", self.filter, tuple(NAMES))

    @property
    def name(self) -> str:
        return NAMES[self.filter]

    def extract(self, text: str, answer_type: str, question: str = "", *, cut: bool = False) -> str | None:
        place = self.locate(text, answer_type)
        return None if place is None else text[slice(*place)]

    def locate(self, text: str, answer_type: str, question: str = "") -> tuple[int, int] | None:
        self.check(answer_type)
        if self.filter == "strict-match":
            first = _FIRST_AFTER_HASHES.search(text)
            return None if first is None else first.span(1)
        last = deque(_ANY_NUMBER.finditer(text), maxlen=1)
        return last[0].span() if last else None

    def equal(self, a: str | None, b: str | None, answer_type: str) -> bool:
        return a is not None and b is not None and normalised(a) == normalised(b)


def normalised(text: str) -> str:
    """Return ``text`` as ``exact_match`` compares it: lower case, without ``regexes_to_ignore``."""
    text = text.replace(",", "").replace("$", "")
    text = text.rpartition("#### ")[2]  # (?s).*####\x20 removed, in linear time
    return _FINAL_STOP.sub("", text).lower()


@dataclass(frozen=True)
class MathVerifyGrader(AnswerGrader):
    """Grades as ``math_verify.verify(parse(gold), parse(text))`` does, with the library's defaults.

    An answer is a text with the same parse as the model's text. Two are equal if either verifies the other.
    """

    types = ("number", "latex")

    @property
    def name(self) -> str:
        return "math_verify"

    def extract(self, text: str, answer_type: str, question: str = "", *, cut: bool = False) -> str | None:
        self.check(answer_type)
        return latex.ask(latex.PARSED, text)

    def locate(self, text: str, answer_type: str, question: str = "") -> tuple[int, int] | None:
        """Return the last span of the answer in ``text``; None if Math-Verify spells it differently."""
        answer = (self.extract(text, answer_type) or "").strip("$")
        start = text.rfind(answer) if answer else -1
        return None if start < 0 else (start, start + len(answer))

    def of_value(self, answer: str, answer_type: str) -> str:
        return f"${answer}$"  # a formula parses between dollars

    def equal(self, a: str | None, b: str | None, answer_type: str) -> bool:
        if a is None or b is None:
            return False
        return a == b or bool(latex.ask(latex.VERIFIED, a, b) or latex.ask(latex.VERIFIED, b, a))

    def correct(self, answer: str | None, problem: Problem) -> bool | None:
        if problem.gold is None or answer is None:
            return None if problem.gold is None else False
        return bool(latex.ask(latex.VERIFIED, f"${problem.gold}$", answer))
