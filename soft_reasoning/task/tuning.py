"""The search for a task's soft tokens: Bayesian optimisation in a trust region, and a validation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.sampling.normal import SobolQMCNormalSampler
from botorch.utils.sampling import manual_seed
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from soft_reasoning.checks import whole
from soft_reasoning.task.objective import Evaluation, TaskObjective
from soft_reasoning.task.space import TaskPoint
from soft_reasoning.types import generator_for, seed_for

INITIAL = 12
"""Random points at the start."""
REGION = 0.6
"""Half the trust region's width, as a share of half the bounds' width."""
FINALISTS = 5
"""Points that are validated."""
RESTARTS, RAW_SAMPLES, SAMPLES = 2, 64, 64
"""Of the acquisition function's optimisation, and of the posterior in it."""


@dataclass(frozen=True)
class Tuned:
    """What a search found.

    Attributes:
        point: The best point, for ``method=soft_token``.
        search: Its evaluation in the search.
        validation: Its evaluation on the validation questions; None without them.
        greedy: Greedy decoding on the same questions.
        evaluations: All evaluations of the search, in order.
    """

    point: TaskPoint
    search: Evaluation
    validation: Evaluation | None
    greedy: Evaluation
    evaluations: Sequence[Evaluation]


def tune(
    objective: TaskObjective,
    validation: TaskObjective | None = None,
    *,
    evaluations: int = 72,
    on_evaluation: Callable[[Evaluation], None] = lambda _: None,
) -> Tuned:
    """Search ``objective``'s space for the point with the highest mean reward.

    The first points are random and are evaluated together. Each later one maximises
    q-log-noisy-expected-improvement under a Gaussian process with the binomial variances as known noise,
    within a trust region around the point of highest posterior mean. The finalists, those of highest
    posterior mean, are compared on the validation questions; without them the first finalist is taken.

    An interrupted search that is started again with a store of completions generates only what is missing.

    Args:
        objective: The questions that the search sees.
        validation: Further questions in the same space.
        evaluations: Points in all.
        on_evaluation: Called after each evaluation.

    Raises:
        OptionError: For fewer evaluations than random points.
    """
    whole("evaluations", evaluations, least=INITIAL)
    seed, bounds = objective.context.seed, cast(Tensor, objective.bounds).double()
    stream = generator_for(seed, "tune", "initial")
    random = torch.rand(INITIAL, objective.dim, dtype=torch.float64, generator=stream)
    points, done = bounds[0] + (bounds[1] - bounds[0]) * random, list[Evaluation]()
    while True:
        for evaluation in objective.evaluate(points):
            done.append(evaluation)
            on_evaluation(evaluation)
        if len(done) == evaluations:
            return _chosen(done, objective, validation)
        points = propose(done, bounds, seed_for(seed, "tune", len(done)))


def _chosen(done: Sequence[Evaluation], objective: TaskObjective, validation: TaskObjective | None) -> Tuned:
    """The best finalist of a search on the validation questions, beside greedy decoding."""
    means = _means(*_fitted(done, cast(Tensor, objective.bounds).double()))
    ranked = [done[i] for i in means.argsort(descending=True, stable=True).tolist()]
    if validation is None:
        point = objective.point(ranked[0].u)
        return Tuned(point, ranked[0], None, objective.ask([None])[0], tuple(done))
    finalists = ranked[:FINALISTS]
    results = validation.ask([objective.vectors(evaluation.u) for evaluation in finalists])
    best = max(range(len(results)), key=lambda i: results[i].mean)
    point, other = (each.point(finalists[best].u) for each in (objective, validation))
    point = replace(point, questions={**point.questions, **other.questions})
    return Tuned(point, finalists[best], results[best], validation.ask([None])[0], tuple(done))


def propose(done: Sequence[Evaluation], bounds: Tensor, seed: int) -> Tensor:
    """Return the next point (1, d)."""
    model, U = _fitted(done, bounds)
    centre = U[_means(model, U).argmax()]
    half = REGION * (bounds[1] - bounds[0]) / 2
    box = torch.stack([(centre - half).maximum(bounds[0]), (centre + half).minimum(bounds[1])])
    with manual_seed(seed % 2**31):
        sampler = SobolQMCNormalSampler(torch.Size([SAMPLES]), seed=seed % 2**31)
        acquisition = qLogNoisyExpectedImprovement(model, U, sampler=sampler, prune_baseline=True)
        points, _ = optimize_acqf(
            acquisition,
            box,
            q=1,
            num_restarts=RESTARTS,
            raw_samples=RAW_SAMPLES,
            options={"maxiter": 50},
        )
    return points


def _fitted(done: Sequence[Evaluation], bounds: Tensor) -> tuple[SingleTaskGP, Tensor]:
    """The Gaussian process of what was observed, and the evaluated points (n, d)."""
    U = torch.tensor([e.u for e in done], dtype=torch.float64)
    y = torch.tensor([[e.mean] for e in done], dtype=torch.float64)
    variance = torch.tensor([[e.variance] for e in done], dtype=torch.float64)
    model = SingleTaskGP(
        U,
        y,
        variance,
        input_transform=Normalize(U.shape[-1], bounds=bounds),
        outcome_transform=Standardize(1),
    )
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model, U


def _means(model: SingleTaskGP, U: Tensor) -> Tensor:
    """The posterior means (n,) at the points ``U`` (n, d)."""
    with torch.no_grad():
        return model.posterior(U).mean.squeeze(-1)
