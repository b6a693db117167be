"""The reward of a candidate from its verdict and coherence (paper, Equation 1).

Coherence is how sure the model was of the tokens that it wrote. The paper prints the sum of log-probabilities
and states that the verifier decides while coherence breaks ties. Only a bounded quantity can do so; therefore
the mean probability is the default.

The last two kinds of coherence read a completion's likeliest tokens. ``self_certainty`` is the divergence of
the uniform distribution over a token's k likeliest choices from their probabilities, C = -log k - mean log p,
averaged over tokens (Kang et al., arXiv 2502.18581, with the whole vocabulary) and mapped to [0, 1) by
C / (1 + C), which keeps the order. ``group_confidence`` is the lowest mean of -mean log p over windows of
successive tokens (DeepConf, Fu et al., arXiv 2508.15260).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from soft_reasoning.checks import OptionError, choice, real
from soft_reasoning.types import Candidate, Completion

CERTAINTIES = ("self_certainty", "group_confidence")
KINDS = ("mean_prob", "mean_logprob", "sum_logprob", *CERTAINTIES)
LIKELIEST = 20
"""Likeliest tokens that a certainty is computed from (as many as vLLM gives by default)."""
WINDOW = 16
"""Tokens of a window. DeepConf's 2048 are for traces of tens of thousands; a solution here has 20 to 300."""
MOST_CONFIDENCE = 1e3
"""The confidence of a window in which likeliest tokens have probability 0."""
MOST_WEIGHT = 1e6
LEAST_COHERENCE = -1e9
"""Keeps rewards finite where a token of probability 0 has log-probability -inf."""


def coherence(completion: Completion, kind: str = "mean_prob") -> float:
    """Return the coherence of the generated tokens.

    Args:
        completion: The completion; an empty one has log-probability 0 and all else 0.
        kind: ``mean_prob`` and ``self_certainty`` in [0, 1], ``mean_logprob`` or ``sum_logprob`` (nats, at
            most 0), ``group_confidence`` (nats, at least 0).
    """
    logprobs = completion.logprobs
    if kind == "sum_logprob":
        return math.fsum(logprobs)
    tops = []
    if kind in CERTAINTIES:
        tops = [top.logprobs for top in completion.top_logprobs[: len(logprobs)]]
    if not (tops if kind in CERTAINTIES else logprobs):
        return 0.0
    if kind == "mean_logprob":
        return fmean(logprobs)
    if kind == "mean_prob":
        return fmean(map(math.exp, logprobs))
    if kind == "self_certainty":
        certainty = fmean(max(0.0, -math.log(len(top)) - fmean(top)) for top in tops)
        return 1.0 if certainty == math.inf else certainty / (1.0 + certainty)
    confidences = [-fmean(top) for top in tops]
    size = min(WINDOW, len(confidences))
    windows = [fmean(confidences[i : i + size]) for i in range(len(confidences) - size + 1)]
    return min(MOST_CONFIDENCE, *windows)


def rewards_of(candidates: Sequence[Candidate]) -> list[float]:
    """Return the rewards of candidates that all have a reward.

    Raises:
        ValueError: If a candidate has no reward.
    """
    rewards = [candidate.reward for candidate in candidates if candidate.reward is not None]
    if len(rewards) < len(candidates):
        raise ValueError("expected candidates with rewards, got a candidate without")
    return rewards


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
    def top_logprobs(self) -> int:
        """Likeliest tokens that the coherence reads at every token of a candidate."""
        return LIKELIEST if self.coherence in CERTAINTIES else 0

    def coherence_of(self, completion: Completion) -> float:
        """Return the coherence, at least -1e9."""
        return max(LEAST_COHERENCE, coherence(completion, self.coherence))

    def __call__(self, verified: float | None, coherence: float) -> float:
        return self.verifier_weight * (verified or 0.0) + self.coherence_weight * coherence
