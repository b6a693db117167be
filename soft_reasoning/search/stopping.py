"""When a problem's search ends: converged, out of rounds, or out of budget."""

from __future__ import annotations

from collections.abc import Sequence

from soft_reasoning.checks import choice, real, whole

RULES = ("agreement", "improvement", "difference", "none")


class Stopping:
    """Limits of one problem's search.

    Args:
        rounds: Rounds after the first.
        threshold: Of the rules ``improvement`` and ``difference``.
        rule: ``agreement`` stops when the verifier agrees with more than half of a round's candidates,
            ``improvement`` (the public code) when a round's best reward minus the best before is below
            ``threshold``, ``difference`` (paper, Setting the Convergence Threshold) when the best rewards of
            two successive rounds differ by less, ``none`` never.
        max_tokens: Most tokens of candidates and verifier; None is no bound.
        max_seconds: Most seconds; None is no bound. This bound is not reproducible.
    """

    def __init__(
        self,
        rounds: int = 4,
        threshold: float = 0.01,
        rule: str = "agreement",
        *,
        max_tokens: int | None = None,
        max_seconds: float | None = None,
    ):
        self.rounds: int = whole("search.rounds", rounds, least=0)
        self.threshold: float = real("search.stopping.threshold", threshold, least=0.0)
        self.rule: str = choice("search.stopping.rule", rule, RULES)
        self.max_tokens: int | None = (
            None if max_tokens is None else whole("search.stopping.max_tokens", max_tokens, least=1)
        )
        self.max_seconds: float | None = (
            None if max_seconds is None else real("search.stopping.max_seconds", max_seconds, above=0.0)
        )

    def reason(
        self,
        rewards_by_round: Sequence[Sequence[float]],
        *,
        agreement: Sequence[float | None] = (),
        tokens: int = 0,
        seconds: float = 0.0,
    ) -> str | None:
        """Return why to stop ("converged", "rounds", "tokens", "seconds"), or None to continue.

        Args:
            rewards_by_round: The rewards of every round so far.
            agreement: For each candidate of the last round, the share of judgements that call it right; None
                if it was not judged.
            tokens: Tokens that candidates and verifier wrote for the problem.
            seconds: Seconds since the problem was started, shared with other problems.
        """
        if self._converged([max(rewards) for rewards in rewards_by_round], agreement):
            return "converged"
        if len(rewards_by_round) > self.rounds:
            return "rounds"
        if self.max_tokens is not None and tokens >= self.max_tokens:
            return "tokens"
        if self.max_seconds is not None and seconds >= self.max_seconds:
            return "seconds"
        return None

    def _converged(self, best: list[float], agreement: Sequence[float | None]) -> bool:
        if self.rule == "agreement":
            return 2 * sum(share is not None and share >= 0.5 for share in agreement) > len(agreement)
        if self.rule == "none" or len(best) < 2:
            return False
        if self.rule == "improvement":
            return best[-1] - max(best[:-1]) < self.threshold
        return abs(best[-1] - best[-2]) < self.threshold
