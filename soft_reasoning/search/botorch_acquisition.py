"""The bridge to BoTorch: its acquisition functions on our models, and ours as one of its own."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from torch import Tensor

from soft_reasoning.search.marginals import Marginals
from soft_reasoning.search.model import ExactRBF
from soft_reasoning.types import UserError


class BoTorch:
    """Any analytic acquisition function of BoTorch.

    ``make`` is the class with its own arguments bound (``_partial_: true`` in YAML); it is called with
    ``model`` and, where it takes that, ``best_f``, for one problem at a time. It is tried out at once, on one
    observation.
    """

    redraw = False

    def __init__(self, make: Callable[..., AcquisitionFunction]):
        nought = torch.zeros(1, 1, dtype=torch.float64)
        model = ExactRBF(nought[None], nought, lengthscale=nought + 1, mean=nought[0], scale=1.0, noise=1.0)
        try:
            self.make, self._takes_best = make, "best_f" in signature(make).parameters
            if not torch.isfinite(self(Marginals(model, nought, nought[0]))).all():
                raise ValueError("its values are not finite")
        except Exception as error:  # whatever BoTorch raises
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UserError("acquisition.make: expected an analytic acquisition function of BoTorch with all "
                            f"arguments of its own, got {_named(make)} ({reason})") from error  # fmt: skip

    def __call__(self, marginals: Marginals) -> Tensor:
        return torch.cat([self._one(marginals, i) for i in range(len(marginals.incumbent))])

    def _one(self, marginals: Marginals, problem: int) -> Tensor:
        best: dict[str, Any] = {"best_f": marginals.incumbent[problem]} if self._takes_best else {}
        function = self.make(model=marginals.model.select(problem), **best)
        X = marginals.X if marginals.X.ndim == 2 else marginals.X[problem]
        return function(X[:, None, None, :]).reshape(1, -1)  # points x problem x q x d


def _named(make: Any) -> str:
    made = getattr(make, "func", make)
    return getattr(made, "__name__", repr(made))


class AsBoTorch(AcquisitionFunction):
    """One of our acquisition functions as BoTorch's: X (batch, 1, 1, d) to (batch, 1), differentiable."""

    def __init__(self, acquisition: Any, model: ExactRBF, incumbent: Tensor):
        super().__init__(model=model)
        self._acquisition, self._incumbent = acquisition, incumbent

    def forward(self, X: Tensor) -> Tensor:
        marginals = Marginals(self.model, X.reshape(-1, X.shape[-1]), self._incumbent)
        return self._acquisition(marginals).reshape(X.shape[:-2])
