"""Knowledge from other questions: its file, what is refused, and its effect on rounds and surrogate."""

import json
from dataclasses import replace

import pytest
import torch
from gpytorch.means import ZeroMean

from soft_reasoning.search import BayesianOptimiser, RandomOptimiser, Surrogate
from soft_reasoning.search.prior import Prior, question_mark
from soft_reasoning.types import UserError, generator_for

D, M = 6, 40
MADE_FOR = {"model": "a", "prompt": "b", "embedding.sigma": 2.0, "embedding.seed": 0}


@pytest.fixture(scope="module")
def prior():
    """The first coordinate decides how much reward a point gets."""
    U = torch.randn(M, D, dtype=torch.float64, generator=generator_for(0, "points"))
    reward = 1 + 0.2 * torch.tanh(U[:, 0])
    return Prior(
        points=tuple(map(tuple, U.tolist())),
        share=tuple((reward - 0.8).tolist()),
        reward=tuple(reward.tolist()),
        noise=1e-4,
        portfolio=(3, 1, 4, 15, 9, 2, 6),
        made_for=MADE_FOR,
        questions={"q1": question_mark("How many?")},
    )


def test_the_file_holds_it_exactly(prior, tmp_path):
    prior.save(tmp_path / "prior.json")
    assert Prior.load(tmp_path / "prior.json") == prior


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"format": 9}'])
def test_other_files_are_refused(content, tmp_path):
    path = tmp_path / "prior.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(UserError, match=r"search\.prior: expected a file .* got ") as refused:
        BayesianOptimiser(prior=str(path))
    assert "\n" not in str(refused.value)


def test_a_file_whose_parts_do_not_fit_is_refused(prior, tmp_path):
    replace(prior, share=prior.share[1:]).save(tmp_path / "prior.json")
    with pytest.raises(UserError, match="differ in number"):
        Prior.load(tmp_path / "prior.json")


@pytest.mark.parametrize("key", MADE_FOR)
def test_another_model_prompt_or_projection_is_refused(prior, key):
    prior.check(MADE_FOR)
    with pytest.raises(UserError, match=f"the run's {key}, other, got") as refused:
        prior.check({**MADE_FOR, key: "other"})
    assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match=f"the run's {key}, None, got"):
        prior.check({name: value for name, value in MADE_FOR.items() if name != key})


def test_a_calibration_problem_is_refused_under_any_id(prior):
    prior.check_unseen(["Another?"])
    with pytest.raises(UserError, match="got 1 of those, such as q1"):
        prior.check_unseen(["Another?", " How many? "])


@pytest.mark.parametrize("kind", [BayesianOptimiser, RandomOptimiser])
def test_the_first_round_takes_the_portfolio_and_then_draws(prior, kind):
    optimiser, without = kind(prior=prior), kind()
    first = optimiser.initial(5, D, generator_for(0, "one"))
    assert torch.equal(first, prior.first[:5])
    assert tuple(first[2].tolist()) == prior.points[4]
    wide = optimiser.initial(9, D, generator_for(0, "one"))
    assert torch.equal(wide[:7], prior.first) and len(wide.unique(dim=0)) == 9
    assert torch.equal(wide[7:], without.initial(2, D, generator_for(0, "one")))
    with pytest.raises(UserError, match="expected points of 3 dimensions, got 6"):
        optimiser.initial(5, 3, generator_for(0, "one"))


def test_the_control_goes_through_the_portfolio_and_then_draws(prior):
    optimiser = RandomOptimiser(prior=prior)
    assert RandomOptimiser().independent and not optimiser.independent
    U = optimiser.initial(5, D, generator_for(0, "one"))[None]
    [proposal] = optimiser.propose(U, U[..., 0], 5, seed=0, round=1, keys="a")
    assert torch.equal(proposal.points[:2], prior.first[5:])
    later = torch.cat([U, proposal.points[None]], dim=1)
    [proposal] = optimiser.propose(later, later[..., 0], 5, seed=0, round=2, keys="a")
    [plain] = RandomOptimiser().propose(later, later[..., 0], 5, seed=0, round=2, keys="a")
    assert torch.equal(proposal.points, plain.points)


def test_the_pooled_mean_predicts_points_that_were_not_tried(prior):
    X = torch.randn(200, D, dtype=torch.float64, generator=generator_for(1, "points"))
    expected = 0.2 * torch.tanh(X[:, 0])
    found = prior.mean()(X)
    assert torch.corrcoef(torch.stack([expected, found]))[0, 1] > 0.8
    assert found.shape == (200,) and prior.mean()(X.reshape(4, 50, D)).shape == (4, 50)


@pytest.mark.parametrize("centred", [True, False])
def test_the_surrogate_s_mean_is_the_pooled_one_where_nothing_was_seen(prior, centred):
    surrogate = Surrogate(mean=ZeroMean(), centred=centred)
    pooled = prior.mean()
    with_mean = surrogate.with_pooled(pooled)
    U = torch.randn(2, 5, D, dtype=torch.float64, generator=generator_for(2, "points"))
    y = 0.7 + pooled(U).detach()  # just as the pooled mean has it, on another level
    far = 100 * torch.randn(3, D, dtype=torch.float64, generator=generator_for(3, "points"))
    mean, _ = with_mean.fit(U, y).marginals(far)
    level = 0.7 if centred else 0.0
    torch.testing.assert_close(mean, (level + pooled(far)).expand(2, 3), atol=1e-6, rtol=0)
    assert surrogate.pooled is None
    near, _ = with_mean.fit(U, y).marginals(U)
    plain, _ = surrogate.fit(U, y).marginals(U)
    assert (near - y).abs().max() < (plain - y).abs().max()


def test_proposals_follow_the_pooled_mean(prior):
    """Rewards that say nothing: with the prior the points lie where other questions did well."""
    U = torch.randn(1, 5, D, dtype=torch.float64, generator=generator_for(4, "points"))
    y = torch.ones(1, 5, dtype=torch.float64)
    with_prior, without = (
        torch.cat([kind.propose(U, y, 5, seed=s, round=1, keys="a")[0].points for s in range(4)])[:, 0].mean()
        for kind in (BayesianOptimiser(prior=prior), BayesianOptimiser())
    )
    assert with_prior > without + 0.3


def test_the_file_is_plain_json(prior, tmp_path):
    prior.save(tmp_path / "prior.json")
    stored = json.loads((tmp_path / "prior.json").read_text())
    assert len(stored["points"]) == M and stored["questions"] == {"q1": question_mark("How many?")}
