"""CPU time of a round's proposals, against one SingleTaskGP and BoTorch's EI a problem.

    OMP_NUM_THREADS=1 python experiments/bench_proposals.py

200 problems, 15 observations each, d = 50, 5,000 candidate points shared by all; the five best are taken.
Ends in the milliseconds of CPU a problem of both ways and the largest difference between their values.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings

import torch
from botorch.acquisition import ExpectedImprovement
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel
from gpytorch.means import ZeroMean
from soft_reasoning.search.generation import LocalCandidates, NormalCandidates
from soft_reasoning.search.marginals import Marginals
from torch import Tensor

from soft_reasoning.search.acquisition import EI, AdaptiveEI
from soft_reasoning.search.batch import Fantasy, TopK
from soft_reasoning.search.optimiser import BayesianOptimiser
from soft_reasoning.search.surrogate import FixedRBF
from soft_reasoning.types import generator_for

NOISE = 0.05


def reference(U: Tensor, y: Tensor, X: Tensor) -> Tensor:
    """(N,) EI by BoTorch on a GPyTorch posterior, the best posterior mean as incumbent."""
    kernel = RBFKernel().double()
    kernel.lengthscale = math.sqrt(U.shape[-1])
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
    surrogate = FixedRBF(noise=NOISE)
    rows = {
        "ei, normal, top_k": (EI(), NormalCandidates(), TopK()),
        "adaptive_ei, normal, top_k": (AdaptiveEI(), NormalCandidates(), TopK()),
        "adaptive_ei, normal, fantasy": (AdaptiveEI(), NormalCandidates(), Fantasy()),
        "adaptive_ei, local, fantasy": (AdaptiveEI(), LocalCandidates(), Fantasy()),
    }
    for name, parts in rows.items():
        optimiser = BayesianOptimiser(surrogate, *parts)
        optimiser.propose(U[:2], y[:2], 5, seed=0, round=0, keys=keys[:2])  # warm-up
        ms = cpu_ms(lambda o=optimiser: o.propose(U, y, 5, seed=0, round=1, keys=keys), args.problems)
        print(f"{name:32s} {ms:8.2f} ms of CPU a problem")
    X = NormalCandidates().draw(50, generator_for(0, "candidates", 1))
    theirs: list[Tensor] = []
    few = range(min(args.reference, args.problems))
    ms = cpu_ms(lambda: theirs.extend(reference(U[i], y[i], X) for i in few), len(few))
    print(f"{'SingleTaskGP, ExpectedImprovement':32s} {ms:7.2f} ms of CPU a problem")
    model = surrogate.fit(U[: len(few)], y[: len(few)])
    ours = EI()(Marginals(model, X, model.marginals(model.U)[0].amax(-1)))
    print(f"largest difference between the two  {(ours - torch.stack(theirs)).abs().max():.1e}")


if __name__ == "__main__":
    main()
