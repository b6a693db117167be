"""Rules that end a problem's search: it has converged, or no rounds are left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from soft_reasoning.checks import choice, real, whole

RULES = ("agreement", "sure", "settled", "unanimous", "improvement", "difference", "none")


@dataclass(frozen=True)
class Stopping:
    """Limits of a problem's search.

    Args:
        rounds: Rounds after the first.
        threshold: Threshold of the rules ``improvement`` and ``difference``.
        rule: ``agreement`` stops when the verifier agrees with more than half of a round's candidates,
            ``sure`` when more than half of the scores, weighed by its confidence, are at least 0.5.
            ``settled`` stops when the vote over all rounds is settled with probability ``confidence``
            (for texts that cannot be compared there is no vote, and the rule is ``sure``),
            ``unanimous`` when all candidates of a round have the same answer (a window of Early-Stopping
            Self-Consistency, Li et al., arXiv 2401.10480),
            ``improvement`` (the public code) when a round's best reward minus the best before is below
            ``threshold``, ``difference`` (paper, Setting the Convergence Threshold) when the best rewards of
            two successive rounds differ by less, ``none`` never.
        confidence: Probability for the rule ``settled`` that the leading answer stays ahead.
    """

    rounds: int = 4
    threshold: float = 0.01
    rule: str = "settled"
    confidence: float = 0.85

    def __post_init__(self) -> None:
        whole("rounds", self.rounds, least=0)
        real("threshold", self.threshold, least=0.0)
        choice("rule", self.rule, RULES)
        real("confidence", self.confidence, above=0.5, most=1.0)

    @property
    def reads_verdicts(self) -> bool:
        """Whether it reads what the verifier says, other than by rewards."""
        return self.rule in ("agreement", "sure", "settled")

    def reason(
        self,
        rewards_by_round: Sequence[Sequence[float]],
        *,
        agreement: Sequence[float | None] = (),
        scores: Sequence[float | None] = (),
        lead: float | None = None,
        unanimous: bool = False,
    ) -> str | None:
        """Return why to stop ("converged" or "rounds"), or None to continue.

        Args:
            rewards_by_round: The rewards of every round so far.
            agreement: For each candidate of the last round, the share of judgements that call it right; None
                if it was not judged.
            scores: The same shares, weighed by the verifier's confidence.
            lead: Probability that the leading answer of all rounds stays ahead; None if answers cannot be
                compared.
            unanimous: Whether all candidates of the last round have the same answer.
        """
        best = [max(rewards) for rewards in rewards_by_round]
        if self.rule == "settled" and lead is not None:
            converged = lead >= self.confidence
        elif self.rule == "unanimous":
            converged = unanimous
        elif self.rule in ("agreement", "sure", "settled"):
            judged = agreement if self.rule == "agreement" else scores
            converged = 2 * sum(share is not None and share >= 0.5 for share in judged) > len(judged)
        elif self.rule == "none" or len(best) < 2:
            converged = False
        elif self.rule == "improvement":
            converged = best[-1] - max(best[:-1]) < self.threshold
        else:
            converged = abs(best[-1] - best[-2]) < self.threshold
        if converged:
            return "converged"
        return "rounds" if len(best) > self.rounds else None
