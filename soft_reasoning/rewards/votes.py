"""Who voted for which answer, and with what weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.rewards.final import VOTES, FinalAnswer
from soft_reasoning.rewards.verifiers import Verdict
from soft_reasoning.types import Candidate


@dataclass(frozen=True)
class Vote:
    """What speaks for one answer.

    Attributes:
        answer: The answer, as its first voter wrote it.
        candidates: Number of candidates with it.
        verifier: Number of the verifier's own answers that equal it.
        weight: Weight of all of them; None if the final answer was not a vote over them.
        by_verifier: The verifier's part of the weight.
    """

    answer: str
    candidates: int = 0
    verifier: int = 0
    weight: float | None = None
    by_verifier: float | None = None


def verdicts_of(trace: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Return the verdicts of a record's trace, one per round, as far as they vote."""
    verdicts: list[Verdict] = []
    for said in (entry.get("verifier") or {} for entry in trace):
        answers = tuple(said.get("answers", ()))
        verdicts.append(Verdict((), answers, (), tuple(said.get("weights", ())) or (1.0,) * len(answers)))
    return verdicts


def votes_of(
    candidates: Sequence[Candidate],
    trace: Sequence[Mapping[str, Any]],
    final: FinalAnswer | None,
    grader: AnswerGrader,
    answer_type: str,
) -> list[Vote]:
    """Return the answers, those of most weight first; ``final`` is the rule of the final answer, if known."""
    verdicts = verdicts_of(trace)
    weighed = final is not None and final.rule in VOTES
    rewarded = [one if one.reward is not None else replace(one, reward=0.0) for one in candidates]
    rule = final if final is not None and weighed else FinalAnswer("vote")
    groups: list[Vote] = []
    for place, (answer, weight) in enumerate(rule.votes(rewarded, verdicts, grader, answer_type)):
        if answer is None:
            continue
        same = (i for i, group in enumerate(groups) if grader.equal(group.answer, answer, answer_type))
        at = next(same, len(groups))
        if at == len(groups):
            groups.append(Vote(answer, weight=0.0, by_verifier=0.0))
        one, ours = groups[at], place < len(candidates)
        groups[at] = replace(
            one,
            candidates=one.candidates + ours,
            verifier=one.verifier + (not ours),
            weight=(one.weight or 0.0) + weight,
            by_verifier=(one.by_verifier or 0.0) + (0.0 if ours else weight),
        )
    found = sorted(groups, key=lambda one: -(one.weight or 0.0))
    return found if weighed else [replace(one, weight=None, by_verifier=None) for one in found]
