"""Coherence of a completion: how probable its tokens were to the model that wrote them (paper, Equation 1).

The paper prints the sum of log-probabilities and says that the verifier decides while coherence breaks
ties. Only a bounded quantity does that, so the mean probability is the default.
"""

from __future__ import annotations

import math

from soft_reasoning.types import Completion

KINDS = ("mean_prob", "mean_logprob", "sum_logprob")


def coherence(completion: Completion, kind: str = "mean_prob") -> float:
    """Return the coherence of the generated tokens.

    Args:
        completion: The completion; an empty one has mean probability 0 and log-probability 0.
        kind: ``mean_prob`` in [0, 1], ``mean_logprob`` or ``sum_logprob`` (nats, at most 0).
    """
    logprobs = completion.logprobs
    if kind == "sum_logprob":
        return math.fsum(logprobs)
    count = max(1, len(logprobs))
    if kind == "mean_logprob":
        return math.fsum(logprobs) / count
    return math.fsum(map(math.exp, logprobs)) / count
