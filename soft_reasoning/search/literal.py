"""Expected improvement as it was printed and as it was released, for comparison (SPEC 14, 15.4)."""

from __future__ import annotations

from botorch.utils.probability.utils import ndtr, phi
from torch import Tensor

from soft_reasoning.checks import real
from soft_reasoning.search.acquisition import adaptive_factor
from soft_reasoning.search.marginals import Marginals


def printed_improvement(gain: Tensor, sd: Tensor) -> Tensor:
    """[D]^+ + sd phi(D / sd) - |D| Phi(D / sd): expected improvement where D <= 0, too small above."""
    z = gain / sd
    return gain.clamp_min(0.0) + sd * phi(z) - gain.abs() * ndtr(z)


class PrintedAdaptiveEI:
    """The paper's printed formula, deviations multiplied by omega."""

    redraw = False

    def __init__(self, delta: float = 0.1):
        self.delta = real("acquisition.delta", delta, above=0.0, below=1.0)

    def __call__(self, marginals: Marginals) -> Tensor:
        omega = adaptive_factor(marginals.gamma, self.delta).unsqueeze(-1)
        return printed_improvement(marginals.mean - marginals.incumbent.unsqueeze(-1), omega * marginals.sd)


class ReleasedEI:
    """The public code's rule: the printed formula with the gain's sign turned round and the variance in
    the place of the deviation. It favours points predicted worse than the incumbent."""

    redraw = False

    def __call__(self, marginals: Marginals) -> Tensor:
        return printed_improvement(marginals.incumbent.unsqueeze(-1) - marginals.mean, marginals.sd.square())
