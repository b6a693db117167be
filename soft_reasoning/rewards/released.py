"""How the public code reads, shows and votes on answers, for ``preset=released``.

Candidates and verifier are read by different rules there: a candidate's number loses its minus, the
verifier's is cut at its first comma and printed as a float, and both are then compared as strings.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from soft_reasoning.answers import AnswerGrader, Grader
from soft_reasoning.rewards.verifiers import MultiGenerate, Verdict
from soft_reasoning.types import Candidate

NO_NUMBER, FAILED = "None", "-9999"
"""What the verifier's answer becomes where its "Answer:" holds no number, and where there is none. The
specification names both strings and not which case is which beyond that; both vote."""


def after_marker(text: str) -> str | None:
    """What follows the first "Answer:" before any "Question"; None where there is none."""
    _, marker, rest = text.partition("Question")[0].partition("Answer:")
    return rest if marker else None


def truth(text: str) -> str | None:
    """A boolean by substring, "true" before "false" and "yes" before "no"."""
    words = {"true": "True", "false": "False", "yes": "True", "no": "False"}
    return next((value for word, value in words.items() if word in text.lower()), None)


@dataclass(frozen=True)
class ReleasedGrader(Grader):
    """Reads a candidate's number as the first digits after "Answer:", commas removed, the minus lost; a
    boolean by substring. Other types, and all of them under ``strict``, as Grader does."""

    @property
    def name(self) -> str:
        return "strict" if self.extraction == "strict" else "released"

    def extract(self, text: str, answer_type: str) -> str | None:
        if self.extraction == "strict" or answer_type not in ("number", "boolean"):
            return super().extract(text, answer_type)
        held = after_marker(text)
        if held is None:
            return None
        if answer_type == "boolean":
            return truth(held)
        found = re.search(r"\d+(?:\.\d+)?", held.replace(",", ""))
        return found.group() if found else None


@dataclass(frozen=True)
class ReleasedVerifier(MultiGenerate):
    """``multi_generate`` that also sees its own earlier analyses, numbered like solutions and before them;
    the candidates of the round alone are scored, those of earlier rounds never again."""

    def _recalled(self, earlier: Sequence[Verdict]) -> Sequence[str]:
        return [text for verdict in earlier for text in verdict.texts]

    def _read(self, text: str, answer_type: str, context) -> str | None:
        if answer_type not in ("number", "boolean"):
            return super()._read(text, answer_type, context)
        held = after_marker(text)
        if held is None:
            return FAILED
        if answer_type == "boolean":
            return truth(held) or NO_NUMBER
        found = re.search(r"-?\d+(?:\.\d+)?", held)
        return str(float(found.group())) if found else NO_NUMBER


@dataclass(frozen=True)
class ReleasedVote:
    """The most frequent string among the verifier's answers, which come first, and the candidates'; a tie
    goes to the one seen first."""

    needs_posterior = False

    def choose(
        self,
        candidates: Sequence[Candidate],
        verdicts: Sequence[Verdict],
        grader: AnswerGrader,
        answer_type: str,
        posterior_mean: Sequence[float] | None = None,
    ) -> str | None:
        votes = Counter(answer for verdict in verdicts for answer in verdict.answers if answer is not None)
        votes.update(c.answer for c in candidates if c.answer is not None)
        return max(votes, key=votes.__getitem__) if votes else None
