"""The reward of a question as a BoTorch test problem."""

import copy
import json
import pickle

import pytest
import torch
from botorch.test_functions.base import BaseTestProblem

from soft_reasoning import Problem, SoftReasoner, SoftReasoningObjective, UserError
from soft_reasoning.answers import Grader
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.judge.reward import Reward
from soft_reasoning.lab.data.demo import FOLDER
from soft_reasoning.method.soft_reasoning import SoftReasoning
from soft_reasoning.prompts import Prompts
from soft_reasoning.schedule.method import Context
from soft_reasoning.search import GaussianEmbedding, SearchState
from soft_reasoning.types import GREEDY, generator_for

ROW = json.loads((FOLDER / "test.jsonl").read_text().splitlines()[2])
QUESTION, GOLD = ROW["question"], str(ROW["answer"])
ROUNDS = {"embedding": "gaussian", "decoding": "greedy", "stopping": "none", "rounds": 1}


@pytest.fixture(scope="module")
def reasoner():
    with SoftReasoner.from_pretrained("demo", **ROUNDS) as reasoner:
        yield reasoner


def test_the_method_itself_evaluates_the_same_points_to_the_same_rewards(reasoner):
    """First round and proposals of the method, asked for by hand."""
    result = reasoner.solve(QUESTION)
    objective = reasoner.objective(QUESTION, GOLD)
    optimiser = reasoner.method.optimiser
    U = optimiser.initial(5, objective.dim, generator_for(0, QUESTION, "initial"))
    y = objective(U)
    [proposal] = optimiser.propose(SearchState(U[None], y[None], 5, seed=0, round=1, keys=[QUESTION]))
    objective(proposal.points)
    assert [c.reward for c in objective.candidates] == [c.reward for c in result.candidates]
    assert [c.text for c in objective.candidates] == [c.text for c in result.candidates]
    assert objective.answer == result.answer
    assert objective.correct(GOLD) and not objective.correct("-1") and not objective.correct(None)
    assert {role: u.generated_tokens for role, u in objective.usage.items()} == {
        role: u.generated_tokens for role, u in result.usage.items()
    }


def test_is_a_botorch_test_problem(reasoner):
    objective = reasoner.objective(QUESTION)
    assert isinstance(objective, BaseTestProblem)
    assert objective.dim == 50 and objective.bounds.shape == (2, 50) and objective.noise_std is None
    X = torch.randn(4, 50, dtype=torch.float64, generator=generator_for(0, "points"))
    y = objective(X)
    assert y.shape == (4,) and y.dtype == torch.float64 and len(objective.candidates) == 4
    assert objective.best.reward == y.max().item()
    assert torch.equal(objective(X), y), "greedy completions are a function of u"
    assert objective(X.reshape(2, 2, 50).float()).shape == (2, 2)
    assert objective(10 * X[:1]).isfinite().all(), "points outside the box are evaluated"


@pytest.mark.slow
def test_sampled_decoding_draws_a_reward_anew_each_time():
    with SoftReasoner.from_pretrained("demo", embedding="gaussian") as sampled:
        objective, again = (sampled.objective(QUESTION) for _ in range(2))
        X = torch.randn(3, 50, dtype=torch.float64, generator=generator_for(0, "points"))
        first, second = objective(X), objective(X)
        assert not torch.equal(first, second)
        assert torch.equal(again(X), first), "a draw follows the seed and its number"


def test_bad_values(reasoner):
    objective = reasoner.objective(QUESTION)
    for points in (torch.zeros(2, 3), torch.zeros(2, 50, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"floats \(batch x 50\), got .* of torch\."):
            objective(points)
    with pytest.raises(UserError, match="noise_std: expected a finite number at least 0, got -1"):
        reasoner.objective(QUESTION, noise_std=-1)
    with pytest.raises(UserError, match="^question: expected"):
        reasoner.objective(7)
    X = torch.zeros(2, 50, dtype=torch.float64)
    X[1, 3] = float("nan")
    with pytest.raises(ValueError, match="expected finite points, got NaN or infinity in row 1"):
        objective(X)
    for ask in (lambda: objective.answer, lambda: objective.best):
        with pytest.raises(UserError, match="call the objective first"):
            ask()
    with pytest.raises(UserError, match="gold="):
        objective.correct("3")
    with SoftReasoner.from_pretrained("demo", engine="fake", method="cot") as greedy:
        with pytest.raises(UserError, match="^objective: expected a method that searches .*, got method=cot"):
            greedy.objective(QUESTION)


def test_an_option_that_cannot_act_is_refused(reasoner):
    for name, value in {"max_tokens": 1, "k": 2, "rounds": 1, "acquisition": "ei", "dim": 3}.items():
        with pytest.raises(UserError, match=f"^objective: .* among gold, negate, .* d, .*, got {name}"):
            reasoner.objective(QUESTION, **{name: value})
    assert reasoner.objective(QUESTION, k=None).dim == 50


def test_is_made_of_an_engine_a_tokenizer_and_prompts_without_a_configuration(reasoner):
    """It is the reasoner's, part by part."""
    engine = HuggingFaceEngine(str(FOLDER / "model"), device="cpu")
    prompts = Prompts(engine.tokenizer, reasoner.context.prompts.wording)
    method = SoftReasoning(
        embedding=GaussianEmbedding(dim=50, sigma=8.0), verifier=reasoner.method.verifier, decoding=GREEDY
    )
    context = Context(engine, prompts, Grader(), seed=0)
    objective = SoftReasoningObjective(Problem(QUESTION, QUESTION, GOLD), method, context)
    configured = reasoner.objective(QUESTION, GOLD)
    X = torch.randn(3, 50, dtype=torch.float64, generator=generator_for(0, "points"))
    assert torch.equal(objective(X), configured(X)) and objective.answer == configured.answer
    generated = [{role: u.generated_tokens for role, u in o.usage.items()} for o in (objective, configured)]
    assert generated[0] == generated[1] and objective.space.anchor == configured.space.anchor
    engine.close()


def test_noise_seed_and_dimensions_are_those_of_a_test_problem(reasoner):
    plain = reasoner.objective(QUESTION)
    X = torch.zeros(2, plain.dim, dtype=torch.float64)
    noisy = reasoner.objective(QUESTION, noise_std=0.5)
    assert noisy.noise_std == 0.5 and not torch.equal(noisy(X), plain(X))
    assert torch.equal(noisy.evaluate_true(X), reasoner.objective(QUESTION).evaluate_true(X))
    assert reasoner.objective(QUESTION, d=7).dim == 7
    first, other = (reasoner.objective(QUESTION, seed=seed) for seed in (0, 1))
    assert first.space.context.seed == 0 and other.space.context.seed == 1


def test_it_says_what_it_is_and_the_largest_reward_that_an_answer_can_have(reasoner):
    objective = reasoner.objective(QUESTION, GOLD)
    assert f"{QUESTION[:50]}" in repr(objective) and "d=50, bounds=[-1.732, 1.732]" in repr(objective)
    X = torch.randn(4, 50, dtype=torch.float64, generator=generator_for(0, "points"))
    assert objective(X).max() <= objective.optimal_value == 2.0
    minus = reasoner.objective(QUESTION, negate=True)
    assert minus(X).min() >= minus.optimal_value == -2.0
    assert reasoner.objective(QUESTION, verifier="none").optimal_value == 1.0

    class Own(Reward):
        def __call__(self, verified, coherence):
            return 7 * coherence

    with pytest.raises(NotImplementedError, match="Own"):
        _ = reasoner.objective(QUESTION, reward=Own()).optimal_value


def test_it_cannot_be_pickled_or_copied_and_says_why(reasoner):
    for use in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="holds a loaded model"):
            use(reasoner.objective(QUESTION))
