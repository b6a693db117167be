"""Search rules on black boxes with known truth: success by round, coverage and regret against random search.

    python experiments/bench_search.py                   # presets, acquisitions, batch rules, single changes
    python experiments/bench_search.py --grid            # the presets and the controls alone
    python experiments/bench_search.py --grid default    # every rule for one preset

Rewards are like a question's: five points u ~ N(0, I) in R^d come first (d is the preset's: 50, or 25 in
the token simplex), then three rounds of five. A reward is a verifier's bit, wrong with probability 0.1,
plus 0.5 times a coherence unrelated to it. Boxes for choosing the default's values:

* half-space: success is w.u > t for a random direction w; the base rate sets t.
* basins: u falls into one of 30 basins, the argmax of 30 random linear scores; each is good or bad.

Boxes that were not used to choose values:

* caps: success is |w.u| > t, two opposite caps.
* shell: success depends on |u| alone, which must lie within a band around its median under N(0, I).
* uneven basins: the scores have random offsets, so basins differ in size.
* Branin, Hartmann 6: functions of a random subspace of R^4096, seen through the random embedding. Regret is
  the optimum minus the best value found, in standard deviations of the value under random search.

Rules are built by conf/ from their overrides. Problems, first rounds and noise are the same for every rule
with the same d, so differences are paired. "length" is the mean |u| of rounds 2 to 4 over that of the first.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from botorch.test_functions import Branin, Hartmann
from torch import Tensor

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.parts import make
from soft_reasoning.search import Optimiser, RandomOptimiser, SearchState
from soft_reasoning.search.embedding import GaussianEmbedding
from soft_reasoning.types import generator_for

ROUNDS, K = 4, 5
PRESETS = ("default", "paper", "paper_literal", "released")
ACQUISITIONS = {
    **{name: (f"acquisition={name}",) for name in ("ei", "log_ei", "pi")},
    **{f"ucb {beta}": ("acquisition=ucb", f"acquisition.beta={beta}") for beta in (1, 2, 5)},
    **{f"adaptive_ei {delta}": ("acquisition=adaptive_ei", f"delta={delta}") for delta in (0.01, 0.1, 0.5)},
}
BATCHES = ("top_k", "kriging_believer")
CHANGES = (
    "surrogate.noise=0.05",
    "surrogate.noise=0.2",
    "surrogate.variance=0.1",
    "surrogate.variance=1",
    "surrogate.lengthscale=0.5",
    "surrogate.lengthscale=1",
    "surrogate.centred=false",
    "surrogate.mean._target_=gpytorch.means.ConstantMean +surrogate.mean.constant=0.5",
    "surrogate.kernel._target_=gpytorch.kernels.MaternKernel +surrogate.kernel.nu=1.5",
    "surrogate=map",
    "surrogate=map_ard",
    "candidate_points=normal",
    "candidate_points.reach=0.7",
    "candidate_points.count=500",
    "candidate_points.count=5000",
    "search.incumbent=observed",
)


def normal(*shape: int, stream: tuple[object, ...]) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator_for(0, *stream))


class HalfSpace:
    """Success is w.u > t for a random unit w."""

    def __init__(self, base: float, problems: int, seed: int, d: int):
        w = normal(problems, d, stream=("half-space", seed))
        self.w = w / w.norm(dim=-1, keepdim=True)
        self.t = math.sqrt(2) * torch.erfinv(torch.tensor(1 - 2 * base, dtype=torch.float64))

    def success(self, U: Tensor) -> Tensor:
        """(b, k, d) to (b, k) of zeros and ones."""
        return ((U @ self.w.unsqueeze(-1)).squeeze(-1) > self.t).double()


class Basins:
    """The argmax of M random linear scores is u's basin; a basin is good with probability ``base``."""

    def __init__(self, base: float, problems: int, seed: int, d: int, count: int = 30):
        self.W = normal(problems, d, count, stream=("basins", seed))
        draw = torch.rand(problems, count, dtype=torch.float64, generator=generator_for(0, "good", seed))
        self.good = (draw < base).double()

    def success(self, U: Tensor) -> Tensor:
        return self.good.gather(-1, (U @ self.W).argmax(-1))


class Caps(HalfSpace):
    """Success is |w.u| > t: two opposite caps."""

    def __init__(self, base: float, problems: int, seed: int, d: int):
        super().__init__(base / 2, problems, seed, d)

    def success(self, U: Tensor) -> Tensor:
        return ((U @ self.w.unsqueeze(-1)).squeeze(-1).abs() > self.t).double()


class Shell:
    """Success is |u| within a band around its median under N(0, I); longer and shorter points fail."""

    def __init__(self, base: float, problems: int, seed: int, d: int):
        lengths = normal(200_000, d, stream=("shell", d)).norm(dim=-1)
        self.low, self.high = torch.quantile(
            lengths[:100_000], torch.tensor([0.5 - base / 2, 0.5 + base / 2]).double()
        )

    def success(self, U: Tensor) -> Tensor:
        length = U.norm(dim=-1)
        return ((length > self.low) & (length < self.high)).double()


class UnevenBasins(Basins):
    """Basins whose scores have offsets ~ N(0, d / 4), so that a few take most of the space."""

    def __init__(self, base: float, problems: int, seed: int, d: int, count: int = 30):
        super().__init__(base, problems, seed, d, count)
        self.offsets = 0.5 * math.sqrt(d) * normal(problems, 1, count, stream=("offsets", seed))

    def success(self, U: Tensor) -> Tensor:
        return self.good.gather(-1, (U @ self.W + self.offsets).argmax(-1))


class Hidden:
    """A test function of d_e coordinates, hidden in R^4096 by a random orthonormal frame per problem.

    The d_e coordinates of x = A u / sqrt(d) are about standard normal; their quantiles fill the domain.
    """

    def __init__(self, function: object, problems: int, seed: int, d: int, width: int = 4096):
        self.function = function
        embedding = GaussianEmbedding(d, 1.0, units="absolute", anchor="none")
        subspace = embedding.bind(anchor=torch.zeros(1, width), rms=1.0, seed=seed)
        frames = torch.linalg.qr(normal(problems, width, function.dim, stream=("frame", seed))).Q
        self.map = subspace(torch.eye(d)).squeeze(1).double() @ frames  # (b, d, d_e): u to the frame
        sample = self._raw(normal(problems, 200, d, stream=("scale", seed)))
        self.centre, self.spread = sample.mean(), sample.std()
        self.optimum = (-function.optimal_value - self.centre) / self.spread

    def _raw(self, U: Tensor) -> Tensor:
        quantile = torch.special.ndtr(U @ self.map)
        low, high = self.function.bounds.double()
        return -self.function(low + (high - low) * quantile)

    def value(self, U: Tensor) -> Tensor:
        """(b, k): the function (larger is better), standardised over random points."""
        return (self._raw(U) - self.centre) / self.spread


def observe(box: HalfSpace | Basins | Hidden, U: Tensor, seed: int, round: int) -> tuple[Tensor, Tensor]:
    """(b, k) truth and the observed reward."""
    if isinstance(box, Hidden):
        truth = box.value(U)
        return truth, truth
    truth = box.success(U)
    noise = torch.rand(2, *truth.shape, dtype=torch.float64, generator=generator_for(seed, "noise", round))
    bit = torch.where(noise[0] < 0.1, 1 - truth, truth)
    return truth, bit + 0.5 * noise[1]


def play(optimiser: object, box: object, problems: int, seed: int, d: int) -> tuple[Tensor, Tensor]:
    """(rounds, b, k): the truth of every point, and its length."""
    keys = [f"{seed}-{i}" for i in range(problems)]
    U = torch.stack([optimiser.initial(K, d, generator_for(seed, key, "initial")) for key in keys])
    truth, y = observe(box, U, seed, 0)
    history, lengths = [truth], [U.norm(dim=-1)]
    for round in range(1, ROUNDS):
        proposals = optimiser.propose(SearchState(U, y, K, seed=seed, round=round, keys=keys))
        new = torch.stack([proposal.points for proposal in proposals])
        truth, reward = observe(box, new, seed, round)
        history.append(truth)
        lengths.append(new.norm(dim=-1))
        U, y = torch.cat([U, new], dim=1), torch.cat([y, reward], dim=1)
    return torch.stack(history), torch.stack(lengths)


@dataclass(frozen=True)
class Rule:
    """A row of the table: its name, its optimiser, and the number of dimensions."""

    name: str
    optimiser: Optimiser
    d: int


def rule(name: str, *overrides: str) -> Rule:
    config = compose_config(overrides)
    return Rule(name, make(config.search), config.embedding.dim)


def list_overrides(presets: Sequence[str]) -> Iterator[str]:
    """Every preset; every acquisition function and batch rule of ``presets``; changes of the default."""
    for preset in PRESETS:
        yield f"preset={preset}"
    for preset in presets:
        for acquisition in ACQUISITIONS.values():
            for batch in BATCHES:
                yield " ".join([f"preset={preset}", *acquisition, f"batch={batch}"])
    for change in CHANGES if "default" in presets else ():
        yield f"preset=default {change}"


def rows(overrides: Iterable[str]) -> Iterator[Rule]:
    """The controls of the dimensions that the rules search, then the rules."""
    rules = [rule(words.replace("preset=default ", "default "), *words.split()) for words in overrides]
    for d in sorted({r.d for r in rules}, reverse=True):
        yield Rule(f"random, d = {d}", RandomOptimiser(), d)
    yield from rules


BOXES = {
    "half-space 0.05": lambda *at: HalfSpace(0.05, *at),
    "half-space 0.2": lambda *at: HalfSpace(0.2, *at),
    "half-space 0.4": lambda *at: HalfSpace(0.4, *at),
    "basins 0.2": lambda *at: Basins(0.2, *at),
    "caps 0.2": lambda *at: Caps(0.2, *at),
    "shell 0.2": lambda *at: Shell(0.2, *at),
    "uneven basins 0.2": lambda *at: UnevenBasins(0.2, *at),
    "Branin": lambda *at: Hidden(Branin(), *at),
    "Hartmann 6": lambda *at: Hidden(Hartmann(6), *at),
}
"""Each is called with the number of problems, the seed of the set and d."""


def interval(x: Tensor) -> str:
    """Mean and 95 % half-width over problems of ``x`` (b,), which holds paired differences."""
    half = 1.96 * x.std() / math.sqrt(len(x))
    return f"{x.mean():+.3f} +- {half:.3f}"


def cell(history: Tensor, control: Tensor, boxes: Sequence[object]) -> str:
    """An entry of the table from truths (rounds, b, k) and those of random search; a box for each set."""
    if isinstance(boxes[0], Hidden):
        optima = torch.stack([box.optimum for box in boxes]).repeat_interleave(history.shape[1] // len(boxes))
        regret, random = (optima - truth.amax((0, 2)) for truth in (history, control))
        return f"{regret.mean():.3f} ({interval(regret - random)})"
    rounds = " ".join(f"{rate:.3f}" for rate in history.mean((1, 2))[1:])
    best, random = (truth.amax((0, 2)) for truth in (history, control))
    return f"{rounds}; {best.mean():.3f} ({interval(best - random)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1, help="sets of problems, pooled")
    parser.add_argument("--first-seed", type=int, default=10, help="the default was chosen on sets 0 to 4")
    parser.add_argument("--boxes", nargs="+", choices=BOXES, default=list(BOXES), metavar="BOX")
    parser.add_argument("--grid", nargs="*", choices=PRESETS, default=PRESETS, metavar="PRESET")
    parser.add_argument(
        "--rules", nargs="+", metavar="OVERRIDES", help='other rows: "acquisition=ucb batch=top_k"'
    )
    parser.add_argument("--dim", type=int, help="dimensions of every rule")
    parser.add_argument("--out", type=Path, help="write the table here as well")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    lines = [f"| rule | {' | '.join(args.boxes)} | length | CPU s |", "|---" * (len(args.boxes) + 3) + "|"]
    print("\n".join(lines), flush=True)
    control: dict[tuple[str, int], Tensor] = {}
    overrides = args.rules or list_overrides(args.grid)
    if args.dim:
        overrides = [f"{words} d={args.dim}" for words in overrides]
    for rule in rows(overrides):
        start, cells, length = time.process_time(), [], []
        for title in args.boxes:
            boxes = [BOXES[title](args.problems, seed, rule.d) for seed in seeds]
            played = [
                play(rule.optimiser, box, args.problems, seed, rule.d)
                for box, seed in zip(boxes, seeds, strict=True)
            ]
            truth, lengths = (torch.cat(part, dim=1) for part in zip(*played, strict=True))
            control.setdefault((title, rule.d), truth)  # random search comes first for each d
            cells.append(cell(truth, control[title, rule.d], boxes))
            length.append(lengths.mean((1, 2)) / lengths[0].mean())
        spent = time.process_time() - start
        growth = " ".join(f"{ratio:.2f}" for ratio in torch.stack(length).mean(0)[1:])
        lines.append(f"| {rule.name} | {' | '.join(cells)} | {growth} | {spent:.0f} |")
        print(lines[-1], flush=True)
    if args.out:
        args.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
