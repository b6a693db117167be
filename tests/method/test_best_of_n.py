"""Best of n, verified sampling of one round: self-consistency's samples, and which of them answers."""

import pytest

from soft_reasoning.judge.final import FinalAnswer
from soft_reasoning.judge.reward import Reward
from soft_reasoning.method.verified_sampling import VerifiedSampling
from soft_reasoning.schedule.method import Round
from soft_reasoning.search import Stopping
from soft_reasoning.types import Completion
from tests.method.scripted import PROBLEM, ScriptedEngine, context_of, judge

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
    return VerifiedSampling(
        verifier=verifier,
        reward=Reward(**reward),
        stopping=Stopping(rounds=0),
        final=FinalAnswer("best_reward"),
    )


@pytest.mark.parametrize(
    ("scores", "weight", "answer"),
    [
        ((1.0, 0.0, 0.0, 0.0, 0.0), 1.0, "3"),  # the verifier outweighs coherence
        ((1.0, 1.0, 0.0, 0.0, 0.0), 1.0, "4"),  # coherence decides between equals
        ((0.0, 0.0, 0.0, 0.0, 0.0), 1.0, "5"),  # the earliest of two of the same coherence
        ((1.0, 1.0, 0.0, 0.5, 0.0), 0.0, "3"),  # the earliest of two of the same reward
        ((0.0, 0.0, 1.0, 0.5, 0.5), 9.0, "5"),  # what has no answer cannot win
    ],
)
def test_the_highest_reward_answers_and_coherence_breaks_ties(scores, weight, answer):
    result = answer_of(best_of(judge(*scores), coherence_weight=weight))
    assert result.answer == answer
    assert [c.verified for c in result.candidates] == list(scores)
    assert result.trace[0]["verifier"]["answers"] == ["9"]
