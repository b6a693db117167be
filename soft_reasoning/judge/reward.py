"""The reward of a candidate from its verdict and coherence (paper, Equation 1).

Coherence is how sure the model was of the tokens that it wrote. The paper prints the sum of log-probabilities
and states that the verifier decides while coherence breaks ties. Only a bounded quantity can do so; therefore
the mean probability is the default.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from soft_reasoning.checks import OptionError, choice, real
from soft_reasoning.types import Candidate, Completion

KINDS = ("mean_prob", "sum_logprob")
MOST_WEIGHT = 1e6
LEAST_COHERENCE = -1e9
"""Keeps rewards finite where a token of probability 0 has log-probability -inf."""


def coherence(completion: Completion, kind: str = "mean_prob") -> float:
    """Return the coherence of the generated tokens; 0 of an empty completion.

    Args:
        completion: The completion.
        kind: ``mean_prob`` in [0, 1], or ``sum_logprob`` (nats, at most 0).
    """
    logprobs = completion.logprobs
    if kind == "sum_logprob":
        return math.fsum(logprobs)
    return fmean(map(math.exp, logprobs)) if logprobs else 0.0


def rewards_of(candidates: Sequence[Candidate]) -> list[float]:
    """Return the reward of each candidate; 0 if its method gives none."""
    return [candidate.reward or 0.0 for candidate in candidates]


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
                "expected a weight above 0 with verifier_weight=0, got 0, so all rewards are 0; raise one",
            )
        choice("coherence", self.coherence, KINDS)

    @property
    def reads_verdicts(self) -> bool:
        """Whether it depends on verdicts."""
        return self.verifier_weight > 0

    @property
    def needs(self) -> set[str]:
        """What it needs of an engine."""
        return {"logprobs"} if self.coherence_weight else set()

    def coherence_of(self, completion: Completion) -> float:
        """Return the coherence, at least -1e9."""
        return max(LEAST_COHERENCE, coherence(completion, self.coherence))

    def __call__(self, verified: float | None, coherence: float) -> float:
        return self.verifier_weight * (verified or 0.0) + self.coherence_weight * coherence
