"""The verifier alone: what it is shown, how its samples vote, and which verifiers it refuses."""

from dataclasses import replace

import pytest

from soft_reasoning.judge.verifier import NoVerifier, Oracle
from soft_reasoning.method.verifier_only import VerifierOnly
from soft_reasoning.types import UserError
from tests.judge.named import MultiGenerate, MultiJudge, SingleGenerate, SingleJudge
from tests.judge.test_verifiers import Prompts, outcome
from tests.method.scripted import PROBLEM, ScriptedEngine, context_of


def run(verifier, *written):
    """The result, the requests and what was asked, when the verifier writes (text, log-probability)."""
    prompts = Prompts()
    context = replace(context_of(ScriptedEngine({})), prompts=prompts)
    texts = [(text, (logprob,)) for text, logprob in written]
    return *outcome(VerifierOnly(verifier).solve(PROBLEM, context), texts), prompts.asked


@pytest.mark.parametrize("verifier", [MultiGenerate(), SingleGenerate()])
def test_it_is_asked_once_and_shown_no_solution(verifier):
    result, [request], asked = run(verifier, ("3 + 4 = 7. Answer: 7", -0.1))
    assert asked == [(verifier.name, [])]
    assert result.answer == "7" and [c.text for c in result.candidates] == ["3 + 4 = 7. Answer: 7"]
    assert request.role == "verifier" and request.sampling.temperature == 0


def test_confidence_weights_the_vote():
    written = [("Answer: 9", -0.1), ("Answer: 7", -2.0), ("Answer: 7", -2.0)]  # 0.90 against 0.27
    sure = MultiGenerate(samples=3, temperature=0.7, confidence="sequence_prob")
    assert run(sure, *written)[0].answer == "9"
    assert run(replace(sure, confidence="none"), *written)[0].answer == "7"


@pytest.mark.parametrize("verifier", [MultiJudge(), SingleJudge(), NoVerifier(), Oracle()])
def test_verifiers_without_an_answer_are_refused(verifier):
    with pytest.raises(UserError, match=f"verifier={verifier.name}: expected .* use multi_generate") as error:
        VerifierOnly(verifier)
    assert "\n" not in str(error.value)
