"""From verdict and coherence to what the optimiser is told (Section 2.2, Equation of f)."""

from __future__ import annotations

from dataclasses import dataclass

from soft_reasoning.checks import choice, real
from soft_reasoning.rewards.coherence import KINDS, coherence
from soft_reasoning.types import Completion


@dataclass(frozen=True)
class Reward:
    """``verifier_weight`` * verified + ``coherence_weight`` * coherence.

    A weight of zero leaves that part out. ``verified`` is None where the run has no verifier.
    """

    verifier_weight: float = 1.0
    coherence_weight: float = 1.0
    coherence: str = "mean_prob"

    def __post_init__(self) -> None:
        for key in ("verifier_weight", "coherence_weight"):
            real(f"reward.{key}", getattr(self, key), least=0.0)
        choice("reward.coherence", self.coherence, KINDS)

    def of_coherence(self, completion: Completion) -> float:
        return coherence(completion, self.coherence)

    def __call__(self, verified: float | None, coherence: float) -> float:
        return self.verifier_weight * (verified or 0.0) + self.coherence_weight * coherence
