"""preset=released: the public code's reading, showing and voting, each against a worked example."""

import pytest
import torch

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine, build_method
from soft_reasoning.judge.final import SearchHistory
from soft_reasoning.judge.released import ReleasedGrader, ReleasedVote
from soft_reasoning.judge.verifier import Verdict
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.search import SearchState
from soft_reasoning.types import Candidate, Problem, generator_for
from tests.judge.named import ReleasedVerifier
from tests.judge.test_verifiers import CANDIDATES, run

PROBLEM = Problem("p", "Is 7 more than 3? Choose: 1 or 2.", "1")


@pytest.mark.parametrize(
    ("text", "kind", "answer"),
    [
        ("so it is so. Answer: 18", "number", "18"),
        ("Answer: -5", "number", "5"),  # 9: the minus is lost
        ("Answer: $1,234.50.", "number", "1234.50"),
        ("Answer: 10-5=5", "number", "10"),  # 17: the first number
        ("Answer: 3 or so. Answer: 4", "number", "3"),
        ("It is 18.", "number", None),
        ("Let me see. Question: none? Answer: 4", "number", None),  # 17: cut at "Question"
        ("Answer: untrue", "boolean", "True"),
        ("Answer: no, false", "boolean", "False"),
        ("Answer: (B)", "choice", "B"),
    ],
)
def test_candidates_are_read_as_released(text, kind, answer):
    assert ReleasedGrader().extract(text, kind) == answer


@pytest.mark.parametrize(
    ("text", "answer", "scores"),
    [
        ("Answer: 18", "18.0", (1, 0, 0, 1)),  # 12: a float's text; scored as a number
        ("Answer: 9,000", "9.0", (0, 0, 1, 0)),  # 13: cut at the comma
        ("Answer: -18", "-18.0", (0, 0, 0, 0)),  # 9: the verifier keeps the sign
        ("Answer: none of them", "None", (0, 0, 0, 0)),
        ("I cannot say.", "-9999", (0, 0, 0, 0)),
    ],
)
def test_the_verifier_is_read_as_released(text, answer, scores):
    verdict, _, _ = run(ReleasedVerifier(), text)
    assert verdict.answers == (answer,) and verdict.scores == scores


def test_earlier_analyses_precede_the_new_candidates_and_are_not_scored():
    earlier = [
        Verdict((1.0,), ("9.0",), ("first thoughts",)),
        Verdict((0.0,), ("8.0",), ("second thoughts",)),
    ]
    verdict, [(kind, shown)], _ = run(ReleasedVerifier(), "Answer: 18", earlier=earlier)
    assert shown == ["first thoughts", "second thoughts", *(c.text for c in CANDIDATES if c.answer)]
    assert kind == "multi_generate" and len(verdict.scores) == len(CANDIDATES)


def test_votes_compare_strings_and_the_verifier_comes_first():
    def choose(verifier, candidates):
        seen = [Candidate("", answer, 0) for answer in candidates]
        verdicts = [Verdict((), (answer,), ("",), (1.0,)) for answer in verifier]
        return ReleasedVote().choose(SearchHistory(seen, verdicts, ReleasedGrader()))

    assert choose(["18.0"], ["18", "7"]) == "18.0"  # 7: wins the tie
    assert choose(["18.0"], ["18", "7", "7"]) == "7"  # 12: "18.0" and "18" do not add up
    assert choose(["-9999", "-9999"], ["18", "7"]) == "-9999"  # 13: votes like an answer
    assert choose([], [None, None]) is None


def solve(*overrides):
    config = compose_config(["engine=fake", "preset=released", "max_new_tokens=30", *overrides])
    engine = build_engine(config)
    return list(drive([PROBLEM], build_method(config), build_context(config, engine)))[0][1]


def test_the_verifier_still_votes_without_its_part_of_the_reward():
    result = solve("reward.verifier_weight=0", "stopping=none")
    assert all(c.reward == c.coherence for c in result.candidates)
    assert all(entry["verifier"]["answers"] for entry in result.trace)
    assert result.usage["verifier"].sequences == 5


def test_the_preset_proposes_what_the_released_formulas_propose():
    """Uniform candidates, l = 1, noise 1e-8 squared, zero mean, EI of f* - mu with the variance as sigma,
    f* the best reward seen, the five largest; d = 4, where l = 1 still correlates points."""
    config = compose_config(["preset=released", "d=4"])
    optimiser = build_method(config).optimiser
    draw = generator_for(0, "data")
    U = torch.randn(1, 10, 4, dtype=torch.float64, generator=draw)
    y = torch.rand(1, 10, dtype=torch.float64, generator=draw) + (torch.arange(10) % 3 == 0)
    [proposal] = optimiser.propose(SearchState(U, y, 5, seed=3, round=2, keys=["p"]))

    X = torch.rand(5000, 4, dtype=torch.float64, generator=generator_for(3, "candidates", 2))
    K = torch.exp(-0.5 * torch.cdist(torch.cat([U[0], X]), torch.cat([U[0], X])).square())
    inverse = torch.linalg.inv(K[:10, :10] + (1e-8) ** 2 * torch.eye(10))
    mu = K[10:, :10] @ inverse @ y[0]
    sigma = 1 - ((K[10:, :10] @ inverse) * K[10:, :10]).sum(-1)  # a variance
    gain = y.max() - mu
    normal = torch.distributions.Normal(0.0, 1.0)
    z = gain / sigma
    value = gain.clamp(min=0) + sigma * normal.log_prob(z).exp() - gain.abs() * normal.cdf(z)
    best = value.topk(5)
    assert torch.equal(proposal.points, X[best.indices])
    torch.testing.assert_close(proposal.acquisition, best.values, rtol=0, atol=1e-7)
