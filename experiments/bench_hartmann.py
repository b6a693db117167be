"""Noise-adaptive EI in a plain BoTorch loop: regret on Hartmann 6 with noise, beside EI, LogEI and UCB.

    OMP_NUM_THREADS=1 python experiments/bench_hartmann.py

For each acquisition function a seed starts from the same 10 uniform points. Then, 30 times, a SingleTaskGP
with the known noise is fitted and optimize_acqf chooses one point. Regret is the optimum minus the true value
at the point of the best posterior mean among those evaluated.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial

import torch
from botorch.acquisition import ExpectedImprovement, LogExpectedImprovement, UpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.test_functions import Hartmann
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch import Tensor

from soft_reasoning.search import NoiseAdaptiveExpectedImprovement

ACQUISITIONS = {
    "adaptive_ei, delta = 0.1": NoiseAdaptiveExpectedImprovement,
    "adaptive_ei, delta = 0.9": partial(NoiseAdaptiveExpectedImprovement, delta=0.9),
    "ei": ExpectedImprovement,
    "log_ei": LogExpectedImprovement,
    "ucb, beta = 2": lambda model, best_f: UpperConfidenceBound(model, beta=2.0),
}


def regret(make: object, seed: int, noise: float, steps: int) -> Tensor:
    """(steps + 1,) regrets after the start and after each step."""
    torch.manual_seed(seed)
    function = Hartmann(6, negate=True, noise_std=noise)
    X = torch.rand(10, 6, dtype=torch.float64)
    y = function(X).unsqueeze(-1)
    found = []
    for step in range(steps + 1):
        model = SingleTaskGP(X, y, torch.full_like(y, noise**2))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        with torch.no_grad():
            means = model.posterior(X).mean.squeeze(-1)
        found.append(function.optimal_value - function(X[means.argmax()].unsqueeze(0), noise=False))
        if step < steps:
            acquisition = make(model, best_f=means.max())
            point, _ = optimize_acqf(acquisition, function.bounds, q=1, num_restarts=4, raw_samples=64)
            X, y = torch.cat([X, point]), torch.cat([y, function(point).unsqueeze(-1)])
    return torch.cat(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--noise", type=float, default=0.3, help="standard deviation")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    shown = sorted({args.steps // 3, 2 * args.steps // 3, args.steps})
    print(f"| acquisition | {' | '.join(f'after {n}' for n in shown)} |\n{'|---' * (len(shown) + 1)}|")
    for name, make in ACQUISITIONS.items():
        runs = torch.stack([regret(make, seed, args.noise, args.steps) for seed in range(args.seeds)])
        error = runs.std(0) / args.seeds**0.5
        print(
            f"| {name} | {' | '.join(f'{runs[:, n].mean():.2f} ± {error[n]:.2f}' for n in shown)} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
