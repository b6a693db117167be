"""A task learnt from its questions: screen the spaces, search the most promising one, validate its points.

The search is Bayesian optimisation in a trust region.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
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

from soft_reasoning.checks import choice, counts, real, switch, whole
from soft_reasoning.schedule.method import Context
from soft_reasoning.schedule.scheduler import Run
from soft_reasoning.task.learnt import labelled
from soft_reasoning.task.objective import Evaluation, TaskObjective, one_prompt
from soft_reasoning.task.screening import SPACES, Screened, screen
from soft_reasoning.task.space import TaskPoint, TaskSpace
from soft_reasoning.types import MAX_NEW_TOKENS, Problem, UserError, generator_for, seed_for

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
        validation: Its evaluation on the validation questions.
        greedy: Greedy decoding on the validation questions.
        evaluations: All evaluations of the search, in order.
    """

    point: TaskPoint
    search: Evaluation
    validation: Evaluation
    greedy: Evaluation
    evaluations: Sequence[Evaluation]


@dataclass(frozen=True)
class TuningResult:
    """What a task taught.

    Attributes:
        screened: Each space after random points.
        space: The name of the space that was searched; None if there was nothing to find.
        tuned: What the search found there; None without a search.
    """

    screened: Sequence[Screened]
    space: str | None = None
    tuned: Tuned | None = None


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Learns soft tokens that all questions of a task share.

    Args:
        space: The only space that is screened and searched, by its name in ``SPACES``; None screens all.
        points: Random points of each space in the screening.
        evaluations: Points of the search.
        validation: Share of the questions on which the best points are compared; the screening and the
            search see the others.
        anyway: Whether to search, too, where the screening shows nothing to find.
        max_new_tokens: Tokens per solution.

    Raises:
        OptionError: For a value out of its range.

    Example:
        >>> problems = [reasoner.problem(question, gold) for question, gold in rows]
        >>> learned = Tuning().learn(problems, reasoner.context, run=reasoner.run_methods)
        >>> if learned.tuned is not None:
        ...     learned.tuned.point.save("point.json")
        ...     reasoner.solve(question, method=SoftToken(point="point.json"))
    """

    space: str | None = None
    points: int = 12
    evaluations: int = 72
    validation: float = 0.6
    anyway: bool = False
    max_new_tokens: int = MAX_NEW_TOKENS

    def __post_init__(self) -> None:
        if self.space is not None:
            choice("space", self.space, list(SPACES))
        whole("points", self.points, least=2)
        whole("evaluations", self.evaluations, least=INITIAL)
        real("validation", self.validation, above=0.0, below=1.0)
        switch("anyway", self.anyway)
        counts(self, "max_new_tokens")

    @property
    def spaces(self) -> Mapping[str, TaskSpace]:
        """The spaces that are screened."""
        return SPACES if self.space is None else {self.space: SPACES[self.space]}

    @property
    def work(self) -> int:
        """Number of points that are evaluated at most."""
        return self.points * len(self.spaces) + self.evaluations

    def learn(
        self,
        problems: Sequence[Problem],
        context: Context,
        *,
        run: Run | None = None,
        on_screened: Callable[[Screened], None] = lambda _: None,
        on_evaluation: Callable[[Evaluation], None] = lambda _: None,
    ) -> TuningResult:
        """Screen the spaces on the first of ``problems``, and search the one with the largest reach.

        A solution is rewarded for its question's reference answer. A question without one is left out, and
        one that is there several times counts once.

        Args:
            problems: The questions.
            context: The engine, prompts, grader and seed.
            run: As for :class:`~soft_reasoning.task.TaskObjective`.
            on_screened: Called after each space.
            on_evaluation: Called after each point of the search.

        Raises:
            UserError: For too few questions with an answer, or questions of several answer types.
        """
        context = one_prompt(problems, context)
        problems = labelled(problems)
        count = round((1 - self.validation) * len(problems))
        if count < 2 or count == len(problems):
            raise UserError(
                f"validation: expected two questions or more for the search and one for the comparison, got "
                f"{len(problems)} with an answer, of which {self.validation:g} are kept; give more questions"
            )
        objective = partial(TaskObjective, context=context, max_new_tokens=self.max_new_tokens, run=run)
        seen, others = problems[:count], problems[count:]
        screened: list[Screened] = []
        greedy: Evaluation | None = None
        for name, space in self.spaces.items():
            searched = objective(seen, space)
            greedy = greedy or searched.ask([None])[0]
            screened.append(screen(name, searched, greedy, points=self.points))
            on_screened(screened[-1])
        candidates = [space for space in screened if space.promising] or (screened if self.anyway else [])
        if not candidates:
            return TuningResult(screened)
        chosen = max(candidates, key=lambda space: space.reach).name
        search, validation = (objective(part, self.spaces[chosen]) for part in (seen, others))
        tuned = tune(search, validation, evaluations=self.evaluations, on_evaluation=on_evaluation)
        return TuningResult(screened, chosen, tuned)


def tune(
    objective: TaskObjective,
    validation: TaskObjective,
    *,
    evaluations: int = 72,
    on_evaluation: Callable[[Evaluation], None] = lambda _: None,
) -> Tuned:
    """Search ``objective``'s space for the point with the highest mean reward.

    The first points are random and are evaluated together. Each later one maximises
    q-log-noisy-expected-improvement under a Gaussian process with the binomial variances as known noise,
    within a trust region around the point of highest posterior mean. The finalists, those of highest
    posterior mean, are compared on the validation questions.

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
            break
        points = propose(done, bounds, seed_for(seed, "tune", len(done)))
    _, _, means = _fit(done, bounds)
    finalists = [done[i] for i in means.argsort(descending=True, stable=True).tolist()[:FINALISTS]]
    *results, greedy = validation.ask([*(objective.vectors(e.u) for e in finalists), None])
    best = max(range(len(results)), key=lambda i: results[i].mean)
    point, other = (each.point(finalists[best].u) for each in (objective, validation))
    point = replace(point, questions={**point.questions, **other.questions})
    return Tuned(point, finalists[best], results[best], greedy, tuple(done))


def propose(done: Sequence[Evaluation], bounds: Tensor, seed: int) -> Tensor:
    """Return the next point (1, d)."""
    model, U, means = _fit(done, bounds)
    centre = U[means.argmax()]
    half = REGION * (bounds[1] - bounds[0]) / 2
    box = torch.stack([(centre - half).maximum(bounds[0]), (centre + half).minimum(bounds[1])])
    with manual_seed(seed % 2**31):
        sampler = SobolQMCNormalSampler(torch.Size([SAMPLES]), seed=seed % 2**31)
        acquisition = qLogNoisyExpectedImprovement(model, U, sampler=sampler, prune_baseline=True)
        points, _ = optimize_acqf(
            acquisition, box, q=1, num_restarts=RESTARTS, raw_samples=RAW_SAMPLES, options={"maxiter": 50}
        )
    return points


def _fit(done: Sequence[Evaluation], bounds: Tensor) -> tuple[SingleTaskGP, Tensor, Tensor]:
    """The Gaussian process of what was observed, the evaluated points (n, d), and its means (n,) there."""
    U, y, variance = (
        torch.tensor(rows, dtype=torch.float64)
        for rows in ([e.u for e in done], [[e.mean] for e in done], [[e.variance] for e in done])
    )
    transform = Normalize(U.shape[-1], bounds=bounds)
    model = SingleTaskGP(U, y, variance, input_transform=transform, outcome_transform=Standardize(1))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    with torch.no_grad():
        return model, U, model.posterior(U).mean.squeeze(-1)
