"""Verifiers against scripted completions: what is shown, what is parsed, what is scored."""

import math
from types import SimpleNamespace

import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.judge.model_verifier import verdict_numbers
from soft_reasoning.judge.verifier import NoVerifier, Oracle, Verdict, verify
from soft_reasoning.schedule.method import Generate
from soft_reasoning.types import Candidate, Completion, Problem, Prompt, TopLogprobs, UserError, seed_for
from tests.judge.named import Fresh, MultiGenerate, MultiJudge, ReleasedVerifier, SingleGenerate, SingleJudge

PROBLEM = Problem("p", "How many?", "18")
CANDIDATES = [
    Candidate("3 x 6 = 18. Answer: 18", "18", 0),
    Candidate("garbage", None, 0),
    Candidate("3 + 6 = 9. Answer: 9", "9", 0),
    Candidate("Answer: 18.0", "18.0", 0),
]


class Prompts:
    """Prompts that keep what they were ``asked`` to show; a review has ``length`` equal tokens a solution."""

    stop = ("Question:",)

    neutral = False

    def __init__(self, length=1, first=1):
        self.asked, self.length = [], length
        self.wording = SimpleNamespace(review=lambda kind: SimpleNamespace(first=first))

    def split(self, text, problem):
        return "", text

    def solve(self, problem):
        assert problem.gold is None
        self.asked.append(("solve", []))
        return Prompt(ids=(1, 2))

    def review(self, kind, problem, solutions, **options):
        assert problem.gold is None, "a verifier must not see the gold answer"
        self.asked.append((kind, list(solutions)))
        ids = [len(text) for text in solutions for _ in range(self.length)]
        return Prompt(ids=tuple(ids), stop=self.stop)


def context_of(prompts=None, other=None):
    context = SimpleNamespace(
        prompts=prompts or Prompts(),
        grader=Grader(),
        stream=lambda *stage: seed_for(0, *stage),
        engine=SimpleNamespace(context_length=1000, tokenizer=FakeTokenizer()),
    )
    context.judge = lambda name: other if name else context
    return context


def outcome(steps, texts):
    """What ``steps`` return and their requests, with ``texts`` as the model's completions in turn; a text
    may come with its tokens' log-probabilities, or be a completion."""
    requests = []
    try:
        effect = next(steps)
        while True:
            assert isinstance(effect, Generate)
            batch = texts[len(requests) : len(requests) + len(effect.requests)]
            requests += effect.requests
            effect = steps.send([completion(text) for text in batch])
    except StopIteration as stop:
        return stop.value, requests


def run(verifier, *texts, candidates=CANDIDATES, problem=PROBLEM, earlier=(), prompts=None):
    """The verdict, what was asked and the requests."""
    context = context_of(prompts)
    verdict, requests = outcome(verify(verifier, problem, candidates, context, earlier), texts)
    return verdict, context.prompts.asked, requests


def completion(text, logprobs=(0.0,)):
    if isinstance(text, Completion):
        return text
    if isinstance(text, tuple):
        text, logprobs = text
    return Completion((1,) * len(logprobs), logprobs, text, "eos", 3)


SHOWN = [candidate.text for candidate in CANDIDATES if candidate.answer is not None]
ALONE = [("single_generate", [text]) for text in SHOWN]
ANSWERS = ["Answer: 18", "Answer: 9", "Answer: 18.0"]
WORDY = "6 + 6 + 6 = 18. Answer: 18"


@pytest.mark.parametrize(
    ("verifier", "texts", "shown", "scores", "answers"),
    [
        (MultiGenerate(), [WORDY], [("multi_generate", SHOWN)], (1, 0, 0, 1), ("18",)),
        (MultiGenerate(show="answer"), [WORDY], [("multi_generate", ANSWERS)], (1, 0, 0, 1), ("18",)),
        (SingleGenerate(), [WORDY, WORDY, "Answer: 7"], ALONE, (1, 0, 0, 0), ("18", "18", "7")),
        (Fresh(), ["Answer: 9"], [("solve", [])], (0, 0, 1, 0), ("9",)),
        (NoVerifier(), [], [], (None,) * 4, ()),
        (Oracle(), [], [], (1, 0, 0, 1), ()),
    ],
)
def test_what_is_shown_and_how_it_scores(verifier, texts, shown, scores, answers):
    verdict, asked, requests = run(verifier, *texts)
    assert asked == shown and verdict.scores == scores and verdict.answers == answers
    assert {request.role for request in requests} <= {"verifier"} and len(requests) == len(texts)


def test_several_samples_average_and_have_seeds_of_their_own():
    verdict, _, requests = run(MultiGenerate(samples=4, temperature=0.7), *["Answer: 18"] * 3, "Answer: 9")
    assert verdict.scores == (0.75, 0.0, 0.25, 0.75)
    assert len({r.seed for r in requests}) == 4 and requests[0].sampling.temperature == 0.7
    _, _, later = run(MultiGenerate(samples=4, temperature=0.7), *["Answer: 18"] * 4, earlier=[Verdict(())])
    assert not {r.seed for r in requests} & {r.seed for r in later}, "every round draws anew"


SURE, UNSURE = (math.log(0.9), math.log(0.8)), (math.log(0.5), math.log(0.1))


@pytest.mark.parametrize(("confidence", "weights"), [("none", (1, 1)), ("sequence_prob", (0.72, 0.05))])
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
    long = Prompts(length=300)  # of 1,000 - 300
    verdict, asked, [request] = run(verifier, "Answer: 18", prompts=long)
    assert len(asked[0][1]) == 3 and len(request.prompt_ids) == 600
    assert asked[-1][1] == [CANDIDATES[0].text, CANDIDATES[2].text]
    if verifier.answers_itself:
        assert verdict.scores == (1.0, 0.0, 0.0, 1.0), "the candidate not shown agrees all the same"
    else:
        named, _, _ = run(verifier, "Correct: 1, 3", prompts=long)
        assert named.scores == (1.0, 0.0, 0.0, None) == named.agreement, "it cannot name what it did not see"


@pytest.mark.parametrize("earlier", [0, 1, 4, 5, 11])
def test_earlier_solutions_leave_the_prompt_before_candidates(earlier):
    texts = [f"old {i}" for i in range(earlier)]
    verdicts = [Verdict(scores=(), texts=tuple(texts))]
    verifier, long = ReleasedVerifier(max_new_tokens=300), Prompts(length=100)  # room for 7
    _, asked, [request] = run(verifier, "Answer: 18", prompts=long, earlier=verdicts)
    wanted = [*texts[max(0, earlier - 4) :], *(c.text for c in CANDIDATES if c.answer is not None)]
    assert len(request.prompt_ids) == 100 * len(wanted)
    assert wanted in [shown for _, shown in asked]


@pytest.mark.parametrize(
    ("judge", "first", "texts", "scores"),
    [
        (MultiJudge(), 1, ["Some words.\nCorrect: 1, 3, 9\n"], (1, 0, 0, 1)),  # the second has no answer
        (MultiJudge(), 0, ["Correct: 0, 2\n"], (1, 0, 0, 1)),
        (SingleJudge(), 1, ["Correct: 1", "Correct: 0", "Correct: None"], (1, 0, 0, 0)),
        (SingleJudge(), 1, ["Correct: 0 or 1", "Correct: 2, 1, 0", "Correct: 10"], (0, 0, 1, 0)),
    ],
)
def test_judges_name_numbers_of_what_they_were_shown_or_zero_and_one(judge, first, texts, scores):
    verdict, _, _ = run(judge, *texts, prompts=Prompts(first=first))
    assert verdict.scores == scores and verdict.answers == ()


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Correct: 3, 1", (3, 1)),
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


def test_the_oracle_wants_a_gold_answer():
    with pytest.raises(UserError, match="gold"):
        run(Oracle(), problem=Problem("p", "How many?"))


def test_bad_values_are_one_line():
    for bad in (
        {"samples": 0},
        {"samples": 3},
        {"show": "pictures"},
        {"shots": -1},
        {"confidence": "high"},
        {"max_new_tokens": "abc"},
    ):
        with pytest.raises(UserError, match="expected"):
            MultiGenerate(**bad)
    for verifier in (SingleGenerate, MultiJudge):  # no verdict, and no verdict about one candidate
        with pytest.raises(UserError, match="confidence: expected .* verifier=probability"):
            verifier(confidence="verdict_prob")


def cut(text):
    return Completion((1,), (0.0,), text, "length", 3)


@pytest.mark.parametrize(
    ("verifier", "text", "score"),
    [
        (MultiGenerate(), "It is 9. No, 3 x 6 = 18", None),  # the last number is no answer yet
        (MultiGenerate(), "Answer: 18", None),  # 180?
        (MultiGenerate(), "Answer:\n18\n", 1.0),
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
    single = {"candidates": CANDIDATES[:1]}
    verdict, _, [request] = run(verifier, verdict_of("1", ("1", 0.6), ("0", 0.1), ("x", 0.3)), **single)
    assert verdict.scores == pytest.approx((0.6 / 0.7,)) and verdict.agreement == (1.0,)
    assert request.top_logprobs > 0
    verdict, _, _ = run(verifier, verdict_of("0", ("1", 0.2), ("0", 0.6)), **single)
    assert verdict.scores == pytest.approx((0.25,)) and verdict.agreement == (0.0,)
    verdict, _, _ = run(verifier, verdict_of("x", ("x", 0.9)), **single)
    assert verdict.scores == (0.0,)  # no verdict is likely: as the text says


def test_equal_candidates_are_asked_about_once():
    three = [CANDIDATES[0], CANDIDATES[2], CANDIDATES[0]]
    verdict, _, requests = run(SingleJudge(), "Correct: 1", "Correct: 0", candidates=three)
    assert len(requests) == 2 and verdict.scores == (1.0, 0.0, 1.0) and len(verdict.prompts) == 3


def test_another_model_judges_in_its_own_context():
    other = SimpleNamespace(
        prompts=Prompts(),
        engine=SimpleNamespace(context_length=99, tokenizer=FakeTokenizer()),
        stream=lambda *stage: 7,
    )
    steps = SingleJudge(model="other", max_new_tokens=10).verify(
        PROBLEM, CANDIDATES[:1], context_of(other=other), ()
    )
    effect = next(steps)
    assert effect.engine is other.engine and [request.seed for request in effect.requests] == [7]
    assert [kind for kind, _ in other.prompts.asked] == ["single_judge"]
