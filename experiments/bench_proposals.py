"""CPU time of a round's proposals, against one SingleTaskGP and BoTorch's EI per problem.

    OMP_NUM_THREADS=1 python experiments/bench_proposals.py

200 problems, 15 observations each, d = 50; five points are chosen from 5,000 candidate points, or from the
default's 2,000. Ends in the milliseconds of CPU per problem of both ways, their ratio, and the largest
difference between their values.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from functools import partial

import torch
from botorch.acquisition import ExpectedImprovement
from botorch.models import SingleTaskGP
from gpytorch.kernels import MaternKernel, RBFKernel
from gpytorch.means import ZeroMean
from torch import Tensor

from soft_reasoning.search import BayesianOptimiser, Surrogate
from soft_reasoning.search.batch import TopK
from soft_reasoning.search.candidates import LocalCandidates, NormalCandidates, PoolCandidates
from soft_reasoning.types import generator_for

NOISE = 0.05
UNIT = Surrogate(lengthscale=1.0, noise=NOISE, variance=None)
"""The surrogate of the reference: lengthscale sqrt(d), no output scale."""


def reference(U: Tensor, y: Tensor, X: Tensor) -> Tensor:
    """(N,) EI by BoTorch on a GPyTorch posterior, the best posterior mean as incumbent."""
    kernel = RBFKernel().double()
    kernel.lengthscale = torch.tensor(math.sqrt(U.shape[-1]), dtype=torch.float64)
    gp = SingleTaskGP(
        U,
        (y - y.mean()).unsqueeze(-1),
        train_Yvar=torch.full_like(y, NOISE).unsqueeze(-1),
        covar_module=kernel,
        mean_module=ZeroMean(),
        outcome_transform=None,
    ).eval()
    with torch.no_grad():
        best = gp.posterior(U).mean.max()
        return ExpectedImprovement(gp, best_f=best)(X.unsqueeze(1))


def cpu_ms(work: object, problems: int) -> float:
    start = time.process_time()
    work()
    return (time.process_time() - start) / problems * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--reference", type=int, default=20, help="problems given to SingleTaskGP")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    stream = generator_for(0, "bench")
    U = torch.randn(args.problems, 15, 50, dtype=torch.float64, generator=stream)
    y = torch.rand(args.problems, 15, dtype=torch.float64, generator=stream)
    keys = [str(i) for i in range(args.problems)]
    rows = {
        "default": BayesianOptimiser(),
        "default, Matern 3/2": BayesianOptimiser(Surrogate(MaternKernel(nu=1.5))),
        "default, 5,000 points": BayesianOptimiser(candidate_points=LocalCandidates(5000)),
        "normal, top_k (preset=paper)": BayesianOptimiser(candidate_points=NormalCandidates(), batch=TopK()),
        "normal, kriging_believer": BayesianOptimiser(candidate_points=NormalCandidates()),
    }
    spent = {}
    for name, optimiser in rows.items():
        optimiser.propose(U[:2], y[:2], 5, seed=0, round=0, keys=keys[:2])  # warm-up
        work = partial(optimiser.propose, U, y, 5, seed=0, round=1, keys=keys)
        spent[name] = cpu_ms(work, args.problems)
        print(f"{name:32s} {spent[name]:8.2f} ms of CPU per problem", flush=True)
    for count in (64, 256):
        features = torch.randn(args.problems, count, count, dtype=torch.float64, generator=stream)
        pool = BayesianOptimiser(
            Surrogate(lengthscale=1.4, noise=NOISE), candidate_points=PoolCandidates(count)
        )
        work = partial(
            pool.propose, features[:, :15], y, 5, seed=0, round=1, keys=keys,
            features=features, behaviour=torch.arange(count).expand(args.problems, count),
        )  # fmt: skip
        print(f"pool of {count:<24d} {cpu_ms(work, args.problems):8.2f} ms of CPU per problem", flush=True)
    few = range(min(args.reference, args.problems))
    one = partial(rows["default"].propose, k=5, seed=0, round=1, keys=["a"])
    alone = cpu_ms(lambda: [one(U[i : i + 1], y[i : i + 1]) for i in few], len(few))
    print(f"{'default, problems one by one':32s} {alone:8.2f} ms of CPU per problem")
    X = NormalCandidates().draw(50, generator_for(0, "candidates", 1))
    theirs: list[Tensor] = []
    ms = cpu_ms(lambda: theirs.extend(reference(U[i], y[i], X) for i in few), len(few))
    ratio = ms / spent["default"]
    print(f"{'SingleTaskGP, EI':32s} {ms:8.2f} ms of CPU per problem, {ratio:.1f} times the default")
    gp = UNIT.fit(U[: len(few)], y[: len(few)])
    best = gp.marginals(U[: len(few)])[0].amax(-1, keepdim=True)
    with torch.no_grad():
        ours = ExpectedImprovement(gp, best)(X[:, None, None, :]).T
    print(f"largest difference between the two  {(ours - torch.stack(theirs)).abs().max():.1e}")


if __name__ == "__main__":
    main()
