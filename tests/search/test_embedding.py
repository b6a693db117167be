"""Embeddings: the contract, the anchor, the variance, REMBO's theorem, bad values."""

from __future__ import annotations

import pytest
import torch

from soft_reasoning.search import GaussianEmbedding, TokenSimplexEmbedding
from soft_reasoning.types import UserError
from tests.contracts import embedding as contract

ALL = [GaussianEmbedding, TokenSimplexEmbedding]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "check",
    [
        contract.shapes_and_types,
        contract.a_point_alone_gets_the_same_soft_tokens,
        contract.the_seed_decides,
        contract.distinct_points_give_distinct_soft_tokens,
        contract.a_wrong_shape_is_refused,
    ],
)
def test_contract(kind, check):
    check(kind(dim=6))


def test_sigma_zero_is_the_anchor_exactly():
    embedding = GaussianEmbedding(dim=6, sigma=0.0)
    anchor = torch.randn(2, 64, generator=torch.Generator().manual_seed(0)) * 1e-3
    x = embedding.bind(anchor=anchor, rms=0.3, seed=1)(contract.points(3, 12))
    assert torch.equal(x, anchor.expand(3, -1, -1))


@pytest.mark.parametrize("units, expected", [("rms", 1.0), ("absolute", 2.0)])
def test_variance_of_a_coordinate_is_sigma_squared(units, expected):
    anchor = torch.full((1, 256), 3.0)
    draws = []
    for seed in range(40):
        subspace = GaussianEmbedding(dim=8, sigma=2.0, units=units).bind(anchor=anchor, rms=0.5, seed=seed)
        draws.append(subspace(contract.points(50, 8)) - 3.0)
    assert torch.stack(draws).std().item() == pytest.approx(expected, rel=0.05)


def test_the_projection_does_not_depend_on_the_problem():
    U = contract.points(3, 6)
    anchors = torch.randn(2, 1, 64)
    embedding = GaussianEmbedding(dim=6)
    step = [embedding.bind(anchor=z, rms=1.0, seed=0)(U) - z for z in anchors]
    torch.testing.assert_close(step[0], step[1], rtol=0, atol=1e-5)


def test_no_anchor_starts_at_zero():
    free = GaussianEmbedding(6, anchor="none").bind(anchor=torch.ones(1, 64), rms=1.0, seed=0)
    assert free(torch.zeros(1, 6)).abs().max() == 0


def test_simplex_mixes_tokens_by_softmax():
    tokens = torch.randn(4, 64)
    subspace = TokenSimplexEmbedding(4, tau=3.0).bind(
        anchor=torch.zeros(1, 64), rms=1.0, seed=0, tokens=tokens
    )
    assert torch.allclose(subspace(torch.zeros(1, 4))[0, 0], tokens.mean(0), atol=1e-6)
    sharp = torch.tensor([[0.0, 50.0, 0.0, 0.0]])
    assert torch.allclose(subspace(sharp)[0, 0], tokens[1], atol=1e-6)
    weights = subspace.weights(contract.points(7, 4))
    assert weights.shape == (7, 1, 4) and torch.allclose(weights.sum(-1), torch.ones(7, 1).double())


@pytest.mark.parametrize(
    ("kind", "bad", "message"),
    [
        (GaussianEmbedding, {"dim": 0}, "dim: expected a whole number of at least 1"),
        (GaussianEmbedding, {"units": "volts"}, "rms, absolute"),
        (TokenSimplexEmbedding, {"tau": -1.0}, "tau: expected"),
    ],
)
def test_bad_values(kind, bad, message):
    with pytest.raises(UserError, match=message):
        kind(**bad)


def test_too_few_likely_tokens():
    with pytest.raises(ValueError, match="10 likely tokens"):
        TokenSimplexEmbedding(10).bind(anchor=torch.zeros(1, 64), rms=1.0, seed=0, tokens=torch.zeros(9, 64))


def test_the_projection_may_have_a_seed_of_its_own():
    anchor, u = torch.zeros(1, 64), torch.ones(1, 8)
    seeded, run_5, run_6 = (
        GaussianEmbedding(8, seed=seed).bind(anchor=anchor, rms=1.0, seed=run)(u)
        for seed, run in ((5, 6), (None, 5), (None, 6))
    )
    assert torch.equal(seeded, run_5) and not torch.equal(seeded, run_6)
