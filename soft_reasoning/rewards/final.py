"""The final answer after a search; the paper defines no rule, so each rule is a configuration value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.checks import choice, real
from soft_reasoning.rewards.combine import rewards_of
from soft_reasoning.rewards.verifiers import Verdict
from soft_reasoning.types import Candidate

RULES = (
    "vote", "reward_vote", "round_vote", "posterior_vote", "best_reward", "best_posterior_mean", "verifier",
)  # fmt: skip


@dataclass(frozen=True)
class FinalAnswer:
    """Chooses the final answer from candidates and verdicts.

    Votes are over the candidates and the verifier's own answers, under the grader's equality.

    Args:
        rule: ``vote`` counts each candidate 1, ``reward_vote`` its reward minus the lowest one,
            ``round_vote`` its round (from 1), ``posterior_vote`` its posterior mean minus the lowest one.
            ``best_reward`` and ``best_posterior_mean`` take one candidate's answer. ``verifier`` takes the
            verifier's last parsed answer, else the vote.
        verifier_weight: Weight of the verifier's answers of a round together, in candidates; each is
            multiplied by its confidence. 0 leaves them out.
    """

    rule: str = "reward_vote"
    verifier_weight: float = 1.0

    def __post_init__(self) -> None:
        choice("rule", self.rule, RULES)
        real("verifier_weight", self.verifier_weight, least=0.0)

    @property
    def needs_posterior(self) -> bool:
        return self.rule in ("posterior_vote", "best_posterior_mean")

    def choose(
        self,
        candidates: Sequence[Candidate],
        verdicts: Sequence[Verdict],
        grader: AnswerGrader,
        answer_type: str,
        posterior_mean: Sequence[float] | None = None,
    ) -> str | None:
        """Return the answer, or None if there is none; ``verdicts`` holds one verdict per round."""
        if self.rule == "verifier":
            for verdict in reversed(verdicts):
                answer = grader.vote(verdict.answers, answer_type, weights=verdict.weights)
                if answer is not None:
                    return answer
        if self.rule in ("best_reward", "best_posterior_mean"):
            scores = self._scores(candidates, posterior_mean)
            parsed = [
                (s, -i)
                for i, (s, c) in enumerate(zip(scores, candidates, strict=True))
                if c.answer is not None
            ]
            return candidates[-max(parsed)[1]].answer if parsed else None
        votes = self.votes(candidates, verdicts, posterior_mean)
        return grader.vote([a for a, _ in votes], answer_type, weights=[weight for _, weight in votes])

    def votes(
        self,
        candidates: Sequence[Candidate],
        verdicts: Sequence[Verdict],
        posterior_mean: Sequence[float] | None = None,
    ) -> list[tuple[str | None, float]]:
        """(answer, weight) of every candidate, then of every answer of the verifier, round by round."""
        weights = self._weights(candidates, posterior_mean)
        votes = [(c.answer, weight) for c, weight in zip(candidates, weights, strict=True)]
        for number, verdict in enumerate(verdicts, start=1):
            worth = self.verifier_weight * (number if self.rule == "round_vote" else 1)
            pairs = zip(verdict.answers, verdict.weights, strict=True)
            votes += [(answer, worth * weight / len(verdict.answers)) for answer, weight in pairs]
        return votes

    def _weights(
        self, candidates: Sequence[Candidate], posterior_mean: Sequence[float] | None
    ) -> list[float]:
        if self.rule == "round_vote":
            return [float(c.round + 1) for c in candidates]
        if self.rule in ("reward_vote", "posterior_vote"):
            scores = self._scores(candidates, posterior_mean)
            lowest = min(scores, default=0.0)
            return [1e-6 + s - lowest for s in scores]  # equal ones count the same
        return [1.0] * len(candidates)

    def _scores(
        self, candidates: Sequence[Candidate], posterior_mean: Sequence[float] | None
    ) -> Sequence[float]:
        if not self.needs_posterior:
            return rewards_of(candidates)
        if posterior_mean is None:
            raise ValueError(f"final.rule={self.rule}: expected posterior means, got none")
        return posterior_mean
