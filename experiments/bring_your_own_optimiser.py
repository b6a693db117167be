"""The reward of a question as a black box, driven by four optimisers and random search.

    python experiments/bring_your_own_optimiser.py --problems 100
    python experiments/bring_your_own_optimiser.py --regret regret.svg

Each gets the same five points per question, then proposes rounds of five. Columns: accuracy of the final
answer, coverage, accuracy of the last round's answers, and the optimiser's CPU time. With ``--regret`` it
draws the simple regret against evaluations, on the questions whose reward separates optimisers (``HARD``).
"""

import argparse
import math
import time
import warnings
from contextlib import suppress
from pathlib import Path

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
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.lab.reports.plots import MARKERS, panels
from soft_reasoning.search import BayesianOptimiser, SearchState

K = 5
HARD = (3, 23, 24, 38, 54, 59, 64, 69, 74, 78, 99)
"""The bundled test questions, of the first 100, whose first round falls short of the maximal reward."""
SEEDS = 3
"""First rounds for each question of a regret plot."""


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


def search(objective, propose, seed, rounds):
    """Return the rewards (rounds * K) in the order of evaluation, and the optimiser's CPU seconds."""
    torch.manual_seed(seed)
    U, spent = torch.randn(K, objective.dim, dtype=torch.float64), 0.0
    y = objective(U)
    for round in range(1, rounds):
        start = time.process_time()
        points = propose(U, y, objective.bounds, round)
        spent += time.process_time() - start
        U, y = torch.cat([U, points]), torch.cat([y, objective(points)])
    return y, spent


def table(reasoner, problems, optimisers, rounds):
    print("| optimiser | accuracy % | coverage % | last round % | CPU s |\n|---|---|---|---|---|", flush=True)
    for name in optimisers:
        shares, spent = torch.zeros(3, dtype=torch.float64), 0.0
        for number, problem in enumerate(problems):
            objective = reasoner.objective(problem.question, problem.gold)
            spent += search(objective, ALL[name], number, rounds)[1]
            right = [objective.correct(candidate.answer) for candidate in objective.candidates]
            shares += torch.tensor([objective.correct(objective.answer), any(right), sum(right[-K:]) / K])
        shown = " | ".join(f"{100 * share / len(problems):.1f}" for share in shares)
        print(f"| {name} | {shown} | {spent:.0f} |", flush=True)


def regret(reasoner, problems, optimisers, rounds, path):
    """Draw the mean regret after each round, against the best reward of any search of a question."""
    best = torch.empty(len(optimisers), len(problems), SEEDS, rounds * K)
    for i, name in enumerate(optimisers):
        for j, problem in enumerate(problems):
            for seed in range(SEEDS):
                objective = reasoner.objective(problem.question)
                rewards, _ = search(objective, ALL[name], 1000 * seed + j, rounds)
                best[i, j, seed] = rewards.cummax(0).values
    regrets = (best.amax((0, 2, 3))[:, None, None] - best).mean(2)  # (optimisers, questions, evaluations)
    means, errors = regrets.mean(1), regrets.std(1) / math.sqrt(len(problems))
    print(f"| optimiser | regret after {K} | after {rounds * K} | ± over questions |\n|---|---|---|---|")
    ends = range(K - 1, rounds * K, K)
    with panels(path) as axes:
        for i, name in enumerate(optimisers):
            print(f"| {name} | {means[i, K - 1]:.3f} | {means[i, -1]:.3f} | {errors[i, -1]:.3f} |")
            shifted = [end + 1 + 0.15 * i for end in ends]  # so that error bars stand beside each other
            axes[0][0].errorbar(shifted, means[i, ends], errors[i, ends], marker=MARKERS[i], label=name)
        axes[0][0].set(xlabel="evaluations", xticks=[end + 1 for end in ends])
        axes[0][0].set_ylabel(f"regret, mean ± standard error of {len(problems)} questions")
        axes[0][0].set_ylim(bottom=0)
        axes[0][0].legend()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--problems", type=int, help="how many of them: of the test questions 100 by default")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--optimisers", nargs="+", choices=ALL, default=list(ALL))
    parser.add_argument("--regret", type=Path, metavar="FILE.svg", help="draw the regret on HARD")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    problems, options = build_dataset(compose_config(["dataset.limit=100"])).problems(), {}
    if args.regret:
        problems, options = [problems[i] for i in HARD], {"preset": "paper"}
    with SoftReasoner.from_pretrained("demo", **options) as reasoner:
        shown = (reasoner, problems[: args.problems], args.optimisers, args.rounds)
        regret(*shown, args.regret) if args.regret else table(*shown)


if __name__ == "__main__":
    main()
