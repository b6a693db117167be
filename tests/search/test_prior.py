"""Knowledge from other questions: its file, what is refused, and its effect on rounds."""

import pytest
import torch

from soft_reasoning.search import BayesianOptimiser, RandomOptimiser, SearchState
from soft_reasoning.search.prior import Prior, question_fingerprint
from soft_reasoning.types import UserError, generator_for

D = 6
MADE_FOR = {"model": "a", "prompt": "b", "embedding.sigma": 2.0, "embedding.seed": 0}


@pytest.fixture(scope="module")
def prior():
    U = torch.randn(7, D, dtype=torch.float64, generator=generator_for(0, "points"))
    return Prior(tuple(map(tuple, U.tolist())), MADE_FOR, {"q1": question_fingerprint("How many?")})


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


@pytest.mark.parametrize("key", MADE_FOR)
def test_another_model_prompt_or_projection_is_refused(prior, key):
    prior.check_made_for(MADE_FOR)
    with pytest.raises(UserError, match=f"the run's {key}, other, got") as refused:
        prior.check_made_for({**MADE_FOR, key: "other"})
    assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match=f"the run's {key}, None, got"):
        prior.check_made_for({name: value for name, value in MADE_FOR.items() if name != key})


def test_a_calibration_problem_is_refused_under_any_id(prior):
    prior.check_unseen(["Another?"])
    with pytest.raises(UserError, match="got 1 of those, such as q1"):
        prior.check_unseen(["Another?", " How many? "])


@pytest.mark.parametrize("kind", [BayesianOptimiser, RandomOptimiser])
def test_the_first_round_takes_the_portfolio_and_then_draws(prior, kind):
    optimiser, without = kind(prior=prior), kind()
    first = optimiser.initial(5, D, generator_for(0, "one"))
    assert first.tolist() == [list(point) for point in prior.portfolio[:5]]
    wide = optimiser.initial(9, D, generator_for(0, "one"))
    assert torch.equal(wide[:5], first) and len(wide.unique(dim=0)) == 9
    assert torch.equal(wide[7:], without.initial(2, D, generator_for(0, "one")))
    with pytest.raises(UserError, match="expected points of 3 dimensions, got 6"):
        optimiser.initial(5, 3, generator_for(0, "one"))


def test_the_control_goes_through_the_portfolio_and_then_draws(prior):
    optimiser = RandomOptimiser(prior=prior)
    assert RandomOptimiser().independent and not optimiser.independent
    U = optimiser.initial(5, D, generator_for(0, "one"))[None]
    [proposal] = optimiser.propose(SearchState(U, U[..., 0], 5, seed=0, round=1, keys="a"))
    assert proposal.points[:2].tolist() == [list(point) for point in prior.portfolio[5:]]
    later = torch.cat([U, proposal.points[None]], dim=1)
    state = SearchState(later, later[..., 0], 5, seed=0, round=2, keys="a")
    [proposal], [plain] = optimiser.propose(state), RandomOptimiser().propose(state)
    assert torch.equal(proposal.points, plain.points)
