"""Search rules on black boxes of known truth: success by round, coverage, regret, against random search.

    python experiments/bench_search.py             # the table of experiments/results/search.md
    python experiments/bench_search.py --quick     # the named rules alone, without the slow grid

The boxes (SPEC 16) take u in R^50 and look like ours to the optimiser: five points u ~ N(0, I), then three
rounds of five; reward = a verifier's bit, wrong with probability 0.1, + 0.5 x a coherence unrelated to it.

* half-space: success is w.u > t, w a random direction; the base rate sets t.
* basins: u falls into one of 30 basins, the argmax of 30 random linear scores, each good or bad as a whole.
* Branin, Hartmann 6: functions of a random subspace of R^4096, seen through the random embedding; regret
  is the optimum minus the best value found, in standard deviations of the value under random search.

Problems, first rounds and noise are the same for every rule, so differences are paired.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from pathlib import Path

import torch
from botorch.test_functions import Branin, Hartmann
from torch import Tensor

from soft_reasoning.search.acquisition import EI, PI, UCB, AdaptiveEI, LogEI, Thompson
from soft_reasoning.search.batch import Fantasy, QLogEI, TopK
from soft_reasoning.search.embedding import GaussianEmbedding
from soft_reasoning.search.generation import (
    GradientCandidates,
    LocalCandidates,
    NormalCandidates,
    SobolCandidates,
    TrustRegionCandidates,
    UniformCandidates,
)
from soft_reasoning.search.literal import PrintedAdaptiveEI, ReleasedEI
from soft_reasoning.search.optimiser import BayesianOptimiser, RandomOptimiser, SobolOptimiser
from soft_reasoning.search.surrogate import MAPRBF, FixedRBF
from soft_reasoning.types import generator_for

D, ROUNDS, K = 50, 4, 5


def normal(*shape: int, stream: tuple[object, ...]) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator_for(0, *stream))


class HalfSpace:
    """Success is w.u > t for a random unit w."""

    def __init__(self, base: float, problems: int, seed: int):
        w = normal(problems, D, stream=("half-space", seed))
        self.w = w / w.norm(dim=-1, keepdim=True)
        self.t = math.sqrt(2) * torch.erfinv(torch.tensor(1 - 2 * base, dtype=torch.float64))

    def success(self, U: Tensor) -> Tensor:
        """(b, k, d) to (b, k) of zeros and ones."""
        return ((U @ self.w.unsqueeze(-1)).squeeze(-1) > self.t).double()


class Basins:
    """The argmax of M random linear scores names u's basin; a basin is good with probability ``base``."""

    def __init__(self, base: float, problems: int, seed: int, count: int = 30):
        self.W = normal(problems, D, count, stream=("basins", seed))
        draw = torch.rand(problems, count, dtype=torch.float64, generator=generator_for(0, "good", seed))
        self.good = (draw < base).double()

    def success(self, U: Tensor) -> Tensor:
        return self.good.gather(-1, (U @ self.W).argmax(-1))


class Hidden:
    """A test function of d_e coordinates, hidden in R^4096 by a random orthonormal frame a problem.

    The d_e coordinates of x = A u / sqrt(d) are about standard normal; their quantiles fill the domain.
    """

    def __init__(self, function: object, problems: int, seed: int, width: int = 4096):
        self.function = function
        embedding = GaussianEmbedding(D, 1.0, units="absolute", anchor="none")
        self.subspace = embedding.bind(anchor=torch.zeros(1, width), rms=1.0, seed=seed)
        frames = normal(problems, width, function.dim, stream=("frame", seed))
        self.frames = torch.linalg.qr(frames).Q  # (b, D, d_e)
        sample = self._raw(normal(problems, 200, D, stream=("scale", seed)))
        self.centre, self.spread = sample.mean(), sample.std()
        self.optimum = (-function.optimal_value - self.centre) / self.spread

    def _raw(self, U: Tensor) -> Tensor:
        x = self.subspace(U.reshape(-1, D)).squeeze(1).double().reshape(*U.shape[:2], -1)
        quantile = torch.special.ndtr(x @ self.frames)
        low, high = self.function.bounds.double()
        return -self.function(low + (high - low) * quantile)

    def value(self, U: Tensor) -> Tensor:
        """(b, k): the function (larger is better), standardised over random points."""
        return (self._raw(U) - self.centre) / self.spread


def observe(box: HalfSpace | Basins | Hidden, U: Tensor, seed: int, round: int) -> tuple[Tensor, Tensor]:
    """(b, k) truth and the reward that is shown."""
    if isinstance(box, Hidden):
        truth = box.value(U)
        return truth, truth
    truth = box.success(U)
    noise = torch.rand(2, *truth.shape, dtype=torch.float64, generator=generator_for(seed, "noise", round))
    bit = torch.where(noise[0] < 0.1, 1 - truth, truth)
    return truth, bit + 0.5 * noise[1]


def play(optimiser: object, box: object, problems: int, seed: int) -> Tensor:
    """(rounds, b, k): the truth of every point."""
    keys = [f"{seed}-{i}" for i in range(problems)]
    U = torch.stack([optimiser.initial(K, D, generator_for(seed, key, "initial")) for key in keys])
    truth, y = observe(box, U, seed, 0)
    history = [truth]
    for round in range(1, ROUNDS):
        proposals = optimiser.propose(U, y, K, seed=seed, round=round, keys=keys)
        new = torch.stack([proposal.points for proposal in proposals])
        truth, reward = observe(box, new, seed, round)
        history.append(truth)
        U, y = torch.cat([U, new], dim=1), torch.cat([y, reward], dim=1)
    return torch.stack(history)


def fixed(**changes: object) -> FixedRBF:
    """The default surrogate but for ``changes``."""
    return FixedRBF(**{"lengthscale": 2.0, "variance": 0.25, "noise": 0.1, **changes})


def named_rules() -> dict[str, object]:
    """The presets and the controls."""
    unit = {"lengthscale": 1.0, "scaling": "absolute", "mean": "zero"}
    return {
        "random": RandomOptimiser(),
        "sobol": SobolOptimiser(),
        "default": BayesianOptimiser(fixed(), AdaptiveEI(), LocalCandidates(reach=0.7), Fantasy()),
        "paper": BayesianOptimiser(FixedRBF(noise=0.05, **unit), PrintedAdaptiveEI(), incumbent="observed"),
        "released": BayesianOptimiser(
            FixedRBF(noise=1e-16, **unit), ReleasedEI(), UniformCandidates(), TopK(), "observed"
        ),
    }


def tried_rules() -> dict[str, object]:
    """The default with one value changed, then acquisition x batch rule."""
    local = LocalCandidates(reach=0.7)
    surrogates = {
        "noise 0.05": fixed(noise=0.05),
        "noise 0.2": fixed(noise=0.2),
        "variance 1, noise 0.05": fixed(variance=1.0, noise=0.05),
        "variance 0.1": fixed(variance=0.1),
        "lengthscale 0.5 sqrt(d)": fixed(lengthscale=0.5),
        "lengthscale sqrt(d)": fixed(lengthscale=1.0),
        "zero mean": fixed(mean="zero"),
        "constant mean": fixed(mean="constant"),
        "map": MAPRBF(noise=0.1, variance=0.25),
    }
    generations = {
        "normal": NormalCandidates(),
        "sobol candidates": SobolCandidates(),
        "local, reach 0.9": LocalCandidates(reach=0.9),
        "trust region": TrustRegionCandidates(),
        "gradient": GradientCandidates(),
    }
    acquisitions = {
        "adaptive_ei": AdaptiveEI(),
        "ei": EI(),
        "log_ei": LogEI(),
        "pi": PI(),
        "ucb 1": UCB(1.0),
        "ucb 2": UCB(2.0),
        "ucb 5": UCB(5.0),
        "thompson": Thompson(128),
    }
    rules: dict[str, object] = {}
    for name, surrogate in surrogates.items():
        rules[f"default, {name}"] = BayesianOptimiser(surrogate, AdaptiveEI(), local, Fantasy())
    for name, generation in generations.items():
        rules[f"default, {name}"] = BayesianOptimiser(fixed(), AdaptiveEI(), generation, Fantasy())
    rules["default, observed incumbent"] = BayesianOptimiser(
        fixed(), AdaptiveEI(), local, Fantasy(), "observed"
    )
    for name, acquisition in acquisitions.items():
        for rule, batch in (("top_k", TopK()), ("fantasy", Fantasy())):
            if name == "thompson" and rule == "fantasy":
                continue  # draws differ already
            rules[f"{name}, {rule}"] = BayesianOptimiser(fixed(), acquisition, local, batch)
    rules["q_log_ei"] = BayesianOptimiser(fixed(), None, local, QLogEI())
    return rules


BOXES = {
    "half-space 0.05": lambda problems, seed: HalfSpace(0.05, problems, seed),
    "half-space 0.2": lambda problems, seed: HalfSpace(0.2, problems, seed),
    "half-space 0.4": lambda problems, seed: HalfSpace(0.4, problems, seed),
    "basins 0.2": lambda problems, seed: Basins(0.2, problems, seed),
    "Branin": lambda problems, seed: Hidden(Branin(), problems, seed),
    "Hartmann 6": lambda problems, seed: Hidden(Hartmann(6), problems, seed),
}


def interval(x: Tensor) -> str:
    """Mean and 95 % half-width over problems of ``x`` (b,), which holds paired differences."""
    half = 1.96 * x.std() / math.sqrt(len(x))
    return f"{x.mean():+.3f} +- {half:.3f}"


def cell(history: Tensor, control: Tensor, box: object) -> str:
    """One entry of the table from truths (rounds, b, k) and those of random search."""
    if isinstance(box, Hidden):
        regret, random = (box.optimum - truth.amax((0, 2)) for truth in (history, control))
        return f"{regret.mean():.3f} ({interval(regret - random)})"
    rounds = " ".join(f"{rate:.3f}" for rate in history.mean((1, 2))[1:])
    found, random = (truth.amax((0, 2)) for truth in (history, control))
    return f"{rounds}; {found.mean():.3f} ({interval(found - random)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1, help="sets of problems, pooled")
    parser.add_argument("--first-seed", type=int, default=10, help="the default was chosen on 0, 1 and 2")
    parser.add_argument("--boxes", nargs="+", choices=BOXES, default=list(BOXES), metavar="BOX")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, help="write the table here as well")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    rules = named_rules() if args.quick else {**named_rules(), **tried_rules()}
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    worlds = [{title: BOXES[title](args.problems, seed) for title in args.boxes} for seed in seeds]
    lines = [f"| rule | {' | '.join(worlds[0])} | CPU s |", "|---" * (len(worlds[0]) + 2) + "|"]
    print("\n".join(lines), flush=True)
    control: dict[str, Tensor] = {}
    for name, optimiser in rules.items():
        start, cells = time.process_time(), []
        for title, box in worlds[0].items():
            runs = [
                play(optimiser, world[title], args.problems, seed)
                for seed, world in zip(seeds, worlds, strict=True)
            ]
            history = torch.cat(runs, dim=1)
            control.setdefault(title, history)  # the first rule is random search
            cells.append(cell(history, control[title], box))
        lines.append(f"| {name} | {' | '.join(cells)} | {time.process_time() - start:.0f} |")
        print(lines[-1], flush=True)
    if args.out:
        args.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
