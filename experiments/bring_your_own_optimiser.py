"""The reward of a question as a black box, driven by four optimisers and random search.

    python experiments/bring_your_own_optimiser.py --problems 100

Each gets the same five points per question, then proposes three rounds of five. Columns: accuracy of the
final answer, coverage, accuracy of the last round's answers, and the optimiser's CPU time.
"""

import argparse
import math
import time
import warnings
from contextlib import suppress

import optuna
import torch
from botorch.acquisition import qLogExpectedImprovement
from botorch.exceptions import ModelFittingError
from botorch.fit import fit_gpytorch_mll
from botorch.generation import MaxPosteriorSampling
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch.quasirandom import SobolEngine

from soft_reasoning import SoftReasoner
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.search import BayesianOptimiser, SearchState

K, ROUNDS = 5, 4


def fit_model(U, y, **options):
    model = SingleTaskGP(U, y.unsqueeze(-1), **options)
    with suppress(ModelFittingError):  # with too few points the initial parameters stay
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model.eval()


def ours(U, y, bounds, round):
    state = SearchState(U[None], y[None], K, seed=0, round=round, keys=["q"])
    return BayesianOptimiser().propose(state)[0].points


def botorch(U, y, bounds, round):
    low, high = bounds
    unit = (U - low) / (high - low)
    acquisition = qLogExpectedImprovement(fit_model(unit, y), best_f=y.max())
    box, options = torch.stack([torch.zeros_like(low), torch.ones_like(low)]), {"maxiter": 30}
    points, _ = optimize_acqf(
        acquisition, box, q=K, num_restarts=2, raw_samples=64, options=options, sequential=True
    )
    return low + (high - low) * points


def turbo(U, y, bounds, round):
    """TuRBO-1 with Thompson sampling, after BoTorch's tutorial."""
    (low, high), d = bounds, U.shape[-1]
    unit = (U - low) / (high - low)
    best = torch.stack([part.max() for part in y.split(K)]).cummax(0).values
    length = 0.8 * math.prod(
        2.0 if now > before else 0.5 for before, now in zip(best, best[1:], strict=False)
    )
    kernel = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=d))
    model = fit_model(unit, y, covar_module=kernel)
    weights = kernel.base_kernel.lengthscale.detach().squeeze()
    half, centre = weights / weights.log().mean().exp() * length / 2, unit[y.argmax()]
    a, b = (centre - half).clamp(0, 1), (centre + half).clamp(0, 1)
    sobol = a + (b - a) * SobolEngine(d, scramble=True, seed=round).draw(1000, dtype=torch.float64)
    X = torch.where(torch.rand(1000, d) <= min(20.0 / d, 1.0), sobol, centre)
    return low + (high - low) * MaxPosteriorSampling(model, replacement=False)(X, num_samples=K)


def tpe(U, y, bounds, round):
    """Optuna's ask and tell."""
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=round))
    space = {f"u{i}": optuna.distributions.FloatDistribution(-4.0, 4.0) for i in range(U.shape[-1])}
    for point, reward in zip(U.clamp(-4.0, 4.0).tolist(), y.tolist(), strict=True):
        parameters = dict(zip(space, point, strict=True))
        study.add_trial(optuna.trial.create_trial(params=parameters, distributions=space, value=reward))
    return torch.tensor([list(study.ask(space).params.values()) for _ in range(K)], dtype=torch.float64)


def random(U, y, bounds, round):
    return torch.randn(K, U.shape[-1], dtype=torch.float64)


ALL = {propose.__name__: propose for propose in (ours, botorch, turbo, tpe, random)}
parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--problems", type=int, default=100)
parser.add_argument("--optimisers", nargs="+", choices=ALL, default=list(ALL))
args = parser.parse_args()
problems = build_dataset(compose_config([f"dataset.limit={args.problems}"])).problems()
warnings.filterwarnings("ignore")
optuna.logging.set_verbosity(optuna.logging.WARNING)
print("| optimiser | accuracy % | coverage % | last round % | CPU s |\n|---|---|---|---|---|", flush=True)
with SoftReasoner.from_pretrained("demo") as reasoner:
    for name in args.optimisers:
        shares, spent = torch.zeros(3, dtype=torch.float64), 0.0
        for number, problem in enumerate(problems):
            objective = reasoner.objective(problem.question, problem.gold)
            torch.manual_seed(number)
            U = torch.randn(K, objective.dim, dtype=torch.float64)
            y = objective(U)
            for round in range(1, ROUNDS):
                start = time.process_time()
                points = ALL[name](U, y, objective.bounds, round)
                spent += time.process_time() - start
                U, y = torch.cat([U, points]), torch.cat([y, objective(points)])
            right = [objective.correct(candidate.answer) for candidate in objective.candidates]
            shares += torch.tensor([objective.correct(objective.answer), any(right), sum(right[-K:]) / K])
        shown = " | ".join(f"{100 * share / len(problems):.1f}" for share in shares)
        print(f"| {name} | {shown} | {spent:.0f} |", flush=True)
