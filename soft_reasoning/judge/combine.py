"""The reward of a candidate from its verdict and coherence (paper, Equation 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from soft_reasoning.checks import OptionError, choice, real
from soft_reasoning.judge.coherence import CERTAINTIES, KINDS, LIKELIEST, coherence
from soft_reasoning.types import Candidate, Completion


def rewards_of(candidates: Sequence[Candidate]) -> list[float]:
    """Return the rewards of candidates that all have a reward.

    Raises:
        ValueError: If a candidate has no reward.
    """
    rewards = [candidate.reward for candidate in candidates if candidate.reward is not None]
    if len(rewards) < len(candidates):
        raise ValueError("expected candidates with rewards, got a candidate without")
    return rewards


MOST_WEIGHT = 1e6
LEAST_COHERENCE = -1e9
"""Keeps rewards finite where a token of probability 0 has log-probability -inf."""


@dataclass(frozen=True)
class Reward:
    """``verifier_weight`` * verified + ``coherence_weight`` * coherence.

    A weight of zero leaves its term out. ``verified`` is None if the run has no verifier.
    """

    verifier_weight: float = 1.0
    coherence_weight: float = 1.0
    coherence: str = "mean_prob"

    def __post_init__(self) -> None:
        for key in ("verifier_weight", "coherence_weight"):
            real(key, getattr(self, key), least=0.0, most=MOST_WEIGHT)
        if not self.verifier_weight and not self.coherence_weight:
            raise OptionError(
                "coherence_weight",
                "expected a weight above 0 beside verifier_weight=0, got 0: all rewards are 0",
            )
        choice("coherence", self.coherence, KINDS)

    @property
    def reads_verdicts(self) -> bool:
        """Whether it depends on verdicts."""
        return self.verifier_weight > 0

    @property
    def top_logprobs(self) -> int:
        """Likeliest tokens that the coherence reads at every token of a candidate."""
        return LIKELIEST if self.coherence in CERTAINTIES else 0

    def coherence_of(self, completion: Completion) -> float:
        """Return the coherence, at least -1e9."""
        return max(LEAST_COHERENCE, coherence(completion, self.coherence))

    def __call__(self, verified: float | None, coherence: float) -> float:
        return self.verifier_weight * (verified or 0.0) + self.coherence_weight * coherence
