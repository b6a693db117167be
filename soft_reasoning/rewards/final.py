"""The final answer, once a search has ended. The paper defines no rule; each below is one config value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.checks import choice, real
from soft_reasoning.rewards.verifiers import Verdict
from soft_reasoning.types import Candidate

RULES = (
    "vote", "reward_vote", "round_vote", "posterior_vote", "best_reward", "best_posterior_mean", "verifier",
)  # fmt: skip


@dataclass(frozen=True)
class FinalAnswer:
    """``rule`` is one of RULES.

    Votes run over the candidates, and over the verifier's own answers (those of a round are together
    ``verifier_weight`` candidates' worth, each times its confidence; 0 leaves them out), under the grader's
    equality:
    ``vote`` each candidate counts 1; ``reward_vote`` its reward's height above the lowest seen;
    ``round_vote`` its round (from 1); ``posterior_vote`` its posterior mean's height above the lowest.
    ``best_reward`` and ``best_posterior_mean`` take one candidate's answer; ``verifier`` the verifier's
    last parsed answer, and the vote where there is none.
    """

    rule: str = "reward_vote"
    verifier_weight: float = 1.0

    def __post_init__(self) -> None:
        choice("final.rule", self.rule, RULES)
        real("final.verifier_weight", self.verifier_weight, least=0.0)

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
        """The answer, or None when nobody gave one. ``verdicts``: one a round."""
        if self.rule == "verifier":
            for verdict in reversed(verdicts):
                answer = grader.vote(verdict.answers, answer_type, weights=verdict.weights)
                if answer is not None:
                    return answer
        if self.rule in ("best_reward", "best_posterior_mean"):
            scores = posterior_mean if self.rule == "best_posterior_mean" else [c.reward for c in candidates]
            parsed = [
                (s, -i)
                for i, (s, c) in enumerate(zip(scores, candidates, strict=True))
                if c.answer is not None
            ]
            return candidates[-max(parsed)[1]].answer if parsed else None
        answers = [c.answer for c in candidates]
        weights = self._weights(candidates, posterior_mean)
        for number, verdict in enumerate(verdicts, start=1):
            worth = self.verifier_weight * (number if self.rule == "round_vote" else 1)
            answers += verdict.answers
            weights += [worth * w / len(verdict.answers) for w in verdict.weights]
        return grader.vote(answers, answer_type, weights=weights)

    def _weights(
        self, candidates: Sequence[Candidate], posterior_mean: Sequence[float] | None
    ) -> list[float]:
        if self.rule == "round_vote":
            return [float(c.round + 1) for c in candidates]
        if self.rule in ("reward_vote", "posterior_vote"):
            scores = posterior_mean if self.rule == "posterior_vote" else [c.reward for c in candidates]
            lowest = min(scores, default=0.0)
            return [1e-6 + s - lowest for s in scores]  # equal ones count the same
        return [1.0] * len(candidates)
