"""How the public code extracts, shows and votes on answers, for ``preset=released``.

It reads candidates and verifier by different rules. A candidate's number loses its minus. The verifier's
number is cut at its first comma and printed as a float. Both are then compared as strings.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from soft_reasoning.answers import AnswerGrader, Grader
from soft_reasoning.judge.final import SearchHistory
from soft_reasoning.judge.model_verifier import FreshSolution
from soft_reasoning.types import Problem

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
NO_NUMBER, FAILED = "None", "-9999"
"""The verifier's answer if its "Answer:" holds no number, and if it has no "Answer:". Both strings vote."""


def after_marker(text: str) -> str | None:
    """Return what follows the first "Answer:" before any "Question", or None."""
    _, marker, rest = text.partition("Question")[0].partition("Answer:")
    return rest if marker else None


def truth(text: str) -> str | None:
    """Return a boolean by substring, "true" before "false" and "yes" before "no"."""
    words = {"true": "True", "false": "False", "yes": "True", "no": "False"}
    return next((value for word, value in words.items() if word in text.lower()), None)


@dataclass(frozen=True)
class ReleasedGrader(Grader):
    """Reads a candidate's number as the first digits after "Answer:", without commas and minus.

    Booleans are read by substring. Other types, and all types under ``strict``, are read as by ``Grader``.
    """

    absolute: float = 0.01
    relative: float = 0.0

    @property
    def name(self) -> str:
        return "strict" if self.extraction == "strict" else "released"

    def extract(self, text: str, answer_type: str, question: str = "", *, cut: bool = False) -> str | None:
        if self.extraction == "strict" or answer_type not in ("number", "boolean"):
            return super().extract(text, answer_type, question, cut=cut)
        answer = after_marker(text)
        if answer is None:
            return None
        if answer_type == "boolean":
            return truth(answer)
        number = _NUMBER.search(answer.replace(",", ""))
        return number.group().lstrip("-") if number else None


@dataclass(frozen=True)
class ReleasedSolution(FreshSolution):
    """A fresh solution, whose number is cut at its first comma and printed as a float."""

    def complete(self, text: str) -> bool:
        return True

    def read(self, text: str, problem: Problem, grader: AnswerGrader) -> str | None:
        if problem.answer_type not in ("number", "boolean"):
            return super().read(text, problem, grader)
        answer = after_marker(text)
        if answer is None:
            return FAILED
        if problem.answer_type == "boolean":
            return truth(answer) or NO_NUMBER
        number = _NUMBER.search(answer)
        return str(float(number.group())) if number else NO_NUMBER


@dataclass(frozen=True)
class ReleasedVote:
    """The most frequent string among the verifier's answers, then the candidates'; the first wins a tie."""

    def choose(self, history: SearchHistory) -> str | None:
        """Return the answer."""
        answers = [answer for verdict in history.verdicts for answer in verdict.answers]
        votes = Counter(a for a in (*answers, *(c.answer for c in history.candidates)) if a is not None)
        return max(votes, key=votes.__getitem__) if votes else None
