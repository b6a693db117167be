"""A surrogate of the chance that a candidate is right, from a verifier's bits of known error rates."""

from __future__ import annotations

from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean
from torch import Tensor

from soft_reasoning.checks import real
from soft_reasoning.search.model import FixedNoiseGP
from soft_reasoning.search.surrogate import Surrogate
from soft_reasoning.types import UserError


class BinarySurrogate(Surrogate):
    """A GP whose mean is the chance that a point is right (indicator kriging, Journel 1983).

    s(u) is 1 where a candidate is right and 0 where it is wrong. It has mean p (``base_rate``) and covariance
    p (1 - p) times ``1 - nugget`` times the kernel. A reward of ``threshold`` and more is the label b = 1 of
    a verifier that calls wrong candidates right with probability fp and right ones wrong with probability fn.
    So (b - fp) / (1 - fp - fn) has mean s, and its variance is that of b over (1 - fp - fn)^2. The GP is
    fitted to these values, by two moments: that is Bayes' rule for one label (without a nugget) and the best
    linear estimate from several, which may lie a little outside [0, 1]. Incumbents and expected improvements
    of a run's trace are chances too; its realised improvement, of rewards, does not compare with them.

    Args:
        kernel, lengthscale, scaling: As for ``Surrogate``.
        base_rate: Share of points that are right, before any is seen. In (0, 1).
        false_positive: Chance that the verifier calls a wrong candidate right.
        false_negative: Chance that it calls a right one wrong. The two must add up to less than 1.
        nugget: Share of the variance of s that no other point tells anything about. In (0, 1).
        threshold: The least reward that means that the verifier calls the candidate right.

    Raises:
        UserError: For a value out of its range.
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        lengthscale: float | None = 3.0,
        scaling: str = "sqrt_d",
        base_rate: float = 0.3,
        false_positive: float = 0.1,
        false_negative: float = 0.1,
        nugget: float = 0.4,
        threshold: float = 1.0,
    ):
        p = real("surrogate.base_rate", base_rate, above=0.0, below=1.0)
        fp = real("surrogate.false_positive", false_positive, least=0.0)
        fn = real("surrogate.false_negative", false_negative, least=0.0)
        if fp + fn >= 1.0:
            raise UserError(
                "surrogate.false_positive, surrogate.false_negative: expected less than 1 together, got "
                f"{fp:g} and {fn:g}; such labels carry no information; lower the rates"
            )
        nugget = real("surrogate.nugget", nugget, above=0.0, below=1.0)
        self.threshold: float = real("surrogate.threshold", threshold)
        self.false_positive: float = fp
        self.resolution: float = 1.0 - fp - fn
        flips = (p * fn * (1 - fn) + (1 - p) * fp * (1 - fp)) / self.resolution**2
        mean = ConstantMean()
        mean.initialize(constant=p)
        super().__init__(
            kernel, mean, lengthscale, scaling, noise=nugget * p * (1 - p) + flips,
            variance=(1 - nugget) * p * (1 - p), centred=False,
        )  # fmt: skip

    def fit(self, U: Tensor, y: Tensor) -> FixedNoiseGP:
        """The model of the chance of being right from ``U`` (b, n, d) or (n, d) and rewards ``y``."""
        labels = (y >= self.threshold).to(y)
        return super().fit(U, (labels - self.false_positive) / self.resolution)
