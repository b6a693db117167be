"""The search for a task's soft tokens: Bayesian optimisation in a trust region, and a validation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
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

from soft_reasoning.checks import OptionError, local_path, real, whole
from soft_reasoning.task.objective import Evaluation, TaskObjective
from soft_reasoning.task.space import TaskPoint
from soft_reasoning.types import generator_for, seed_for

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
    initial: int = 12,
    batch: int = 1,
    region: float = 0.6,
    finalists: int = 5,
    history: str | PathLike[str] | None = None,
    on_evaluation: Callable[[Evaluation], None] = lambda _: None,
) -> Tuned:
    """Search ``objective``'s space for the point with the highest mean reward.

    ``initial`` points are random and are evaluated together. Later ones, ``batch`` at a time, maximise
    q-log-noisy-expected-improvement under a Gaussian process with the binomial variances as known noise,
    within a trust region around the point of highest posterior mean. The ``finalists``, those of highest
    posterior mean, are compared on the validation questions; without them the first finalist is taken.

    Args:
        objective: The questions that the search sees.
        validation: Further questions in the same space.
        evaluations: Points in all.
        initial: Random points at the start.
        batch: Later points that are proposed and evaluated together.
        region: Half the trust region's width, as a share of half the bounds' width.
        finalists: Points that are validated.
        history: A file to which each evaluation is appended. An existing one is continued: its points are
            not evaluated again.
        on_evaluation: Called after each evaluation.

    Raises:
        OptionError: For a value out of its range, or a file of another search.
    """
    whole("initial", initial, least=2)
    whole("evaluations", evaluations, least=initial)
    whole("batch", batch, least=1)
    whole("finalists", finalists, least=1)
    real("region", region, above=0.0, most=1.0)
    seed = objective.context.seed
    bounds = cast(Tensor, objective.bounds).double()
    random = torch.rand(
        initial, objective.dim, dtype=torch.float64, generator=generator_for(seed, "tune", "initial")
    )
    random = bounds[0] + (bounds[1] - bounds[0]) * random
    file = None if history is None else local_path("history", history)
    known = [] if file is None else read_history(file, objective)
    done = known[:evaluations]
    while len(done) < evaluations:
        if len(done) < initial:
            points = random[len(done) :]
        else:
            start = len(done) - (len(done) - initial) % batch  # of a batch that was interrupted
            count = min(batch, evaluations - start)
            points = propose(done[:start], bounds, region, count, seed_for(seed, "tune", start))
            points = points[len(done) - start :]
        for evaluation in objective.evaluate(points):
            done.append(evaluation)
            if file is not None:
                with open(file, "a", encoding="utf-8") as lines:
                    lines.write(json.dumps(asdict(evaluation)) + "\n")
            on_evaluation(evaluation)
    return _chosen(done, objective, validation, finalists)


def _chosen(
    done: Sequence[Evaluation], objective: TaskObjective, validation: TaskObjective | None, finalists: int
) -> Tuned:
    """The best of the ``finalists`` of a search on the validation questions, beside greedy decoding."""
    means = posterior_means(done, cast(Tensor, objective.bounds).double())
    ranked = [done[i] for i in sorted(range(len(done)), key=lambda i: -means[i])]
    chosen, validated = ranked[0], None
    judge = objective if validation is None else validation
    if validation is not None:
        candidates = ranked[:finalists]
        results = validation.ask([objective.vectors(e.u) for e in candidates])
        place = max(range(len(results)), key=lambda i: results[i].mean)
        chosen, validated = candidates[place], results[place]
    point = objective.point(chosen.u)
    if validation is not None:
        point = replace(point, questions={**point.questions, **validation.point(chosen.u).questions})
    return Tuned(point, chosen, validated, judge.ask([None])[0], tuple(done))


def read_history(file: Path, objective: TaskObjective) -> list[Evaluation]:
    """Return the evaluations in ``file``, without a last line that was cut; begin a file that is missing.

    The first line is the objective's :attr:`~soft_reasoning.task.TaskObjective.identity`.

    Raises:
        OptionError: If they are of another space, other questions, another model or other settings.
    """
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    whole_lines = text[: text.rfind("\n") + 1] or json.dumps(objective.identity) + "\n"
    if whole_lines != text:
        file.write_text(whole_lines, encoding="utf-8")
    try:
        first, *lines = [json.loads(line) for line in whole_lines.splitlines()]
        identity = dict(first)
        read = [Evaluation(tuple(x["u"]), tuple(x["rewards"]), x["tokens"], tuple(x["texts"])) for x in lines]
    except (ValueError, KeyError, TypeError) as error:
        raise OptionError(
            "history", f"expected evaluations of a search, got {file}; take another file"
        ) from error
    differing = [key for key, value in objective.identity.items() if identity.get(key) != value]
    if differing:
        raise OptionError(
            "history",
            f"expected evaluations of this search, got those in {file} with another {differing[0]}; take "
            "another file",
        )
    return read


def propose(done: Sequence[Evaluation], bounds: Tensor, region: float, count: int, seed: int) -> Tensor:
    """Return the next ``count`` points (count, d)."""
    U = torch.tensor([e.u for e in done], dtype=torch.float64)
    model = _fitted(done, bounds)
    with torch.no_grad():
        centre = U[model.posterior(U).mean.squeeze(-1).argmax()]
    half = region * (bounds[1] - bounds[0]) / 2
    box = torch.stack([(centre - half).maximum(bounds[0]), (centre + half).minimum(bounds[1])])
    with manual_seed(seed % 2**31):
        sampler = SobolQMCNormalSampler(torch.Size([SAMPLES]), seed=seed % 2**31)
        acquisition = qLogNoisyExpectedImprovement(model, U, sampler=sampler, prune_baseline=True)
        points, _ = optimize_acqf(
            acquisition,
            box,
            q=count,
            num_restarts=RESTARTS,
            raw_samples=RAW_SAMPLES,
            options={"maxiter": 50},
            sequential=True,
        )
    return points


def posterior_means(done: Sequence[Evaluation], bounds: Tensor) -> list[float]:
    """Return the posterior mean at each evaluated point."""
    U = torch.tensor([e.u for e in done], dtype=torch.float64)
    model = _fitted(done, bounds)
    with torch.no_grad():
        return model.posterior(U).mean.squeeze(-1).tolist()


def _fitted(done: Sequence[Evaluation], bounds: Tensor) -> SingleTaskGP:
    U = torch.tensor([e.u for e in done], dtype=torch.float64)
    y, variance = (
        torch.tensor([[getattr(e, name)] for e in done], dtype=torch.float64) for name in ("mean", "variance")
    )
    model = SingleTaskGP(
        U,
        y,
        variance,
        input_transform=Normalize(U.shape[-1], bounds=bounds),
        outcome_transform=Standardize(1),
    )
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model
