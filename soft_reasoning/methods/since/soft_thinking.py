"""Soft Thinking: the model reads mixtures of its likeliest tokens (Zhang et al. 2025, arXiv 2505.15778).

At every step the model reads sum_i w_i e_i over the k likeliest tokens in place of a chosen token's
embedding. The weights w are their probabilities p at a temperature. With Gumbel noise g they are
softmax((log p + g) / tau), with new noise for every sample (Wu et al. 2025, arXiv 2508.03440, who find that
without noise the likeliest token decides). The text shows the token of largest weight. A model with thoughts
decodes greedily after them. The rule that ends thoughts early (Cold Stop) is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from soft_reasoning.checks import counts, real
from soft_reasoning.engines.abilities import AdjustsLogits, FeedsEmbeddings
from soft_reasoning.methods.base import majority_vote
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.scheduling.solutions import solution_request
from soft_reasoning.types import Generate, Problem, Request, Result, generator_for


@dataclass(frozen=True)
class SoftThinking:
    """Feeds mixtures of embeddings, and takes a majority vote over ``samples`` solutions.

    Args:
        samples: Number of solutions; without noise all are equal.
        mixed: k, likeliest tokens of a mixture; 1 is greedy decoding.
        temperature: Temperature of their probabilities.
        gumbel: tau of the noisy weights; 0 is no noise.
        max_new_tokens: Tokens per solution.
    """

    samples: int = 1
    mixed: int = 15
    temperature: float = 0.6
    gumbel: float = 0.0
    max_new_tokens: int = 300
    name: str = "soft_thinking"
    needs: ClassVar = (FeedsEmbeddings, AdjustsLogits)

    def __post_init__(self) -> None:
        counts(self, "samples", "mixed", "max_new_tokens")
        real("temperature", self.temperature, above=0.0)
        real("gumbel", self.gumbel, least=0.0)

    @property
    def independent(self) -> bool:
        """Whether candidates are i.i.d., so that pass@m can be estimated."""
        return self.gumbel > 0

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        requests: list[Request] = []
        for i in range(self.samples):
            mixture = _Mixture(self, context, context.stream(problem.id, "sample", i))
            request = solution_request(problem, context, self.max_new_tokens)
            requests.append(replace(request, adjust=mixture.log_weights, feed=mixture.embedding))
        completions = yield Generate(requests)
        return majority_vote(completions, problem, context)


class _Mixture:
    """The mixture after each token of a solution, which depends only on its tokens and logits."""

    def __init__(self, method: SoftThinking, context: Context, seed: int) -> None:
        self._method, self._engine, self._seed = method, context.engine, seed
        tokenizer: Any = context.engine.tokenizer
        marks = getattr(context.prompts, "marks", None)
        ends = tokenizer.encode(marks.close, add_special_tokens=False) if marks else []
        self._end = ends[0] if len(ends) == 1 else None

    def log_weights(self, ids: Sequence[int], logits: Tensor) -> Tensor:
        """(V,): log-weights up to a constant, -inf outside the mixture; a single token after thoughts."""
        count = 1 if self._end in ids else min(self._method.mixed, len(logits))
        top = logits.topk(count)
        weights = (top.values.double() / self._method.temperature).log_softmax(-1)
        if self._method.gumbel:
            uniform = torch.rand(count, dtype=torch.float64, generator=generator_for(self._seed, len(ids)))
            noise = -torch.log(-torch.log(uniform.clamp(1e-12, 1 - 1e-12)))
            weights = (weights + noise.to(weights.device)) / self._method.gumbel
        return torch.full_like(logits, -torch.inf).scatter(0, top.indices, weights.to(logits.dtype))

    def embedding(self, log_weights: Tensor) -> Tensor:
        """(D,): the mixture that is read next."""
        top = log_weights.topk(min(self._method.mixed, len(log_weights)))
        finite = top.values.isfinite()
        weights = top.values[finite].softmax(-1).float().cpu()
        return weights @ self._engine.embed(top.indices[finite].tolist())
