"""LTPO: thought embeddings that make the model confident (Ye et al. 2025, arXiv 2510.04182).

K embeddings h follow the prompt. Their reward R is the mean over the K positions of -(1/10) sum of log p
over the ten likeliest next tokens, so it is large where a single token has nearly all probability. Step t
draws eps ~ N(0, sigma_t^2) with sigma_t = sigma * decay^t and follows the gradient at h + eps: by the score
function, h += rate * R * eps / sigma_t^2 (the paper), or by backpropagation and Adam (the released code). The
thoughts after the step of the best reward are decoded greedily; nothing is decoded before. The released code
differs in its prompt: the thoughts are placeholders in the user's message, which explains them, and it
rewards one more position.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from soft_reasoning.checks import choice, counts, real, whole
from soft_reasoning.engines.abilities import SoftTokenGradients
from soft_reasoning.methods.base import majority_vote
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.gradients import SoftGradient
from soft_reasoning.scheduling.job import BudgetSpent
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.scheduling.solutions import solution_request
from soft_reasoning.types import Generate, Problem, Prompt, Request, Result, generator_for

GRADIENTS = ("score", "backprop")
LIKELIEST = 10


@dataclass(frozen=True)
class Ltpo:
    """Optimises thought embeddings by the model's confidence after them.

    Args:
        thoughts: K, the number of thought embeddings.
        steps: Steps of the optimisation; 0 decodes the initial thoughts.
        gradient: ``score`` (any engine) or ``backprop`` (``engine=hf``).
        rate: Learning rate.
        sigma: Standard deviation of the first step's noise, in the units of embeddings.
        decay: Factor of sigma per step.
        start: A text whose first token's embedding initialises every thought; None is the end token, after
            which a chat model may write nothing.
        max_new_tokens: Tokens of the solution.
    """

    thoughts: int = 8
    steps: int = 10
    gradient: str = "score"
    rate: float = 0.04
    sigma: float = 4.0
    decay: float = 0.9
    start: str | None = None
    max_new_tokens: int = 300
    name: str = "ltpo"

    def __post_init__(self) -> None:
        counts(self, "thoughts", "max_new_tokens")
        whole("steps", self.steps, least=0)
        choice("gradient", self.gradient, GRADIENTS)
        for key in ("rate", "sigma", "decay"):
            real(key, getattr(self, key), above=0.0)

    @property
    def needs(self) -> tuple[type, ...]:
        """The engine abilities that the method needs."""
        return (SoftTokenGradients,) if self.gradient == "backprop" else ()

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        prompt, engine = context.prompts.solve(problem), context.engine
        ids = engine.tokenizer.encode(self.start, add_special_tokens=False) if self.start else []
        h = engine.embed([*ids, min(engine.eos_ids)][:1]).repeat(self.thoughts, 1)  # (K, D)
        h.requires_grad_()
        adam = torch.optim.Adam([h], lr=self.rate, maximize=True)
        best, highest, rewards = h.detach().clone(), 0.0, list[float]()
        for t in range(self.steps):
            sigma = self.sigma * self.decay**t
            noise = sigma * torch.randn(
                h.shape, dtype=h.dtype, generator=generator_for(context.seed, problem.id, "thoughts", t)
            )
            if self.gradient == "score":
                reward = yield from read_confidence(prompt, h.detach() + noise)
                h.data += self.rate * reward * noise / sigma**2
            else:
                request = Request(prompt.ids, soft=h.detach() + noise, max_new_tokens=1)
                reward, h.grad = yield SoftGradient(request, confidence)
                adam.step()
            rewards.append(reward)
            if reward > highest:
                best, highest = h.detach().clone(), reward
        completions = yield Generate([solution_request(problem, context, self.max_new_tokens, soft=best)])
        return majority_vote(completions, problem, context, {"round": 0, "rewards": rewards})


def read_confidence(prompt: Prompt, thoughts: Tensor) -> Steps[float]:
    """Return the reward of ``thoughts`` (K, D), from a look at the next token after each of them."""
    looks = [
        Request(prompt.ids, soft=thoughts[: i + 1], max_new_tokens=0, top_logprobs=LIKELIEST, role="look")
        for i in range(len(thoughts))
    ]
    completions = yield Generate(looks)
    if not all(c.top_logprobs for c in completions):
        raise BudgetSpent
    tops = torch.tensor([c.top_logprobs[0].logprobs for c in completions], dtype=torch.float32)
    return float(-tops.clamp_min(MIN_LOGPROB).mean())


MIN_LOGPROB = -23.0
"""Lower bound of log-probabilities, as in the released code."""


def confidence(logits: Tensor) -> Tensor:
    """The reward as a function of the logits (K, V) after the thoughts."""
    return -logits.log_softmax(-1).topk(min(LIKELIEST, logits.shape[-1])).values.clamp_min(MIN_LOGPROB).mean()
