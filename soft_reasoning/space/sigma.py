"""``embedding.sigma=auto``: the scale at which a model's next token reveals most about the point.

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
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from soft_reasoning.engines.base import Engine
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.effects import answers, count_completions
from soft_reasoning.scheduling.job import BudgetSpent, Job
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.search.embedding import GaussianEmbedding
from soft_reasoning.space.features import NextTokenFeatures
from soft_reasoning.types import Effect, Problem, Request, generator_for

GRID = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
QUESTIONS, POINTS = 8, 32
LOOK = NextTokenFeatures(top=20)
"""A look that every engine supports; all tokens beyond the top count as a single token."""
ROLE = "sigma"
"""The role under which the looks are counted."""
SLACK = 0.05
"""The smallest scale whose divergence is within this share of the largest is taken."""


@dataclass(frozen=True, eq=False)
class ChooseSigma(Effect):
    """Advances the choice of a scale for ``embedding`` by one batch of looks.

    The answer is the scale, or None while it is unknown. Problems with the same engine, prompts and embedding
    share a choice, and each batch is counted for the problem that asked for it first.
    """

    embedding: GaussianEmbedding
    context: Context
    placement: str


def choose_sigma(embedding: GaussianEmbedding, context: Context, placement: str) -> Steps[float]:
    """Return the smallest scale of ``GRID`` whose divergence is near the largest."""
    scale: float | None = None
    while scale is None:
        scale = yield ChooseSigma(embedding, context, placement)
    return scale


@dataclass(eq=False)
class Choice:
    """A choice so far: the anchors' embeddings, and the mean divergence at the first scales of ``GRID``."""

    anchors: list[Tensor] = field(default_factory=list[Tensor])
    divergences: list[float] = field(default_factory=list[float])

    @property
    def scale(self) -> float | None:
        """The scale, once the divergence at all of them is known."""
        known = len(self.divergences) == len(GRID)
        return GRID[smallest_near_best(self.divergences)] if known else None

    def advance(self, job: Job[ChooseSigma], engine: Engine) -> bool:
        """Run the next batch for ``job``; return whether its budget allowed that."""
        requests = job.within_budget(self._next_batch(job.effect, engine))
        if requests is None:
            return False
        looks = engine.generate(requests)
        count_completions(job, requests, looks)
        if not self.anchors:
            self.anchors = [engine.embed(look.top_logprobs[0].ids[:1]) for look in looks]
        else:
            rows = LOOK.rows(torch.empty(0), torch.empty(0), looks).square().reshape(QUESTIONS, POINTS, -1)
            self.divergences.append(float(divergence(rows).mean()))
        return True

    def _next_batch(self, effect: ChooseSigma, engine: Engine) -> list[Request]:
        context, problems = effect.context, _questions()
        prompts = [context.prompts.solve(problem) for problem in problems]
        if not self.anchors:
            return [Request(p.ids, max_new_tokens=0, top_logprobs=1, role=ROLE) for p in prompts]
        embedding = effect.embedding.at(GRID[len(self.divergences)])
        stream = generator_for(context.seed, "sigma")
        U = torch.randn(POINTS, embedding.dim, dtype=torch.float64, generator=stream)
        requests: list[Request] = []
        for problem, prompt, anchor in zip(problems, prompts, self.anchors, strict=True):
            position = context.prompts.position(prompt, effect.placement, problem, seed=context.seed)
            subspace = embedding.bind(anchor=anchor, rms=engine.embedding_rms, seed=context.seed)
            looks = (LOOK.look(Request(prompt.ids, soft=x, position=position)) for x in subspace(U))
            requests += [replace(look, role=ROLE) for look in looks]
        return requests


_choices: WeakKeyDictionary[Engine, dict[Any, Choice]] = WeakKeyDictionary()


@answers(ChooseSigma)
def advance_choices(jobs: Sequence[Job[ChooseSigma]], engine: Engine) -> list[float | BudgetSpent | None]:
    """Run a batch of every open choice, for the first problem whose budget allows it."""
    choices = [_find_choice(job.effect, engine) for job in jobs]
    advanced, spent = set[Choice](), set[Job[ChooseSigma]]()
    for choice, job in zip(choices, jobs, strict=True):
        if choice.scale is None and choice not in advanced:
            if choice.advance(job, engine):
                advanced.add(choice)
            else:
                spent.add(job)
    return [
        BudgetSpent() if job in spent else choice.scale for choice, job in zip(choices, jobs, strict=True)
    ]


def _find_choice(effect: ChooseSigma, engine: Engine) -> Choice:
    """The choice of an engine, a wording and an embedding."""
    context, choices = effect.context, _choices.setdefault(engine, {})
    prompts = (context.prompts.solve(problem).ids for problem in _questions())
    key = (*prompts, effect.placement, context.seed, *effect.embedding.settings)
    return choices.setdefault(key, Choice())


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
