"""The verifier alone: what it is shown, how its samples vote, and which verifiers it refuses."""

from dataclasses import replace

import pytest

from soft_reasoning.methods.verifier_only import VerifierOnly
from soft_reasoning.rewards.verifiers import NoVerifier, Oracle
from soft_reasoning.types import Completion, Prompt, UserError
from tests.methods.scripted import PROBLEM, ScriptedEngine, context_of
from tests.rewards.named import MultiGenerate, MultiJudge, SingleGenerate, SingleJudge


class Reviews:
    """Prompts that keep what they were asked to show."""

    def split(self, text):
        return "", text

    stop = ("Question:",)

    def __init__(self):
        self.asked = []

    def review(self, kind, problem, solutions, **options):
        assert problem.gold is None, "a verifier must not see the gold answer"
        self.asked.append((kind, list(solutions)))
        return Prompt((1, 2, 3))


def run(verifier, *written):
    """The result, the requests and what was asked, when the verifier writes (text, log-probability)."""
    prompts = Reviews()
    context = replace(context_of(ScriptedEngine({})), prompts=prompts)
    steps = VerifierOnly(verifier).solve(PROBLEM, context)
    requests = next(steps).requests
    completions = [Completion((1,), (score,), text, "eos", 3) for text, score in written]
    assert len(requests) == len(completions)
    try:
        steps.send(completions)
    except StopIteration as stop:
        return stop.value, requests, prompts.asked
    raise AssertionError("expected no further effect")


@pytest.mark.parametrize("verifier", [MultiGenerate(), SingleGenerate()])
def test_it_is_asked_once_and_shown_no_solution(verifier):
    result, [request], asked = run(verifier, ("3 + 4 = 7. Answer: 7", -0.1))
    assert asked == [(verifier.name, [])]
    assert result.answer == "7" and [c.text for c in result.candidates] == ["3 + 4 = 7. Answer: 7"]
    assert request.role == "verifier" and request.sampling.temperature == 0


def test_confidence_weights_the_vote():
    written = [("Answer: 9", -0.1), ("Answer: 7", -2.0), ("Answer: 7", -2.0)]  # 0.90 against 0.27
    sure = MultiGenerate(samples=3, temperature=0.7, confidence="mean_prob")
    assert run(sure, *written)[0].answer == "9"
    assert run(replace(sure, confidence="none"), *written)[0].answer == "7"


@pytest.mark.parametrize("verifier", [MultiJudge(), SingleJudge(), NoVerifier(), Oracle()])
def test_verifiers_without_an_answer_are_refused(verifier):
    with pytest.raises(UserError, match=f"verifier={verifier.name}: expected .* use multi_generate") as error:
        VerifierOnly(verifier)
    assert "\n" not in str(error.value)
