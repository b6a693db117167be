"""``embedding.sigma=auto``: the scale at which a model's next token tells most about the point.

Near the anchor the distributions of the next token agree for all points; far away the model ignores the
prompt, and each is nearly flat. Their Jensen-Shannon divergence, the entropy of their mean minus the mean of
their entropies, is the information in nats that the next token carries about the point. It needs neither
labels nor generated tokens. The questions are bundled questions in the run's wording, so the scale depends
only on the model and the prompt.
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

from soft_reasoning.engines.base import Engine
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.effects import answers
from soft_reasoning.scheduling.job import Job
from soft_reasoning.search.embedding import GaussianEmbedding
from soft_reasoning.space.features import ROLE, NextTokenFeatures
from soft_reasoning.types import Effect, Problem, Request, generator_for

GRID = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
QUESTIONS, POINTS = 8, 32
LOOK = NextTokenFeatures(top=20)
"""A look that every engine supports; all tokens beyond the top count as a single token."""
SLACK = 0.05
"""The smallest scale whose divergence is within this share of the largest is taken."""


@dataclass(frozen=True, eq=False)
class ChooseSigma(Effect):
    """Requests the scale of ``embedding``."""

    embedding: GaussianEmbedding
    context: Context
    placement: str


_scales: WeakKeyDictionary[Engine, dict[Any, float]] = WeakKeyDictionary()


@answers(ChooseSigma)
def choose_sigmas(jobs: Sequence[Job[ChooseSigma]], engine: Engine) -> list[float]:
    """Return the scales, each of which is computed once per engine, wording and embedding."""
    return [choose_sigma(job.effect, engine) for job in jobs]


def choose_sigma(effect: ChooseSigma, engine: Engine) -> float:
    """Return the smallest scale of ``GRID`` whose divergence is near the largest."""
    context, embedding = effect.context, effect.embedding
    prompts = [context.prompts.solve(problem) for problem in _questions()]
    scales = _scales.setdefault(engine, {})
    key = (*(prompt.ids for prompt in prompts), effect.placement, context.seed, *embedding.settings)
    if key not in scales:
        anchors = engine.generate([Request(p.ids, max_new_tokens=0, top_logprobs=1) for p in prompts])
        stream = generator_for(context.seed, "sigma")
        U = torch.randn(POINTS, embedding.dim, dtype=torch.float64, generator=stream)
        requests: list[Request] = []
        for sigma in GRID:
            for problem, prompt, top in zip(_questions(), prompts, anchors, strict=True):
                position = context.prompts.position(prompt, effect.placement, problem, seed=context.seed)
                anchor = engine.embed([ids[0] for ids, _ in top.top_logprobs or ()])
                subspace = embedding.at(sigma).bind(
                    anchor=anchor, rms=engine.embedding_rms, seed=context.seed
                )
                base = Request(prompt.ids, position=position, role=ROLE)
                requests += [LOOK.look(replace(base, soft=x)) for x in subspace(U)]
        looks = engine.generate(requests)
        rows = LOOK.rows(U, U, looks).square().reshape(len(GRID), len(prompts), POINTS, -1)
        scales[key] = GRID[smallest_near_best([float(divergence(row).mean()) for row in rows])]
    return scales[key]


def divergence(p: Tensor) -> Tensor:
    """(...,): the Jensen-Shannon divergence of distributions ``p`` (..., n, V), in nats."""
    return torch.special.entr(p.mean(-2)).sum(-1) - torch.special.entr(p).sum(-1).mean(-1)


def smallest_near_best(values: Sequence[float]) -> int:
    """Return the index of the first value that is within ``SLACK`` of the largest."""
    return next(i for i, value in enumerate(values) if value >= (1 - SLACK) * max(values))


@cache
def _questions() -> list[Problem]:
    from soft_reasoning.data.demo import demo_dataset  # imports Hydra, which few need here

    return demo_dataset("validation", name="demo", limit=QUESTIONS).problems()
