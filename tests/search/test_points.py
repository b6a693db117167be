"""Points around a centre against the same points written out."""

from __future__ import annotations

import torch

from soft_reasoning.search.acquisition import EI
from soft_reasoning.search.generation import LocalCandidates
from soft_reasoning.search.marginals import Marginals
from soft_reasoning.search.points import Around, at, half_norms, products
from soft_reasoning.search.surrogate import MAPRBF, FixedRBF
from soft_reasoning.types import generator_for


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator_for(0, "points", seed, *shape))


def test_products_lengths_and_choices_are_those_of_the_points_written_out():
    b, n, N, d = 3, 4, 50, 7
    points = Around(random(b, 1, d), random(N, d), torch.linspace(0, 0.9, N, dtype=torch.float64))
    X, a = points.written(), random(b, n, d, seed=1)
    index = torch.tensor([[0, 49], [3, 3], [20, 7]])
    assert X.shape == (b, N, d)
    for lengthscale in (torch.tensor([2.5], dtype=torch.float64), 1 + random(d).abs()):
        near, far = points / lengthscale, X / lengthscale
        torch.testing.assert_close(near.written(), far, rtol=0, atol=1e-13)
        torch.testing.assert_close(products(a, near), products(a, far), rtol=0, atol=1e-12)
        torch.testing.assert_close(half_norms(near), half_norms(far), rtol=0, atol=1e-12)
        torch.testing.assert_close(at(near, index), at(far, index), rtol=0, atol=1e-13)


def test_the_posterior_is_that_at_the_points_written_out_after_fantasies_too():
    U, y = random(2, 6, 5), random(2, 6, seed=2)
    for surrogate in (FixedRBF(), MAPRBF()):  # the second gives every problem a lengthscale of its own
        model = surrogate.fit(U, y)
        points = LocalCandidates(200).place(random(200, 5), model, torch.tensor([1, 4]), y.amax(-1), EI())
        near, far = (Marginals(model, X, y.amax(-1)) for X in (points, points.written()))
        for _ in range(3):
            torch.testing.assert_close(near.mean, far.mean, rtol=0, atol=1e-10)
            torch.testing.assert_close(near.sd, far.sd, rtol=0, atol=1e-9)
            chosen = near.sd.argmax(-1)
            near.believe(chosen)
            far.believe(chosen)
