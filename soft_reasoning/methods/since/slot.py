"""SLOT: a vector added to the last hidden state, fitted to the question (Hu et al. 2025, arXiv 2505.12392).

delta minimises the cross-entropy of the prompt's tokens under the logits LMHead(H + delta), in a few steps of
AdamW from 0. Then every token is decoded from LMHead(h + delta), which is a constant bias on the logits.
Settings are the released code's. Each question has its own delta, also in a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from soft_reasoning.checks import real, whole
from soft_reasoning.engines.abilities import AdjustsLogits, HiddenStates, LMHead
from soft_reasoning.methods.base import majority_vote
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.gradients import HeadGradient, HeadLogits, ReadStates
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.scheduling.solutions import solution_request
from soft_reasoning.types import Generate, Problem, Result, UserError


@dataclass(frozen=True)
class Slot:
    """Decodes greedily with a vector that fits the question.

    Args:
        steps: Steps of AdamW; 0 is greedy decoding.
        rate: Learning rate.
        max_new_tokens: Tokens of the solution.
    """

    steps: int = 3
    rate: float = 0.1
    max_new_tokens: int = 300
    name: str = "slot"
    needs: ClassVar = (HiddenStates, LMHead, AdjustsLogits)

    def __post_init__(self) -> None:
        whole("steps", self.steps, least=0)
        whole("max_new_tokens", self.max_new_tokens, least=1)
        real("rate", self.rate, above=0.0)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        request = solution_request(problem, context, self.max_new_tokens)
        delta, losses = yield from self.fit(request.prompt_ids)
        shifted = yield from bias(delta)
        completions = yield Generate(
            [replace(request, adjust=lambda ids, logits: logits + shifted.to(logits))]
        )
        return majority_vote(completions, problem, context, {"round": 0, "losses": losses})

    def fit(self, ids: tuple[int, ...]) -> Steps[tuple[Tensor, list[float]]]:
        """Return delta (D,) for a prompt, and its cross-entropy before each step."""
        states = yield ReadStates(ids)
        labels, states = torch.tensor(ids[1:]), states[:-1]  # a state predicts the token after it
        delta = torch.zeros(states.shape[-1], dtype=torch.float32, requires_grad=True)
        optimiser = torch.optim.AdamW([delta], lr=self.rate, weight_decay=1e-8, eps=1e-5)

        def loss(logits: Tensor, rows: slice) -> Tensor:
            return cross_entropy(logits, labels[rows].to(logits.device), reduction="sum") / len(labels)

        losses: list[float] = []
        for _ in range(self.steps if len(labels) else 0):
            value, gradient = yield HeadGradient(states + delta.detach(), loss)
            losses.append(value)
            delta.grad = gradient.sum(0)
            optimiser.step()
        return delta.detach(), losses


def bias(delta: Tensor) -> Steps[Tensor]:
    """Return the bias (V,) that ``delta`` (D,) adds to the logits at every step.

    Raises:
        UserError: If it depends on the state, because the model caps its logits.
    """
    at_zero, once, twice = yield HeadLogits(torch.stack([0 * delta, delta, 2 * delta]))
    tolerance = 1e-3 * float(once.abs().max() + 1e-6)
    if not torch.allclose(twice - once, once - at_zero, rtol=1e-2, atol=tolerance):
        raise UserError("slot: expected a model whose logits are linear in its last state, got capped logits")
    return once - at_zero
