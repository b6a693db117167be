"""The paper's two theorems by simulation: python -m experiments.paper.theorems

The regret bound: gamma_k and omega_k at points of N(0, I) for the lengthscales of the presets, and the regret
of noise-adaptive EI on functions drawn from the prior beside gamma_T sqrt(T). Random embedding: how often A u
can reach an optimum of d_e effective dimensions, by d, with u of any length, with u as long as points of
N(0, I) are, and by the best of 5,000 such points. Writes theorems.md and theorems.png to --out.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import torch
from gpytorch.kernels import RBFKernel
from gpytorch.means import ZeroMean

from soft_reasoning.reports.plots import panels
from soft_reasoning.reports.tables import Table
from soft_reasoning.search.acquisition import NoiseAdaptiveExpectedImprovement
from soft_reasoning.search.model import FixedNoiseGP, information_gain

NOISE, DELTA, D = 0.05, 0.1, 192
ROUNDS = (1, 5, 10, 25, 50, 100)
SCALES = {"1 (printed nowhere; the public code's)": 1.0, "sqrt(d) (paper)": 1.0, "3 sqrt(d) (default)": 3.0}
EFFECTIVE, DIMENSIONS = (2, 5, 10, 20), (1, 2, 5, 10, 20, 30, 50, 60)
NEAR = 0.5
"""A point reaches an optimum if it is this near, relative to the optimum's length."""


def kernel(lengthscale: float) -> RBFKernel:
    made = RBFKernel().double()
    made.lengthscale = lengthscale
    return made


def gains(lengthscale: float, dim: int, counts=ROUNDS) -> list[float]:
    """gamma_k at the first k of some points of N(0, I)."""
    points = torch.randn(max(counts), dim, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rewards, prior = torch.zeros(len(points), dtype=torch.float64), {"kernel": kernel(lengthscale)}
    models = (FixedNoiseGP(points[:k], rewards[:k], mean=ZeroMean(), noise=NOISE, **prior) for k in counts)
    return [float(information_gain(model).detach()) for model in models]


def regret(dim: int, rounds: int, seed: int) -> list[float]:
    """Cumulative regret of a function drawn from the prior at 400 points, to its maximum over them."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(400, dim, dtype=torch.float64, generator=generator)
    scale = kernel(math.sqrt(dim))
    K = scale(points).to_dense() + 1e-8 * torch.eye(len(points), dtype=torch.float64)
    f = torch.linalg.cholesky(K) @ torch.randn(len(points), dtype=torch.float64, generator=generator)
    seen, noisy, total, sums = [0], [], 0.0, []
    for _ in range(rounds):
        noisy.append(
            f[seen[-1]] + math.sqrt(NOISE) * torch.randn((), dtype=torch.float64, generator=generator)
        )
        total += float(f.max() - f[seen[-1]])
        sums.append(total)
        model = FixedNoiseGP(points[seen], torch.stack(noisy), kernel=scale, mean=ZeroMean(), noise=NOISE)
        value = NoiseAdaptiveExpectedImprovement(model, best_f=torch.stack(noisy).max(), delta=DELTA)
        seen.append(int(value(points.unsqueeze(1)).argmax()))
    return sums


def reached(effective: int, dim: int, draws: int = 200) -> tuple[float, float, float]:
    """Shares of random A (D x dim) by which an optimum x* ~ N(0, I) of a random subspace is reached."""
    generator = torch.Generator().manual_seed(1000 * effective + dim)
    found = torch.zeros(3)
    for _ in range(draws):
        basis = torch.linalg.qr(torch.randn(D, effective, dtype=torch.float64, generator=generator)).Q
        A = basis.T @ torch.randn(D, dim, dtype=torch.float64, generator=generator)  # what f can see of it
        wanted = torch.randn(effective, dtype=torch.float64, generator=generator)
        u = torch.linalg.pinv(A) @ wanted
        exact = bool(torch.linalg.norm(A @ u - wanted) < 1e-6 * torch.linalg.norm(wanted))
        tried = torch.randn(5000, dim, dtype=torch.float64, generator=generator) @ A.T / math.sqrt(dim)
        nearest = torch.linalg.norm(tried - wanted, dim=1).min()
        short = exact and float(torch.linalg.norm(u)) * math.sqrt(dim) <= math.sqrt(dim) + 2
        found += torch.tensor([exact, short, bool(nearest < NEAR * torch.linalg.norm(wanted))])
    return tuple((found / draws).tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/theorems"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    curves = {
        name: gains(scale if name.startswith("1 ") else scale * math.sqrt(50), 50)
        for name, scale in SCALES.items()
    }
    rows = [
        [str(k), *(f"{g[i]:.1f}, {math.sqrt(g[i] + 1 + math.log(1 / DELTA)):.2f}" for g in curves.values())]
        for i, k in enumerate(ROUNDS)
    ]
    bound = Table(["k", *(f"gamma, omega: {name}" for name in curves)], rows).markdown()
    times = (5, 10, 25, 50)
    paths = {dim: torch.tensor([regret(dim, max(times), seed) for seed in range(20)]) for dim in (2, 50)}
    regrets = []
    for dim, sums in paths.items():
        gamma = gains(math.sqrt(dim), dim, times)
        for g, t in zip(gamma, times, strict=True):
            r = sums[:, t - 1]
            regrets.append(
                [
                    str(dim),
                    str(t),
                    f"{r.mean():.1f}",
                    f"{r.mean() / t:.2f}",
                    f"{r.mean() / (g * math.sqrt(t)):.2f}",
                ]
            )
    regrets = Table(
        ["d", "T", "regret", "regret / T", "regret / (gamma sqrt(T))"], regrets, labels=2
    ).markdown()
    shares = {(e, d): reached(e, d) for e in EFFECTIVE for d in DIMENSIONS}
    rows = [
        [str(d), *(", ".join(f"{100 * p:.0f}" for p in shares[e, d]) for e in EFFECTIVE)] for d in DIMENSIONS
    ]
    embedding = Table(["d", *(f"d_e = {e}" for e in EFFECTIVE)], rows).markdown()
    with panels(out / "theorems.png", columns=2, width=10.0, height=4.0) as axes_of:
        left, right = axes_of[0]
        for name, gamma in curves.items():
            left.plot(ROUNDS, gamma, "o-", label=f"lengthscale {name}")
        left.set_xlabel("points k")
        left.set_ylabel("information gain gamma")
        left.legend(fontsize=8)
        for e in EFFECTIVE:
            right.plot(DIMENSIONS, [shares[e, d][0] for d in DIMENSIONS], ":", color=f"C{EFFECTIVE.index(e)}")
            right.plot(
                DIMENSIONS,
                [shares[e, d][2] for d in DIMENSIONS],
                "o-",
                color=f"C{EFFECTIVE.index(e)}",
                label=f"d_e = {e}",
            )
        right.set_xlabel("d")
        right.set_ylabel("optimum reached (dotted: u of any length)")
        right.legend(fontsize=8)
    text = TEXT.format(noise=NOISE, near=NEAR, bound=bound, regrets=regrets, embedding=embedding)
    (out / "theorems.md").write_text(text, encoding="utf-8")
    print(text)


TEXT = """\
# The theorems, simulated

`python -m experiments.paper.theorems`

**Regret bound.** gamma_k and omega_k = sqrt(gamma_k + 1 + ln(1 / delta)) at k points of N(0, I) in 50
dimensions, noise lambda = {noise}, delta = 0.1:

{bound}

Cumulative regret (to the maximum over 400 points) of noise-adaptive EI on functions drawn from a prior of
lengthscale sqrt(d), mean of 20. The bound gamma sqrt(T) says that the last column stays bounded. It promises
convergence only where gamma grows more slowly than sqrt(T):

{regrets}

**Random embedding.** How often (percent) x = A u / sqrt(d) reaches an optimum of d_e effective dimensions:
with u of any length (the theorem), with a u no longer than points of N(0, I) are, and with the best of 5,000
such points, within {near} of the optimum's length:

{embedding}

![theorems](theorems.png)
"""


if __name__ == "__main__":
    main()
