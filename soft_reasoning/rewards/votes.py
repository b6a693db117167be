"""Who voted for which answer, and with what weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from soft_reasoning.rewards.estimates import Judged, same_answers
from soft_reasoning.rewards.final import VOTES, FinalAnswer
from soft_reasoning.rewards.verifiers import Verdict


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


def votes_of(judged: Judged, final: FinalAnswer | None) -> list[Vote]:
    """Return the answers, those of most weight first; ``final`` is the rule of the final answer, if known."""
    candidates = [one if one.reward is not None else replace(one, reward=0.0) for one in judged.candidates]
    weighed = final is not None and final.rule in VOTES
    rule = final if final is not None and weighed else FinalAnswer("vote")
    votes = rule.votes(replace(judged, candidates=candidates))
    found: list[tuple[float, Vote]] = []
    for group in same_answers([answer for answer, _ in votes], judged.grader, judged.answer_type):
        own = [i for i in group if i >= len(candidates)]
        weight, by_verifier = (sum(votes[i][1] for i in some) for some in (group, own))
        one = Vote(votes[group[0]][0] or "", len(group) - len(own), len(own))
        found.append((weight, replace(one, weight=weight, by_verifier=by_verifier) if weighed else one))
    return [one for _, one in sorted(found, key=lambda pair: -pair[0])]
