"""The token-wise constrained objective of Qi et al. (2024).

From "Safety Alignment Should Be Made More Than Just a Few Tokens Deep":

    loss = - sum_t (2 / b_t) log sigmoid(b_t * log[pi(y_t | .) / pi_ref(y_t | .)])

Its gradient is that of cross-entropy with token t weighted by 2 (1 - sigmoid(b_t * log-ratio_t)). A large b
keeps a token near the reference: its weight falls as soon as it has become likelier. b -> 0 is plain
fine-tuning.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def token_losses(logprobs: Tensor, reference: Tensor, b: Tensor) -> Tensor:
    """Return the losses (n,) of n tokens; only ``logprobs`` is differentiated.

    Args:
        logprobs: (n,) log-probabilities under the model.
        reference: (n,) log-probabilities under the reference.
        b: (n,) strengths, above 0.
    """
    return -(2 / b) * F.logsigmoid(b * (logprobs - reference.detach()))


def token_weights(logprobs: Tensor, reference: Tensor, b: Tensor) -> Tensor:
    """Return weights (n,) in (0, 2) of the tokens' cross-entropies in the gradient of :func:`token_losses`.

    A weight is 1 where model and reference agree.
    """
    return 2 * torch.sigmoid(-b * (logprobs - reference)).detach()


def strengths(count: int, *, first: float, early: float, early_tokens: int, rest: float) -> Tensor:
    """Return b (count,) of a response's tokens: the first, then those up to ``early_tokens``, then the rest.

    The paper's are 0.5, 2.0 (tokens 2 to 5) and 0.1. Its first is smaller for numerical stability.
    """
    b = torch.full((count,), rest)
    b[:early_tokens] = early
    b[:1] = first
    return b
