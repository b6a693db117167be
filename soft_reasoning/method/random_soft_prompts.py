"""Random Soft Prompts: samples after random embeddings (Kim et al. 2026, arXiv 2605.11936).

Each candidate gets its own vectors, drawn from an isotropic Gaussian with the mean and variance of the
embedding table's entries. An embedding that the model has never seen flattens the distribution of the first
tokens, so solutions branch. The method shows the effect of soft tokens that nothing has chosen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from soft_reasoning.checks import counts, real
from soft_reasoning.engine.base import Engine
from soft_reasoning.method.base import majority_vote
from soft_reasoning.schedule.method import Context, Generate, Steps
from soft_reasoning.schedule.solutions import SamplingOptions, solution_request
from soft_reasoning.types import Problem, Result, generator_for

MEAN_ROWS = 1024
"""Number of embeddings, spread over the vocabulary, from which the mean is computed."""


@dataclass(frozen=True, kw_only=True)
class RandomSoftPrompts(SamplingOptions):
    """Samples a solution after each of several random soft prompts, and takes a majority vote.

    The other options are those of :class:`SamplingOptions`.

    Args:
        samples: Number of solutions.
        tokens: m, embeddings after the prompt.
        scale: Their standard deviation as a multiple of that of the table's entries; 1 in the paper.
    """

    samples: int = 5
    tokens: int = 4
    scale: float = 1.0
    name: str = "random_soft_prompts"
    needs: ClassVar[frozenset[str]] = frozenset({"rows"})
    independent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        counts(self, "samples", "tokens")
        real("scale", self.scale, least=0.0)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        mean, deviation = moments(context.engine)
        size = (self.tokens, context.engine.hidden_size)
        requests = []
        for i in range(self.samples):
            stream = generator_for(context.seed, problem.id, "soft prompt", i)
            noise = torch.randn(size, dtype=torch.float32, generator=stream)
            soft = mean + self.scale * deviation * noise
            requests.append(
                solution_request(
                    problem, context, self.max_new_tokens, index=i, sampling=self.sampling, soft=soft
                )
            )
        completions = yield Generate(requests)
        return majority_vote(completions, problem, context)


def moments(engine: Engine) -> tuple[float, float]:
    """Return mean (estimated from some rows) and standard deviation of the embedding table's entries."""
    count = engine.vocabulary
    mean = float(engine.embed(range(0, count, max(1, count // MEAN_ROWS))).double().mean())
    return mean, max(0.0, engine.embedding_rms**2 - mean**2) ** 0.5
