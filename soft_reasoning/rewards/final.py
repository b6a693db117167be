"""The final answer after a search; the paper defines no rule, so each rule is a configuration value."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from soft_reasoning.checks import choice, real
from soft_reasoning.rewards.combine import rewards_of
from soft_reasoning.rewards.estimates import Judged
from soft_reasoning.rewards.learned import LearnedRule

RULES = ("vote", "reward_vote", "pooled_vote", "learned", "weighted_vote", "borda", "best_reward", "verifier")
VOTES = RULES[:6]
"""Rules that give every answer a weight."""


@dataclass(frozen=True)
class FinalAnswer:
    """Chooses the final answer from candidates and verdicts.

    Votes are over the candidates and the verifier's own answers, under the grader's equality.

    Args:
        rule: ``vote`` counts each candidate 1, ``reward_vote`` its reward minus the lowest one,
            ``pooled_vote`` what all verdicts together say of its answer (``rewards.estimates``).
            ``learned`` gives an answer the probability that a fitted rule sees (``prior``).
            ``weighted_vote`` counts a candidate's reward, at least 0 (DeepConf, Fu et al., arXiv
            2508.15260). ``borda`` gives the i-th best of N candidates (N - i + 1)^``power`` votes (the
            Borda vote of Kang et al., arXiv 2502.18581).
            ``best_reward`` takes one candidate's answer. ``verifier`` takes the verifier's last parsed
            answer, else the vote.
        verifier_weight: Weight of the verifier's answers of a round together, in candidates; each is
            multiplied by its confidence. 0 leaves them out.
        keep: Share of the candidates that vote, those of highest reward: DeepConf's filter, whose threshold
            is a linearly interpolated percentile.
        power: Of ``borda``; 0 is a majority vote.
        prior: A file of ``soft-reasoning calibrate`` that holds a learned rule, and what verdicts are worth
            to ``pooled_vote``.
    """

    rule: str = "reward_vote"
    verifier_weight: float = 1.0
    keep: float = 1.0
    prior: str | None = None
    power: float = 0.5
    learned: LearnedRule | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        choice("rule", self.rule, RULES)
        real("verifier_weight", self.verifier_weight, least=0.0)
        real("keep", self.keep, above=0.0, most=1.0)
        real("power", self.power, least=0.0)
        if self.rule == "learned" or (self.rule == "pooled_vote" and self.prior):
            object.__setattr__(self, "learned", LearnedRule.load(self.prior))

    def choose(self, judged: Judged) -> str | None:
        """Return the answer, or None if there is none."""
        grader, answer_type = judged.grader, judged.answer_type
        if self.rule == "verifier":
            for verdict in reversed(judged.verdicts):
                answer = grader.vote(verdict.answers, answer_type, weights=verdict.weights)
                if answer is not None:
                    return answer
        if self.rule == "best_reward":
            return next(
                (a for i in _by_reward(judged) if (a := judged.candidates[i].answer) is not None), None
            )
        votes = self.votes(judged)
        return grader.vote([a for a, _ in votes], answer_type, weights=[weight for _, weight in votes])

    def votes(self, judged: Judged) -> list[tuple[str | None, float]]:
        """(answer, weight) of every candidate, then of every answer of the verifier, round by round."""
        votes = [(c.answer, w) for c, w in zip(judged.candidates, self._weights(judged), strict=True)]
        for verdict in judged.verdicts:
            pairs = zip(verdict.answers, verdict.weights, strict=True)
            # A learned rule has seen them.
            worth = 0.0 if self.rule == "learned" else self.verifier_weight / max(1, len(verdict.answers))
            votes += [(answer, worth * weight) for answer, weight in pairs]
        return votes

    def leader(self, judged: Judged) -> float:
        """Return the posterior probability that the leading answer is right; 0 without an answer."""
        if self.learned is not None and self.rule == "learned":
            return max(self.learned.probabilities(judged), default=0.0)
        found = judged.estimates(self.learned and self.learned.verdicts)
        return max(found, key=lambda one: one.weight).mean if found else 0.0

    def _weights(self, judged: Judged) -> list[float]:
        candidates = judged.candidates
        weights = [1.0] * len(candidates)
        if self.rule == "reward_vote":
            rewards = rewards_of(candidates)
            lowest = min(rewards, default=0.0)
            weights = [1e-6 + r - lowest for r in rewards]  # equal ones count the same
        elif self.rule == "weighted_vote":
            weights = [max(0.0, r) for r in rewards_of(candidates)]
        elif self.rule == "borda":
            for place, i in enumerate(_by_reward(judged)):
                weights[i] = (len(candidates) - place) ** self.power
        elif self.rule in ("pooled_vote", "learned"):
            found = judged.estimates(self.learned and self.learned.verdicts)
            worths = [one.weight for one in found]
            if self.learned is not None and self.rule == "learned":
                worths = self.learned.probabilities(judged)
            for one, worth in zip(found, worths, strict=True):
                for i in one.members:
                    weights[i] = worth / len(one.members)
        if self.keep < 1:
            order = _by_reward(judged)
            dropped = math.ceil((1 - self.keep) * (len(order) - 1) - 1e-9)  # below the percentile
            for i in order[len(order) - dropped :]:
                weights[i] = 0.0
        return weights


def _by_reward(judged: Judged) -> list[int]:
    """Indices of the candidates, the highest reward first, equal ones in their order."""
    rewards = rewards_of(judged.candidates)
    return sorted(range(len(rewards)), key=lambda i: -rewards[i])
