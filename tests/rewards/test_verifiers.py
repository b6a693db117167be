"""Verifiers against scripted completions: what is shown, what is parsed, what is scored."""

import math
from types import SimpleNamespace

import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.engines.fake import FakeTokenizer
from soft_reasoning.rewards.judgement import NamedChoice, verdict_numbers
from soft_reasoning.rewards.verifiers import NoVerifier, Oracle, Verdict
from soft_reasoning.types import (
    Candidate,
    Completion,
    Generate,
    Problem,
    Prompt,
    TopLogprobs,
    UserError,
    seed_for,
)
from tests.rewards.named import (
    Fresh,
    MultiGenerate,
    MultiJudge,
    ReleasedVerifier,
    SingleGenerate,
    SingleJudge,
)

PROBLEM = Problem("p", "How many?", "18")
CANDIDATES = [
    Candidate("3 x 6 = 18. Answer: 18", "18", 0),
    Candidate("garbage", None, 0),
    Candidate("3 + 6 = 9. Answer: 9", "9", 0),
    Candidate("Answer: 18.0", "18.0", 0),
]


class Prompts:
    def split(self, text):
        return "", text

    def solve(self, problem):
        assert problem.gold is None
        self.asked.append(("solve", []))
        return Prompt(ids=(1, 2))

    def __init__(self):
        self.asked = []

    def review(self, kind, problem, solutions, *, shots, brief, room):
        assert problem.gold is None, "a verifier must not see the gold answer"
        self.asked.append((kind, list(solutions)))
        self.options = (shots, brief)
        return Prompt(ids=(1, 2, 3, *" ".join(solutions).encode()), stop=("Question:",))


def context_of(prompts=None, **more):
    return SimpleNamespace(
        prompts=prompts or Prompts(), grader=Grader(), stream=lambda *stage: seed_for(0, *stage),
        engine=SimpleNamespace(context_length=1000, tokenizer=FakeTokenizer()), **more,
    )  # fmt: skip


def run(verifier, *texts, candidates=CANDIDATES, problem=PROBLEM, earlier=(), prompts=None, judges=()):
    """The verdict, what was asked and the requests, with ``texts`` as the model's completions in turn; a
    text may come with its tokens' log-probabilities, or be a completion."""
    context = context_of(prompts, judges=judges)
    steps, requests = verifier.verify(problem, candidates, context, earlier), []
    try:
        effect = next(steps)
        while True:
            assert isinstance(effect, Generate)
            given = texts[len(requests) : len(requests) + len(effect.requests)]
            requests += effect.requests
            effect = steps.send([completion(one) for one in given])
    except StopIteration as stop:
        return stop.value, context.prompts.asked, requests


def completion(given):
    if isinstance(given, Completion):
        return given
    text, logprobs = given if isinstance(given, tuple) else (given, (0.0,))
    return Completion((1,) * len(logprobs), logprobs, text, "eos", 3)


def test_multi_generate_scores_agreement_and_omits_unparsed_candidates():
    verdict, asked, requests = run(MultiGenerate(), "6 + 6 + 6 = 18. Answer: 18")
    assert verdict.scores == (1.0, 0.0, 0.0, 1.0) and verdict.answers == ("18",)
    [(kind, shown)] = asked
    assert kind == "multi_generate" and shown == [c.text for c in CANDIDATES if c.answer is not None]
    assert requests[0].role == "verifier" and requests[0].stop == ("Question:",)


def test_several_samples_average_and_have_seeds_of_their_own():
    verdict, _, requests = run(MultiGenerate(samples=4, temperature=0.7), *["Answer: 18"] * 3, "Answer: 9")
    assert verdict.scores == (0.75, 0.0, 0.25, 0.75)
    assert len({r.seed for r in requests}) == 4 and requests[0].sampling.temperature == 0.7
    _, _, later = run(MultiGenerate(samples=4, temperature=0.7), *["Answer: 18"] * 4, earlier=[Verdict(())])
    assert not {r.seed for r in requests} & {r.seed for r in later}, "every round draws anew"


SURE, UNSURE = (math.log(0.9), math.log(0.8)), (math.log(0.5), math.log(0.1))


@pytest.mark.parametrize(
    ("confidence", "weights"), [("none", (1, 1)), ("mean_prob", (0.85, 0.3)), ("sequence_prob", (0.72, 0.05))]
)
def test_judgements_count_by_their_probability(confidence, weights):
    two = {"samples": 2, "temperature": 0.7, "confidence": confidence}
    texts = [("Answer: 18", SURE), ("Answer: 9", UNSURE)]
    verdict, _, _ = run(MultiGenerate(**two), *texts)
    a, b = weights[0] / 2, weights[1] / 2
    assert verdict.scores == pytest.approx((a, 0, b, a), abs=1e-12)
    assert verdict.weights == pytest.approx(weights, abs=1e-12)
    judged, _, _ = run(MultiJudge(**two), ("Correct: 1, 3", SURE), ("Correct: 2", UNSURE))
    assert judged.scores == pytest.approx((a, 0, b, a), abs=1e-12) and judged.weights == ()


@pytest.mark.parametrize("verifier", [MultiGenerate(max_new_tokens=300), MultiJudge(max_new_tokens=300)])
def test_candidates_that_the_context_has_no_room_for_are_not_shown(verifier):
    class Long(Prompts):
        def review(self, kind, problem, solutions, **options):
            prompt = super().review(kind, problem, solutions, **options)
            return Prompt(ids=prompt.ids[:3] * 100 * len(solutions))  # 300 tokens a solution, of 1,000 - 300

    verdict, asked, [request] = run(verifier, "Answer: 18", prompts=Long())
    assert len(asked[0][1]) == 3 and len(request.prompt_ids) == 600
    assert asked[-1][1] == [CANDIDATES[0].text, CANDIDATES[2].text]
    if verifier.answers_itself:
        assert verdict.scores == (1.0, 0.0, 0.0, 1.0), "the one not shown agrees all the same"


@pytest.mark.parametrize("earlier", [0, 1, 4, 5, 11])
def test_earlier_solutions_leave_the_prompt_before_candidates(earlier):
    class Long(Prompts):
        def review(self, kind, problem, solutions, **options):
            super().review(kind, problem, solutions, **options)
            return Prompt(ids=(1,) * 100 * len(solutions))  # room for 7

    texts = [f"old {i}" for i in range(earlier)]
    verdicts = [Verdict(scores=(), texts=tuple(texts))]
    _, asked, [request] = run(
        ReleasedVerifier(max_new_tokens=300), "Answer: 18", prompts=Long(), earlier=verdicts
    )
    wanted = [*texts[max(0, earlier - 4) :], *(c.text for c in CANDIDATES if c.answer is not None)]
    assert len(request.prompt_ids) == 100 * len(wanted)
    assert wanted in [shown for _, shown in asked]


def test_answers_alone_can_be_shown():
    _, asked, _ = run(MultiGenerate(show="answer"), "Answer: 18")
    assert asked[0][1] == ["Answer: 18", "Answer: 9", "Answer: 18.0"]


def test_single_generate_asks_once_a_candidate():
    verdict, asked, _ = run(SingleGenerate(), "Answer: 18", "Answer: 18", "Answer: 7")
    assert [len(shown) for _, shown in asked] == [1, 1, 1]
    assert verdict.scores == (1.0, 0.0, 0.0, 0.0) and verdict.answers == ("18", "18", "7")


def test_fresh_does_not_see_the_candidates():
    verdict, asked, requests = run(Fresh(), "Answer: 9")
    assert asked == [("solve", [])] and requests[0].role == "verifier"
    assert verdict.scores == (0.0, 0.0, 1.0, 0.0) and verdict.answers == ("9",)


@pytest.mark.parametrize(
    ("judge", "texts", "scores"),
    [
        (MultiJudge(), ["Some words.\nCorrect: 1, 3, 9\n"], (1, 0, 0, 1)),  # the second has no answer
        (MultiJudge(judgement=NamedChoice(first=0)), ["Correct: 0, 2\n"], (1, 0, 0, 1)),
        (SingleJudge(), ["Correct: 1", "Correct: 0", "Correct: None"], (1, 0, 0, 0)),
        (SingleJudge(), ["Correct: 0 or 1", "Correct: 2, 1, 0", "Correct: 10"], (0, 0, 1, 0)),
    ],
)
def test_judges_name_numbers_of_what_they_were_shown_or_zero_and_one(judge, texts, scores):
    verdict, _, _ = run(judge, *texts)
    assert verdict.scores == scores and verdict.answers == ()


def test_a_candidate_alone_is_named_too_where_numbers_begin_at_zero():
    judge = MultiJudge(judgement=NamedChoice(first=0))
    assert run(judge, "0", candidates=CANDIDATES[:1])[0].scores == (1.0,)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Correct: 3, 1", (3, 1)),
        ("Correct: None", ()),
        ("Correct: 2\nHm.\nCorrect: 4", (4,)),
        (" 2, 5\nbecause 7", (2, 5)),
        ("", ()),
        (f"Correct: {'1' * 5000}, 2", (2,)),
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
    for bad in ({"samples": 0}, {"samples": 3}, {"show": "pictures"}, {"shots": -1}, {"confidence": "high"},
                {"max_new_tokens": 0}, {"max_new_tokens": "abc"}):  # fmt: skip
        with pytest.raises(UserError, match="expected"):
            MultiGenerate(**bad)


def cut(text):
    return Completion((1,), (0.0,), text, "length", 3)


@pytest.mark.parametrize(
    ("verifier", "text", "score"),
    [
        (MultiGenerate(), "It is 9. No, 3 x 6 = 18", None),  # the last number is no answer yet
        (MultiGenerate(), "Answer: 18", None),  # 180?
        (MultiGenerate(), "Answer: 18\n\nThen", 1.0),
        (MultiJudge(), "Correct: 1", None),  # 1, 2?
        (SingleJudge(), " 1\n\nQuestion", 1.0),
        (ReleasedVerifier(), "Answer: 18", 1.0),  # the public code reads what there is
    ],
)
def test_a_text_that_was_cut_before_its_verdict_judges_nothing(verifier, text, score):
    verdict, _, _ = run(verifier, cut(text), candidates=CANDIDATES[:1])
    assert verdict.scores == (score,) and verdict.agreement == (score,)
    assert all(answer is None for answer in verdict.answers) == (score is None or not verifier.answers_itself)


def test_what_was_cut_leaves_the_other_samples():
    done = Completion((1,), (0.0,), "Answer: 9", "eos", 3)
    two = MultiGenerate(samples=2, temperature=0.7)
    verdict, _, _ = run(two, cut("3 x 6 = 18"), done, candidates=[CANDIDATES[0], CANDIDATES[2]])
    assert verdict.scores == (0.0, 1.0) and verdict.answers == (None, "9")


def verdict_of(text, *alternatives):
    """A judge's text, whose every token has the ``alternatives`` (text, probability)."""
    tokenizer = FakeTokenizer()
    ids = tuple(tokenizer.encode(text, add_special_tokens=False))
    words = [(tokenizer.encode(word, add_special_tokens=False), math.log(p)) for word, p in alternatives]
    top = TopLogprobs(tuple(i[0] for i, _ in words), tuple(p for _, p in words))
    return Completion(ids, (0.0,) * len(ids), text, "eos", 3, top_logprobs=(top,) * len(ids))


def test_the_probability_of_a_verdict():
    verifier = SingleJudge(confidence="verdict_prob")
    one = {"candidates": CANDIDATES[:1]}
    verdict, _, [request] = run(verifier, verdict_of("1", ("1", 0.6), ("0", 0.1), ("x", 0.3)), **one)
    assert verdict.scores == pytest.approx((0.6 / 0.7,)) and verdict.agreement == (1.0,)
    assert request.top_logprobs > 0
    verdict, _, _ = run(verifier, verdict_of("0", ("1", 0.2), ("0", 0.6)), **one)
    assert verdict.scores == pytest.approx((0.25,)) and verdict.agreement == (0.0,)
    verdict, _, _ = run(verifier, verdict_of("x", ("x", 0.9)), **one)
    assert verdict.scores == (0.0,)  # no verdict is likely: as the text says


def test_equal_candidates_are_asked_about_once():
    three = [CANDIDATES[0], CANDIDATES[2], CANDIDATES[0]]
    verdict, _, requests = run(SingleJudge(), "Correct: 1", "Correct: 0", candidates=three)
    assert len(requests) == 2 and verdict.scores == (1.0, 0.0, 1.0) and len(verdict.prompts) == 3


def test_another_model_judges_in_its_own_context():
    other = SimpleNamespace(
        prompts=Prompts(), engine=SimpleNamespace(context_length=99, tokenizer=FakeTokenizer()),
        stream=lambda *stage: 7,
    )  # fmt: skip
    steps = SingleJudge(model="other", max_new_tokens=10).verify(
        PROBLEM, CANDIDATES[:1], context_of(judges={"other": other}), ()
    )
    effect = next(steps)
    assert effect.engine is other.engine and [request.seed for request in effect.requests] == [7]
    assert [kind for kind, _ in other.prompts.asked] == ["single_judge"]
