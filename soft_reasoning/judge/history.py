"""The history of a question's rounds: its candidates, the verdicts, and which answers are equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.judge.verifiers import Verdict
from soft_reasoning.types import Candidate


def same_answers(answers: Sequence[str | None], grader: AnswerGrader, answer_type: str) -> list[list[int]]:
    """Return the indices of equal answers, group by group in order of appearance; None is in no group."""
    groups: list[list[int]] = []
    for i, answer in enumerate(answers):
        if answer is not None:
            same = (group for group in groups if grader.equal(answers[group[0]], answer, answer_type))
            if (group := next(same, None)) is None:
                groups.append([i])
            else:
                group.append(i)
    return groups


@dataclass(frozen=True)
class SearchHistory:
    """What is known of a question after some rounds; final rules and stopping rules read it.

    Attributes:
        candidates: The candidates of all rounds.
        verdicts: A verdict per round.
        grader: Decides which answers are equal.
        answer_type: The type of the answers.
    """

    candidates: Sequence[Candidate]
    verdicts: Sequence[Verdict]
    grader: AnswerGrader
    answer_type: str = "number"

    def approval(self) -> list[float]:
        """Return the sum of the scores of each distinct answer, in order of appearance.

        For an answer that was not judged it is the number of its candidates.
        """
        sums: list[float] = []
        for group in same_answers([c.answer for c in self.candidates], self.grader, self.answer_type):
            scores = [score for i in group if (score := self.candidates[i].verified) is not None]
            sums.append(sum(scores) if scores else len(group))
        return sums


def stored_verdicts(trace: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Return the votes of a record's trace, a verdict with answers and weights per round."""
    verdicts: list[Verdict] = []
    for stored in (entry.get("verifier") or {} for entry in trace):
        answers = tuple(stored.get("answers", ()))
        verdicts.append(Verdict((), answers, (), tuple(stored.get("weights", ())) or (1.0,) * len(answers)))
    return verdicts
