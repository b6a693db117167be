"""The verifier that reads a probability, and the weighted votes that stopping looks at."""

import pytest
import torch

from soft_reasoning.answers import Grader
from soft_reasoning.configuration.build import build_context, build_engine, build_method
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.methods.base import answer_votes
from soft_reasoning.rewards.probability import ProbabilityVerifier
from soft_reasoning.rewards.yes_no import probability_of_yes, word_ids
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.types import Candidate, Problem, Request

PROBLEM = Problem("p", "How many are 3 x 6?", "18")
CANDIDATES = [
    Candidate("3 x 6 = 18.\nAnswer: 18", "18", 0),
    Candidate("garbage", None, 0),
    Candidate("3 + 6 = 9. Answer: 9", "9", 0),
    Candidate("3 x 6 = 18.\nAnswer: 18", "18", 1),
]


def parts(*overrides):
    config = compose_config(["engine=fake", "max_new_tokens=30", *overrides])
    return build_method(config), build_context(config, build_engine(config))


def test_a_score_is_the_probability_of_yes_after_the_question_and_equal_texts_are_read_once():
    method, context = parts("method=verified_sampling", "verifier=probability")
    engine, tokenizer = context.engine, context.engine.tokenizer
    steps = method.verifier.verify(PROBLEM, CANDIDATES, context, stage="round-0")
    requests = next(steps).requests
    assert len(requests) == 2 and all(r.max_new_tokens == 0 and r.role == "verifier" for r in requests)
    shown = tokenizer.decode(list(requests[0].prompt_ids))
    assert "3 x 6 = 18. Answer: 18" in shown and shown.endswith("Right so far:")
    with pytest.raises(StopIteration) as stop:
        steps.send(engine.generate(requests))
    yes, no = word_ids(tokenizer, "Yes"), word_ids(tokenizer, "No")
    logits = [
        engine.generate([Request(r.prompt_ids, max_new_tokens=0, next_logits=yes + no)])[0].next_logits
        for r in requests
    ]
    right, wrong = probability_of_yes(torch.stack(logits), len(yes)).tolist()
    assert stop.value.value.scores == pytest.approx((right, 0.0, wrong, right))
    assert stop.value.value.texts == (f"Yes: {right:.3f}", f"Yes: {wrong:.3f}")


def test_nothing_to_read_is_nothing_asked():
    steps = ProbabilityVerifier().verify(PROBLEM, CANDIDATES[1:2], None, stage="round-0")
    with pytest.raises(StopIteration) as stop:
        next(steps)
    assert stop.value.value.scores == (0.0,)


@pytest.mark.parametrize("method", ["soft_reasoning", "random_embedding", "verified_sampling", "best_of_n"])
def test_every_method_with_a_verifier_takes_it(method):
    method, context = parts(f"method={method}", "verifier=probability")
    [(_, result)] = drive([PROBLEM], method, context)
    assert result.usage["verifier"].generated_tokens == 0 < result.usage["verifier"].sequences
    assert all(0 <= c.verified <= 1 for c in result.candidates)


def test_the_votes_of_answers_are_verdicts_or_counts():
    def candidate(answer, verified):
        return Candidate("", answer, 0, verified=verified)

    judged = [candidate("18", 0.9), candidate("9", 0.2), candidate(None, 1.0), candidate("18.0", 0.5)]
    assert answer_votes(judged, Grader(), "number") == pytest.approx([1.4, 0.2])
    unjudged = [candidate("18", None), candidate("18", None), candidate("9", None)]
    assert answer_votes(unjudged, Grader(), "number") == [2.0, 1.0]
