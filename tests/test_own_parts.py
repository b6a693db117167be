"""A user's own verifier, reward, final rule, acquisition function, stopping rule and method from Python."""

import numpy
import pytest
import torch
from botorch.acquisition import AcquisitionFunction, UpperConfidenceBound

from soft_reasoning import Result, SoftReasoner, UserError
from soft_reasoning.judge.reward import Reward
from soft_reasoning.judge.verifier import Oracle, Verdict
from soft_reasoning.schedule import effects
from soft_reasoning.schedule.effects import answers
from soft_reasoning.search.stopping import Stopping
from soft_reasoning.types import Effect, Generate, Request

QUESTION = "Sam has 8 cards. 1) Sam gets 10. 2) Sam loses 5. How many cards does Sam have now?"


@pytest.fixture(scope="module")
def reasoner():
    with SoftReasoner.from_pretrained(
        "demo", k=3, rounds=1, max_new_tokens=40, stopping="none", engine="fake"
    ) as opened:
        yield opened


class Doubt(Reward):
    def __call__(self, verified, coherence):
        return -coherence


class Tries:
    rule = "tries"

    def choose(self, history):
        return f"{len(history.candidates)} tries"


class Twice:
    def reason(self, rewards_by_round, **facts):
        return "enough" if len(rewards_by_round) == 2 else None


def scores_of(solution):
    return [candidate.verified for candidate in solution.candidates]


def test_a_function_scores_each_round(reasoner):
    rounds = []

    def longest(question, candidates):
        rounds.append((question, len(candidates)))
        return [min(len(candidate.text), 1000) / 1000 for candidate in candidates]

    solution = reasoner.solve(QUESTION, verifier=longest)
    assert rounds == [(QUESTION, 3)] * 2
    lengths = [min(len(candidate.text), 1000) / 1000 for candidate in solution.candidates]
    assert scores_of(solution) == lengths and len(set(lengths)) > 1
    assert all(c.reward == pytest.approx(c.verified + c.coherence) for c in solution.candidates)
    reverse = reasoner.solve(QUESTION, verifier=lambda _, round: [1 - s for s in longest(_, round)])
    assert scores_of(reverse)[:3] == [1 - score for score in lengths[:3]]


def test_an_object_and_a_name_judge_too(reasoner):
    class Always:
        name = "always"

        def verify(self, problem, candidates, context, earlier):
            return Verdict((0.25,) * len(candidates))

    assert set(scores_of(reasoner.solve(QUESTION, verifier=Always()))) == {0.25}
    assert set(scores_of(reasoner.solve(QUESTION, verifier="none"))) == {None}
    with SoftReasoner.from_pretrained("demo", verifier=Always(), engine="fake") as other:
        assert set(scores_of(other.solve(QUESTION))) == {0.25}
        assert len(other.solve(QUESTION, method="cot").candidates) == 1  # which has no verifier


def test_a_verifier_may_ask_the_model_first_and_returns_a_verdict(reasoner):
    class Asks:
        name = "asks"

        def verify(self, problem, candidates, context, earlier):
            prompt = context.prompts.solve(problem)
            [text] = yield Generate([Request(prompt.ids, max_new_tokens=5, role="verifier")])
            return Verdict((0.5,) * len(candidates), texts=(text.text,))

    class Wrong:
        name = "wrong"

        def verify(self, problem, candidates, context, earlier):
            return [1.0] * len(candidates)

    solution = reasoner.solve(QUESTION, verifier=Asks(), rounds=0)
    assert set(scores_of(solution)) == {0.5} and solution.usage["verifier"].sequences == 1
    with pytest.raises(UserError, match=r"verifier=wrong: expected verify to return a Verdict.*got \[1.0, "):
        reasoner.solve(QUESTION, verifier=Wrong())


def test_reward_final_stopping_and_acquisition(reasoner):
    solution = reasoner.solve(QUESTION, reward=Doubt())
    assert all(c.reward == -c.coherence for c in solution.candidates)
    assert reasoner.solve(QUESTION, final=Tries()).answer == "6 tries"
    stopped = reasoner.solve(QUESTION, rounds=3, stopping=Twice())
    assert (len(stopped.rounds), stopped.ended) == (2, "enough")
    assert len(reasoner.solve(QUESTION, stopping=Stopping(rule="none", rounds=2)).rounds) == 3
    seen = []

    def cautious(model, **_):
        seen.append(model)
        return UpperConfidenceBound(model, beta=0.1)

    points = [c.u for c in reasoner.solve(QUESTION, acquisition=cautious).candidates]
    usual = [c.u for c in reasoner.solve(QUESTION).candidates]
    assert seen and points[:3] == usual[:3] and points[3:] != usual[3:]


class Method:
    name = "mine"

    def solve(self, problem):
        yield


class Plain:
    name = "plain"

    def solve(self, problem, context):
        return Result(None, ())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"verifier": Oracle}, "got the class Oracle; pass an instance"),
        ({"method": "cot", "verifier": lambda q, c: []}, "method that reads it, got method=cot; leave"),
        ({"verifier": lambda q, c: [1]}, r"verifier: expected 3 scores, one for each candidate, got \[1\]"),
        ({"verifier": lambda q, c: [7, 0, 0]}, "score: expected a finite number at least 0 at most 1, got 7"),
        ({"reward": lambda score, coherence: 1.0}, "reward: expected a name, or an object with coherence_of"),
        ({"reward": Doubt}, "reward: expected a name, or an object with coherence_of like .* got <class"),
        ({"final": 5}, "final: expected a name, or an object with choose"),
        ({"stopping": lambda rewards: True}, "stopping: expected a name, or an object with reason"),
        ({"acquisition": 5}, "acquisition: expected a class of acquisition functions"),
        ({"method": Method}, "method: expected .*got the class Method; pass an instance"),
        ({"method": Method()}, "whose solve does not take them"),
        ({"method": object()}, "method: expected a name, or an object with a name and solve"),
        ({"method": Plain()}, "to yield effects, got Result from Plain.solve"),
    ],
)
def test_what_cannot_be_a_part_is_one_line_and_nothing_hangs(reasoner, options, message):
    with pytest.raises(UserError, match=message) as error:
        reasoner.solve(QUESTION, **options)
    assert len(str(error.value).splitlines()) == 1
    assert reasoner.solve(QUESTION).candidates


def verifier(verify, name="mine"):
    return type("Mine", (), {"name": name, "verify": verify})()


class Nameless:
    def verify(self, problem, candidates, context, earlier):
        return None


class Verdictless:
    name = "verdictless"


def giving(*scores, **more):
    """A verifier whose verdict has these scores and more."""
    return verifier(lambda self, problem, candidates, context, earlier: Verdict(scores, **more))


def yielding(self, problem, candidates, context, earlier):
    yield "a question"


def no_verdict(self, problem, candidates, context, earlier):
    yield Generate([])


LENGTH = r"verifier=mine: expected a Verdict with 3 scores, one for each candidate, got "
SCORE = r"verifier=mine: score: expected a finite number at least 0 at most 1, got "
ARITY = r"verifier=mine: expected verify\(problem, candidates, context, earlier\), got one that does not take"
VERIFIERS = {
    "nothing": (verifier(lambda self, p, c, x, e: None), "expected verify to return a Verdict.*got None"),
    "a number": (verifier(lambda self, p, c, x, e: 1), "expected verify to return a Verdict.*got 1"),
    "a list": (verifier(lambda self, p, c, x, e: [1.0] * 3), "expected verify to return a Verdict"),
    "the class": (verifier(lambda self, p, c, x, e: Verdict), "expected verify to return a Verdict"),
    "yields, returns nothing": (verifier(no_verdict), "expected verify to return a Verdict.*got None"),
    "yields a text": (verifier(yielding), "expected an effect .*Generate, Round.*got str"),
    "nameless": (Nameless(), "verifier=Nameless: expected verify to return a Verdict"),
    "no verify": (Verdictless(), "verifier: expected a function of a question"),
    "too few": (giving(1.0), LENGTH + r"\(1.0,\)"),
    "too many": (giving(1.0, 0.0, 1.0, 0.0), LENGTH),
    "none": (giving(), LENGTH + r"\(\)"),
    "no tuple": (verifier(lambda self, p, c, x, e: Verdict(0.5)), LENGTH + "0.5"),
    "a generator": (verifier(lambda self, p, c, x, e: Verdict(1.0 for _ in c)), LENGTH),
    "text": (giving("1", "0", "1"), SCORE + "'1'"),
    "nan": (giving(float("nan"), 0.0, 0.0), SCORE + "nan"),
    "above 1": (giving(0.0, 7, 0.0), SCORE + "7"),
    "below 0": (giving(0.0, 0.0, -0.1), SCORE + "-0.1"),
    "complex": (giving(0.0, 0.0, 1j), SCORE + "1j"),
    "agreement": (giving(0.0, 0.0, 0.0, agreement=(1.0,)), LENGTH + r"\(1.0,\)"),
    "answers": (giving(0.0, 0.0, 0.0, answers=(7,)), "expected answers that are strings or None, got 7"),
    "weights": (giving(0.0, 0.0, 0.0, answers=("7", "8"), weights=(1.0,)), "mine: expected 2 weights, one"),
    "three parameters": (verifier(lambda self, problem, candidates: None), ARITY),
    "no parameters": (verifier(lambda self: None), ARITY),
    "five parameters": (verifier(lambda self, p, c, x, e, more: None), ARITY),
    "keywords only": (verifier(lambda self, *, problem, candidates, context, earlier: None), ARITY),
}


@pytest.mark.parametrize("name", VERIFIERS)
def test_a_verifier_class_that_errs_is_told_in_one_line(reasoner, name):
    mine, message = VERIFIERS[name]
    with pytest.raises(UserError, match=message) as error:
        reasoner.solve(QUESTION, verifier=mine)
    assert len(str(error.value).splitlines()) == 1
    assert reasoner.solve(QUESTION).candidates


def test_scores_of_numpy_and_answers_without_weights_are_taken(reasoner):
    scores = (numpy.float32(0.5), torch.tensor(1.0), True)
    solution = reasoner.solve(QUESTION, verifier=giving(*scores, answers=("7", None)), rounds=0)
    assert scores_of(solution) == [0.5, 1.0, 1.0] and {*map(type, scores_of(solution))} == {float}


def method(solve):
    return type("Mine", (), {"name": "mine", "solve": solve})()


def returning(value):
    def solve(self, problem, context):
        yield Generate([])
        return value

    return method(solve)


def yielded(effect):
    def solve(self, problem, context):
        yield effect()

    return method(solve)


REQUESTS = "Generate: expected a list of Requests, got "
RETURN, ANSWER = (
    r"method: expected Mine.solve to return a Result, got ",
    "whose answer is a string or None, got ",
)
METHODS = {
    "nothing": (returning(None), RETURN + "None"),
    "an integer": (returning(7), RETURN + "7"),
    "a text": (returning("7"), RETURN + "'7'"),
    "the class": (returning(Result), RETURN + "<class"),
    "a tuple": (returning(("7", ())), RETURN),
    "a number as answer": (returning(Result(7, ())), ANSWER + "7"),
    "an answer of bytes": (returning(Result(b"7", ())), ANSWER + "b'7'"),
    "no candidates": (returning(Result("7", None)), "whose candidates are Candidates, got None"),
    "texts as candidates": (returning(Result("7", ("7",))), "whose candidates are Candidates, got .'7'"),
    "a number of candidates": (returning(Result("7", 3)), "whose candidates are Candidates, got 3"),
    "yields nothing": (yielded(lambda: None), "expected an effect .*got NoneType"),
    "yields a text": (yielded(lambda: "text"), "expected an effect .*got str"),
    "yields a request": (yielded(lambda: Request((1,))), "expected an effect .*got Request"),
    "yields the class": (yielded(lambda: Generate), "expected an effect .*got type"),
    "one request": (yielded(lambda: Generate(Request((1,)))), REQUESTS + "Request"),
    "no requests": (yielded(lambda: Generate(None)), REQUESTS + "None"),
    "prompts": (yielded(lambda: Generate([(1, 2)])), REQUESTS + r"\[\(1, 2\)\]"),
    "a text of it": (yielded(lambda: Generate("ask")), REQUESTS + "'ask'"),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_errs_is_told_in_one_line(reasoner, name):
    mine, message = METHODS[name]
    with pytest.raises(UserError, match=message) as error:
        reasoner.solve(QUESTION, method=mine)
    assert len(str(error.value).splitlines()) == 1
    assert reasoner.solve(QUESTION).candidates


class Ask(Effect):
    """An effect whose function a test registers."""


ANSWERS = {
    "short": ([], r"\[\]"),
    "long": ([1, 2, 3], r"\[1, 2, 3\]"),
    "nothing": (None, "None"),
    "a number": (5, "5"),
    "a text": ("ab", "'ab'"),
    "a mapping": ({}, r"\{\}"),
    "a set": ({1}, r"\{1\}"),
    "a generator": ((i for i in range(1)), "<generator"),
    "a tensor": (torch.zeros(1), "tensor"),
    "the engine": (lambda: 1, "<function"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_an_effect_s_function_that_errs_is_told_in_one_line(reasoner, monkeypatch, name):
    monkeypatch.setattr("soft_reasoning.schedule.effects._HANDLERS", dict(effects._HANDLERS))
    given, shown = ANSWERS[name]

    @answers(Ask)
    def short(jobs, engine):
        return given

    with pytest.raises(UserError, match=f"short: expected a list of 1 answers to Ask.*got {shown}") as error:
        reasoner.solve(QUESTION, method=yielded(Ask))
    assert len(str(error.value).splitlines()) == 1
    assert reasoner.solve(QUESTION).candidates


SHAPES = {
    "q stays": lambda X: X.mean(-1),
    "d stays": lambda X: X.squeeze(-2),
    "turned": lambda X: X.mean((-1, -2)).mT,
    "flat": lambda X: X.flatten(),
    "a number": lambda X: X.mean(),
    "problems lost": lambda X: X.mean((-1, -2))[:, :1],
    "points lost": lambda X: X.mean((-1, -2))[:1],
    "a point less": lambda X: X.mean((-1, -2))[1:],
    "one more": lambda X: X.mean((-1, -2)).unsqueeze(0),
    "one more at the end": lambda X: X.mean((-1, -2)).unsqueeze(-1),
    "over points": lambda X: X.mean((0, -1, -2)),
}
"""Values of another shape than (points, problems), from X (points, problems, 1, d)."""


@pytest.mark.parametrize("name", SHAPES)
def test_an_acquisition_function_of_another_shape_is_told_in_one_line(reasoner, name):
    class Mine(AcquisitionFunction):
        def forward(self, X):
            return SHAPES[name](X)

    wanted = r"acquisition: expected .*got Mine \(expected values \(points, problems\) = \(3, [12]\) at X"
    with pytest.raises(UserError, match=wanted) as error:
        reasoner.solve(QUESTION, acquisition=Mine)
    assert len(str(error.value).splitlines()) == 1
