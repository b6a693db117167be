"""Verifiers against scripted completions: what is shown, what is parsed, what is scored."""

from types import SimpleNamespace

import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.rewards.verifiers import (
    MultiGenerate,
    MultiJudge,
    NoVerifier,
    Oracle,
    SingleGenerate,
    SingleJudge,
    verdict_numbers,
)
from soft_reasoning.types import Candidate, Completion, Generate, Problem, Prompt, UserError, seed_for

PROBLEM = Problem("p", "How many?", "18")
CANDIDATES = [
    Candidate("3 x 6 = 18. Answer: 18", "18", 0),
    Candidate("garbage", None, 0),
    Candidate("3 + 6 = 9. Answer: 9", "9", 0),
    Candidate("Answer: 18.0", "18.0", 0),
]


class Prompts:
    stop = ("Question:",)

    def __init__(self):
        self.asked = []

    def review(self, kind, problem, solutions):
        assert problem.gold is None, "a verifier must not see the gold answer"
        self.asked.append((kind, list(solutions)))
        return Prompt(ids=(1, 2, 3))


def run(verifier, *texts, candidates=CANDIDATES, problem=PROBLEM):
    """The verdict, what was asked and the requests, with ``texts`` as the model's completions in turn."""
    prompts = Prompts()
    context = SimpleNamespace(prompts=prompts, grader=Grader(), stream=lambda *stage: seed_for(0, *stage))
    steps = verifier.verify(problem, candidates, context, stage="round-0")
    requests = []
    try:
        wish = next(steps)
        while True:
            assert isinstance(wish, Generate)
            given = texts[len(requests) : len(requests) + len(wish.requests)]
            requests += wish.requests
            wish = steps.send([Completion((1,), (0.0,), text, "eos", 3) for text in given])
    except StopIteration as stop:
        return stop.value, prompts.asked, requests


def test_multi_generate_scores_agreement_and_omits_unparsed_candidates():
    verdict, asked, requests = run(MultiGenerate(), "6 + 6 + 6 = 18. Answer: 18")
    assert verdict.scores == (1.0, 0.0, 0.0, 1.0) and verdict.answers == ("18",)
    [(kind, shown)] = asked
    assert kind == "multi_generate" and shown == [c.text for c in CANDIDATES if c.answer is not None]
    assert requests[0].role == "verifier" and requests[0].stop == ("Question:",)


def test_a_verifier_without_an_answer_scores_nobody():
    verdict, _, _ = run(MultiGenerate(), "I cannot tell.")
    assert verdict.scores == (0.0, 0.0, 0.0, 0.0) and verdict.answers == (None,)


def test_several_samples_average_and_have_seeds_of_their_own():
    verdict, _, requests = run(MultiGenerate(samples=4, temperature=0.7), *["Answer: 18"] * 3, "Answer: 9")
    assert verdict.scores == (0.75, 0.0, 0.25, 0.75)
    assert len({r.seed for r in requests}) == 4 and requests[0].sampling.temperature == 0.7


def test_answers_alone_can_be_shown():
    _, asked, _ = run(MultiGenerate(show="answer"), "Answer: 18")
    assert asked[0][1] == ["Answer: 18", "Answer: 9", "Answer: 18.0"]


def test_single_generate_asks_once_a_candidate():
    verdict, asked, _ = run(SingleGenerate(), "Answer: 18", "Answer: 18", "Answer: 7")
    assert [len(shown) for _, shown in asked] == [1, 1, 1]
    assert verdict.scores == (1.0, 0.0, 0.0, 0.0) and verdict.answers == ("18", "18", "7")


def test_multi_judge_names_numbers_of_what_it_was_shown():
    verdict, _, _ = run(MultiJudge(), "Some words.\nCorrect: 1, 3, 9\n")
    assert verdict.scores == (1.0, 0.0, 0.0, 1.0) and verdict.answers == ()


def test_single_judge_reads_one_as_right():
    verdict, _, _ = run(SingleJudge(), "Correct: 1", "Correct: 0", "Correct: None")
    assert verdict.scores == (1.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Correct: 1, 3", {1, 3}),
        ("Correct: None", set()),
        ("Correct: 2\nHm.\nCorrect: 4", {4}),
        (" 2, 5\nbecause 7", {2, 5}),
        ("", set()),
    ],
)
def test_verdict_numbers(text, numbers):
    assert verdict_numbers(text) == numbers


def test_nothing_to_show_asks_nothing():
    verdict, asked, _ = run(MultiGenerate(), candidates=[CANDIDATES[1]] * 2)
    assert verdict.scores == (0.0, 0.0) and not asked


def test_none_neither_scores_nor_votes():
    verdict, asked, _ = run(NoVerifier())
    assert verdict.scores == (None,) * 4 and verdict.answers == () and not asked


def test_oracle_reads_the_gold_answer_and_wants_one():
    assert run(Oracle())[0].scores == (1.0, 0.0, 0.0, 1.0)
    with pytest.raises(UserError, match="gold"):
        run(Oracle(), problem=Problem("p", "How many?"))


def test_bad_values_are_one_line():
    for bad in ({"samples": 0}, {"samples": 3}, {"show": "pictures"}):
        with pytest.raises(UserError, match="verifier."):
            MultiGenerate(**bad)
