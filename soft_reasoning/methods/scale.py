"""``embedding.sigma=auto``: the scale at which a model's next token says most about the point.

Points near the anchor all behave alike, so that the distributions of the next token agree; far away the
model has lost the prompt, and each is nearly flat. Their Jensen-Shannon divergence, the entropy of their
mean less the mean of their entropies, is how many nats the next token tells about the point. It needs
neither labels nor generated tokens. The questions are bundled ones in the run's wording, so the scale
depends on the model and the prompt alone.
"""

# Parts of torch have no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from soft_reasoning.data.demo import demo_dataset
from soft_reasoning.engines.base import Engine
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.effects import answers
from soft_reasoning.scheduling.job import Job
from soft_reasoning.search.embedding import GaussianEmbedding
from soft_reasoning.search.features import ROLE, NextTokenFeatures
from soft_reasoning.types import Effect, Problem, Request, generator_for

GRID = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
QUESTIONS, POINTS = 8, 32
LOOK = NextTokenFeatures(top=20)
"""What every engine can be asked for; the other tokens together count as one."""
SLACK = 0.05
"""The smallest scale whose divergence is within this share of the largest is taken."""


@dataclass(frozen=True, eq=False)
class ChooseSigma(Effect):
    """Asks for the scale of ``embedding``."""

    embedding: GaussianEmbedding
    context: Context
    placement: str


_known: WeakKeyDictionary[Engine, dict[Any, float]] = WeakKeyDictionary()


@answers(ChooseSigma)
def choose(jobs: Sequence[Job[ChooseSigma]], engine: Engine) -> list[float]:
    """Return the scale, which is looked for once for each engine, wording and embedding."""
    return [_chosen(job.effect, engine) for job in jobs]


def _chosen(asked: ChooseSigma, engine: Engine) -> float:
    context, embedding = asked.context, asked.embedding
    prompts = [context.prompts.solve(problem) for problem in _questions()]
    known = _known.setdefault(engine, {})
    key = (*(prompt.ids for prompt in prompts), asked.placement, context.seed, *embedding.settings)
    if key not in known:
        read = engine.generate([Request(prompt.ids, max_new_tokens=0, top_logprobs=1) for prompt in prompts])
        stream = generator_for(context.seed, "sigma")
        U = torch.randn(POINTS, embedding.dim, dtype=torch.float64, generator=stream)
        requests: list[Request] = []
        for sigma in GRID:
            for problem, prompt, top in zip(_questions(), prompts, read, strict=True):
                place = context.prompts.position(prompt, asked.placement, problem, seed=context.seed)
                anchor = engine.embed([ids[0] for ids, _ in top.top_logprobs or ()])
                subspace = embedding.at(sigma).bind(
                    anchor=anchor, rms=engine.embedding_rms, seed=context.seed
                )
                base = Request(prompt.ids, position=place, role=ROLE)
                requests += [LOOK.look(replace(base, soft=x)) for x in subspace(U)]
        looks = engine.generate(requests)
        rows = LOOK.rows(U, U, looks).square().reshape(len(GRID), len(prompts), POINTS, -1)
        known[key] = GRID[smallest_near_best([float(divergence(row).mean()) for row in rows])]
    return known[key]


def divergence(p: Tensor) -> Tensor:
    """(...,): the Jensen-Shannon divergence of distributions ``p`` (..., n, V), in nats."""
    return torch.special.entr(p.mean(-2)).sum(-1) - torch.special.entr(p).sum(-1).mean(-1)


def smallest_near_best(values: Sequence[float]) -> int:
    """Return the index of the first value that is within ``SLACK`` of the largest."""
    return next(i for i, value in enumerate(values) if value >= (1 - SLACK) * max(values))


@cache
def _questions() -> list[Problem]:
    return demo_dataset("validation", name="demo", limit=QUESTIONS).problems()
