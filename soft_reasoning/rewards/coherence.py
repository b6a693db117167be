"""Coherence of a completion: how sure the model was of the tokens that it wrote (paper, Equation 1).

The paper prints the sum of log-probabilities and says that the verifier decides while coherence breaks
ties. Only a bounded quantity does that, so the mean probability is the default.

The last four kinds read a completion's likeliest tokens. A token's certainty is the divergence of the
uniform distribution over its k likeliest tokens from their probabilities, C = -log k - mean log p.
``self_certainty`` is its mean over tokens (Kang et al., arXiv 2502.18581, who take the whole vocabulary),
``lowest_window`` the lowest mean over windows of successive tokens (DeepConf, Fu et al., arXiv 2508.15260,
who leave log k out). Both are mapped to [0, 1) by C / (1 + C), which keeps their order. ``group_confidence``
is DeepConf's lowest window as it weighs votes, -mean log p in nats. ``answer_prob`` is the mean probability
of the tokens that hold the answer.
"""

from __future__ import annotations

import math
import os.path
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from soft_reasoning.engines.text import decode
from soft_reasoning.types import Completion

CERTAINTIES = ("self_certainty", "lowest_window", "group_confidence")
KINDS = ("mean_prob", "mean_logprob", "sum_logprob", "answer_prob", *CERTAINTIES)
LIKELIEST = 20
"""Likeliest tokens that a certainty is computed from (as many as vLLM gives by default)."""
WINDOW = 16
"""Tokens of a window. DeepConf's 2048 are for traces of tens of thousands; a solution here has 20 to 300."""
MOST_CONFIDENCE = 1e3
"""Of a window in which likeliest tokens have probability 0."""


def coherence(completion: Completion, kind: str = "mean_prob", span: Sequence[int] = ()) -> float:
    """Return the coherence of the generated tokens.

    Args:
        completion: The completion; an empty one has log-probability 0 and all else 0.
        kind: ``mean_prob``, ``answer_prob``, ``self_certainty`` and ``lowest_window`` in [0, 1],
            ``mean_logprob`` or ``sum_logprob`` (nats, at most 0), ``group_confidence`` (nats, at least 0).
        span: Indices of the answer's tokens, for ``answer_prob``; without any it is 0.
    """
    logprobs = completion.logprobs
    if kind == "sum_logprob":
        return math.fsum(logprobs)
    if kind == "mean_logprob":
        return _mean(logprobs)
    if kind in CERTAINTIES:
        tops = [top.logprobs for top in completion.top_logprobs[: len(logprobs)]]
        uniform = [0.0 if kind == "group_confidence" else math.log(len(top)) for top in tops]
        certain = [max(0.0, -least - _mean(top)) for top, least in zip(tops, uniform, strict=True)]
        size = len(certain) if kind == "self_certainty" else min(WINDOW, len(certain))
        windows = [_mean(certain[i : i + size]) for i in range(len(certain) - size + 1)]
        lowest = min(windows, default=0.0)
        if kind == "group_confidence":
            return min(lowest, MOST_CONFIDENCE)
        return 1.0 if lowest == math.inf else lowest / (1.0 + lowest)
    return _mean([math.exp(logprobs[i]) for i in (span if kind == "answer_prob" else range(len(logprobs)))])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / max(1, len(values))


def tokens_of(span: tuple[int, int], completion: Completion, tokenizer: Any) -> range:
    """Return the tokens of ``completion`` that overlap the characters ``span`` of its text."""
    start, end = span
    ids, text = completion.token_ids, completion.text

    def begins(i: int) -> int:
        # What the tokens before i share with the text: part of a character decodes to something else.
        return len(os.path.commonprefix([decode(tokenizer, ids[:i]), text]))

    every = range(len(ids))
    # The token that holds the start may begin before it, and several may hold parts of one character.
    first = min(bisect_left(every, start, key=begins), bisect_right(every, start, key=begins) - 1)
    return range(first, bisect_left(every, end, key=begins))
