"""The final answer after a search; the paper defines no rule, so the rule is a configuration value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import beta  # pyright: ignore[reportMissingTypeStubs]

from soft_reasoning.answers import FREE, AnswerGrader
from soft_reasoning.checks import choice, real
from soft_reasoning.judge.reward import rewards_of
from soft_reasoning.judge.verifier import Verdict
from soft_reasoning.types import Candidate

RULES = ("vote", "reward_vote", "weighted_vote", "best_reward", "verifier")
VOTES = RULES[:3]
"""Rules that give each vote a weight."""


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
    """Return the verdicts of a trace, one per entry, without scores, which the candidates have."""
    verdicts: list[Verdict] = []
    for stored in (entry.get("verifier") or {} for entry in trace):
        parts = {name: tuple(stored.get(name, ())) for name in ("answers", "texts", "weights", "prompts")}
        verdicts.append(Verdict((), **parts, computed=stored.get("computed", False)))
    return verdicts


@dataclass(frozen=True)
class FinalAnswer:
    """Chooses the final answer from candidates and verdicts.

    Candidates and the verifier's answers vote; the grader decides which answers are equal.

    Args:
        rule: ``vote`` counts each candidate 1, ``reward_vote`` its reward minus the lowest reward.
            ``weighted_vote`` counts a candidate's reward, at least 0, or 1 if no reward is above 0.
            ``best_reward`` takes the answer of the candidate of highest reward. ``verifier`` takes the
            verifier's last parsed answer, else the vote.
        verifier_weight: Total weight of the verifier's answers of a round, in candidates; each answer is
            multiplied by its confidence. 0 leaves them out.
    """

    rule: str = "weighted_vote"
    verifier_weight: float = 1.0

    def __post_init__(self) -> None:
        choice("rule", self.rule, RULES)
        real("verifier_weight", self.verifier_weight, least=0.0)

    @property
    def reads_verdicts(self) -> bool:
        """Whether it reads the verifier's answers (rewards come from another part)."""
        return self.rule == "verifier" or (self.rule in VOTES and self.verifier_weight > 0)

    def choose(self, history: SearchHistory) -> str | None:
        """Return the answer, or None if there is none."""
        grader, answer_type = history.grader, history.answer_type
        if self.rule == "verifier":
            for verdict in reversed(history.verdicts):
                answer = grader.vote(verdict.answers, answer_type, weights=verdict.weights)
                if answer is not None:
                    return answer
        if self.rule == "best_reward":
            answers = eligible_answers(history.candidates, answer_type)
            pairs = zip(answers, rewards_of(history.candidates), strict=True)
            answered = [pair for pair in pairs if pair[0] is not None]
            return max(answered, key=lambda pair: pair[1])[0] if answered else None
        votes = self.votes(history)
        return grader.vote([a for a, _ in votes], answer_type, weights=[weight for _, weight in votes])

    def votes(self, history: SearchHistory) -> list[tuple[str | None, float]]:
        """(answer, weight) of every candidate, then of every answer of the verifier, round by round."""
        answers = eligible_answers(history.candidates, history.answer_type)
        votes = [*zip(answers, self._weights(history.candidates), strict=True)]
        for verdict in history.verdicts:
            share = self.verifier_weight / max(1, len(verdict.answers))
            votes += [(a, share * w) for a, w in zip(verdict.answers, verdict.weights, strict=True)]
        return votes

    def _weights(self, candidates: Sequence[Candidate]) -> list[float]:
        if self.rule == "reward_vote":
            rewards = rewards_of(candidates)
            lowest = min(rewards, default=0.0)
            return [1e-6 + r - lowest for r in rewards]  # equal rewards count the same
        if self.rule == "weighted_vote":
            positive = [max(0.0, r) for r in rewards_of(candidates)]
            if any(positive):
                return positive
        return [1.0] * len(candidates)


def eligible_answers(candidates: Sequence[Candidate], answer_type: str) -> list[str | None]:
    """Return the answer of each candidate that may be the final one; None for a free text that was cut.

    If no finished candidate has an answer, cut texts count.
    """
    finished = any(c.answer is not None and not c.cut for c in candidates)
    return [None if finished and c.cut and answer_type in FREE else c.answer for c in candidates]


def tokens_when_cut(candidate: Candidate, answer_type: str) -> int | None:
    """Return the tokens after which a limit cut a candidate before its answer ended; None for others."""
    lost = candidate.cut and (candidate.answer is None or answer_type in FREE)
    return candidate.generated_tokens if lost else None


def cut_warning(lost: int, candidates: int, tokens: int, limits: Iterable[str]) -> str:
    """Return a line about ``lost`` of ``candidates``, cut at ``tokens``; empty if fewer than a tenth are.

    ``limits`` names the budgets that a problem has.
    """
    if lost < max(1, candidates / 10):
        return ""
    options = " or ".join(["max_new_tokens", *limits])
    return f"{lost} of {candidates} candidates were cut at {tokens} tokens; raise {options}"


def lead_probability(votes: Sequence[float]) -> float:
    """Return the probability that the leading answer stays ahead of the second.

    For the weights v1 and v2 of the two best answers it is P(p > 1/2) with p ~ Beta(v1 + 1, v2 + 1), the Beta
    criterion of Adaptive-Consistency (arXiv 2305.11860).

    Args:
        votes: The weight of each distinct answer.
    """
    first, second, *_ = [*sorted(votes, reverse=True), 0.0, 0.0]
    return float(beta.sf(0.5, first + 1, second + 1))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


@dataclass(frozen=True)
class Vote:
    """The votes for an answer.

    Attributes:
        answer: The answer, as its first voter wrote it.
        candidates: Number of candidates with this answer.
        verifier: Number of the verifier's answers equal to it.
        weight: Total weight of these votes; None if the final answer was not chosen by weighted votes.
    """

    answer: str
    candidates: int = 0
    verifier: int = 0
    weight: float | None = None


def count_votes(history: SearchHistory, final: FinalAnswer | None) -> list[Vote]:
    """Return the votes for each answer, most weight first; ``final`` is the final rule, if known."""
    rule = final if final is not None and final.rule in VOTES else None
    votes = (rule or FinalAnswer("vote")).votes(history)
    weighted: list[tuple[float, Vote]] = []
    for group in same_answers([answer for answer, _ in votes], history.grader, history.answer_type):
        weight, seen = sum(votes[i][1] for i in group), sum(i < len(history.candidates) for i in group)
        vote = Vote(votes[group[0]][0] or "", seen, len(group) - seen, weight if rule else None)
        weighted.append((weight, vote))
    return [vote for _, vote in sorted(weighted, key=lambda pair: -pair[0])]
