"""What every acquisition function must do; a test file parametrises over these."""

from __future__ import annotations

import torch

from soft_reasoning.search import Surrogate
from tests.contracts.surrogate import data, points


def model_and_best(part=slice(None)):
    """The model of some problems and the value (b, 1) that each is to improve on."""
    U, y = data()
    model = Surrogate().model(U[part], y[part])
    return model, model.marginals(model.train_inputs[0])[0].amax(-1, keepdim=True)


def values(make, part=slice(None), rise=0.0):
    """(points, problems); ``rise`` is added to every reward, and so to every mean."""
    model, best = model_and_best(part)
    return make(model, best - rise)(points(200)[:, None, None, :])


def returns_a_finite_value_for_every_point(make):
    numbers = values(make)
    assert numbers.shape == (200, 3) and numbers.dtype == torch.float64
    assert torch.isfinite(numbers).all() and (numbers.std(0) > 0).all()


def a_problem_alone_gets_the_values_it_gets_in_a_batch(make):
    together = values(make)
    for i in range(3):
        alone = values(make, slice(i, i + 1))
        torch.testing.assert_close(alone[:, 0], together[:, i], rtol=0, atol=1e-9)


def a_higher_mean_is_never_worse(make):
    assert (values(make, rise=0.3) >= values(make)).all()


def is_differentiable(make):
    model, best = model_and_best(slice(0, 1))
    X = points(4)[:, None, None, :].requires_grad_()
    assert torch.autograd.gradcheck(lambda X: make(model, best)(X), X, atol=1e-6)
