"""The points of a search as a BoTorch test problem."""

from __future__ import annotations

import math
from typing import NoReturn

from botorch.test_functions.base import BaseTestProblem
from torch import Tensor

from soft_reasoning.checks import real


class BoxProblem(BaseTestProblem):
    """f(u) for points u of the box [-sqrt 3, sqrt 3]^d; larger is better.

    Uniform points of this box have the variance of N(0, I), from which searches draw their first points.
    Points outside the box are evaluated, too. Subclasses define ``evaluate_true(X)``, which maps X
    (batch x d) to (batch,).

    Args:
        dim: d, dimensions of the search.
        negate: Whether to return -f, for optimisers that minimise.
        noise_std: Standard deviation of noise that is added to each value, as in BoTorch's test problems.
    """

    _is_minimization_by_default = False
    _check_grad_at_opt = False

    def __init__(self, dim: int, *, negate: bool = False, noise_std: float | None = None) -> None:
        if noise_std is not None:
            real("noise_std", noise_std, least=0.0)
        self.dim: int = dim
        self.continuous_inds: list[int] = list(range(dim))
        self._bounds = [(-math.sqrt(3), math.sqrt(3))] * dim
        super().__init__(noise_std=noise_std, negate=negate)

    def _evaluate_true(self, X: Tensor) -> Tensor:
        return self.evaluate_true(X)

    def extra_repr(self) -> str:
        bounds = [round(bound, 3) for bound in self._bounds[0]]
        return f"d={self.dim}, bounds={bounds}, negate={self.negate}"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds a loaded model: pickle its points and values instead")

    def checked(self, X: Tensor) -> Tensor:
        """Return points ``X`` (batch x d) as (n, d) float64 on the CPU.

        Raises:
            ValueError: If the points have another dimension, are no floats, or are not finite.
        """
        if not X.is_floating_point() or X.ndim == 0 or X.shape[-1] != self.dim:
            raise ValueError(f"expected floats (batch x {self.dim}), got {tuple(X.shape)} of {X.dtype}")
        points = X.detach().double().cpu().reshape(-1, self.dim)
        broken = (~points.isfinite().all(-1)).nonzero().flatten().tolist()
        if broken:
            raise ValueError(f"expected finite points, got NaN or infinity in row {broken[0]}")
        return points
