"""What every acquisition function must do; a test file parametrises over these."""

from __future__ import annotations

import torch

from soft_reasoning.search.marginals import Marginals
from soft_reasoning.search.surrogate import FixedRBF
from soft_reasoning.types import generator_for


def data(problems=3, n=10, d=8, seed=0):
    """U (b, n, d), y (b, n)."""
    generator = generator_for(seed, "test data")
    U = torch.randn(problems, n, d, dtype=torch.float64, generator=generator)
    return U, torch.rand(problems, n, dtype=torch.float64, generator=generator)


def marginals(part=slice(None), points=200):
    """Fresh marginals of the problems in ``part``, with the streams that each has alone."""
    U, y = data()
    model = FixedRBF().fit(U[part], y[part])
    X = torch.randn(points, 8, dtype=torch.float64, generator=generator_for(0, "test points"))
    streams = [generator_for(0, str(i), "acquisition") for i in range(len(U))][part]
    incumbent = model.marginals(model.U)[0].amax(-1)
    return Marginals(model, X, incumbent, streams, generator_for(0, "acquisition"))


def returns_a_finite_value_for_every_point(acquisition):
    values = acquisition(marginals())
    assert values.shape == (3, 200) and values.dtype == torch.float64
    assert torch.isfinite(values).all()
    assert (values.std(-1) > 0).all()


def a_problem_alone_gets_the_values_it_gets_in_a_batch(acquisition):
    together = acquisition(marginals())
    for i in range(3):
        alone = acquisition(marginals(slice(i, i + 1)))
        torch.testing.assert_close(alone[0], together[i], rtol=0, atol=1e-9)


def a_higher_mean_is_never_worse(acquisition):
    seen = marginals()
    before = acquisition(seen)
    seen.mean = seen.mean + 0.3
    assert (acquisition(seen) >= before).all()
