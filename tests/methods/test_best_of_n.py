"""Best of n, verified sampling of one round: self-consistency's samples, and which of them answers."""

from types import SimpleNamespace

import pytest

from soft_reasoning.configuration.build import build_context, build_engine, build_method
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.methods.verified_sampling import VerifiedSampling
from soft_reasoning.rewards.combine import Reward
from soft_reasoning.rewards.final import FinalAnswer
from soft_reasoning.rewards.verifiers import NoVerifier, Verdict
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.search import Stopping
from soft_reasoning.types import Completion, Problem, Round
from tests.methods.scripted import PROBLEM, ScriptedEngine, context_of

PROBLEMS = [Problem(f"p{i}", f"What is {i} and {i + 3}?", str(2 * i + 3)) for i in range(6)]

COMPLETIONS = [
    Completion((1,), (-0.7,), " Answer: 3", "eos", 2),
    Completion((1,), (-0.5,), " Answer: 4", "eos", 2),
    Completion((1,), (-0.1,), "nothing to read", "eos", 2),
    Completion((1,), (-0.2,), " Answer: 5", "eos", 2),
    Completion((1,), (-0.2,), " Answer: 6", "eos", 2),
]


def answer_of(method, completions=COMPLETIONS):
    """The method's result when the engine writes ``completions``."""
    steps = method.solve(PROBLEM, context_of(ScriptedEngine({})))
    assert len(next(steps).requests) == len(completions)
    assert isinstance(steps.send(completions), Round)
    with pytest.raises(StopIteration) as stop:
        next(steps)
    return stop.value.value


def best_of(verifier, **reward):
    return VerifiedSampling(verifier, Reward(**reward), Stopping(rounds=0), FinalAnswer("best_reward"))


def judge(*scores):
    """A verifier that gives these scores and asks nothing."""

    def verify(problem, candidates, context, *, stage, earlier=()):
        return Verdict(scores=scores, answers=("9",), texts=("9 it is",))
        yield

    return SimpleNamespace(name="judge", verify=verify)


@pytest.mark.parametrize(
    ("scores", "weight", "answer"),
    [
        ((1.0, 0.0, 0.0, 0.0, 0.0), 1.0, "3"),  # the verifier outweighs coherence
        ((1.0, 1.0, 0.0, 0.0, 0.0), 1.0, "4"),  # coherence decides between equals
        ((0.0, 0.0, 0.0, 0.0, 0.0), 1.0, "5"),  # the earliest of two of the same coherence
        ((1.0, 1.0, 0.0, 0.5, 0.0), 0.0, "3"),  # the earliest of two of the same reward
        ((0.0, 0.0, 9.0, 1.0, 1.0), 1.0, "5"),  # what has no answer cannot win
    ],
)
def test_the_highest_reward_answers_and_coherence_breaks_ties(scores, weight, answer):
    result = answer_of(best_of(judge(*scores), coherence_weight=weight))
    assert result.answer == answer
    assert [c.verified for c in result.candidates] == list(scores)
    assert result.trace[0]["verifier"]["answers"] == ["9"]


def test_coherence_alone_asks_no_verifier():
    result = answer_of(best_of(NoVerifier()))
    assert result.answer == "5"
    assert all(c.verified is None and c.reward == c.coherence for c in result.candidates)


@pytest.mark.parametrize("verifier", ["multi_generate", "none"])
def test_its_candidates_are_those_of_self_consistency(verifier):
    engine = build_engine(compose_config(["engine=fake"]))

    def solve(*overrides):
        config = compose_config(["max_new_tokens=30", *overrides])
        method, context = build_method(config), build_context(config, engine)
        return {p.id: r for p, r in drive(PROBLEMS, method, context)}

    best = solve("method=best_of_n", f"verifier={verifier}")
    samples = solve("method=self_consistency")
    for name, result in best.items():
        assert [c.text for c in result.candidates] == [c.text for c in samples[name].candidates]
        assert [c.answer for c in result.candidates] == [c.answer for c in samples[name].candidates]
        assert ("verifier" in result.usage) == (verifier != "none")
        ranked = max(result.candidates, key=lambda c: (c.verified or 0.0, c.coherence))
        assert result.answer == ranked.answer
