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
from soft_reasoning.schedule.method import Effect, Generate
from soft_reasoning.search.stopping import Stopping
from soft_reasoning.types import Request

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


def test_a_verifier_may_ask_the_model_first(reasoner):
    class Asks:
        name = "asks"

        def verify(self, problem, candidates, context, earlier):
            prompt = context.prompts.solve(problem)
            [text] = yield Generate([Request(prompt.ids, max_new_tokens=5, role="verifier")])
            return Verdict((0.5,) * len(candidates), texts=(text.text,))

    solution = reasoner.solve(QUESTION, verifier=Asks(), rounds=0)
    assert set(scores_of(solution)) == {0.5} and solution.usage["verifier"].sequences == 1


def test_reward_final_stopping_and_acquisition(reasoner):
    solution = reasoner.solve(QUESTION, reward=Doubt())
    assert all(c.reward == -c.coherence for c in solution.candidates)
    assert reasoner.solve(QUESTION, final=Tries()).answer == "6 tries"
    stopped = reasoner.solve(QUESTION, stopping=Twice())
    assert (len(stopped.rounds), stopped.ended) == (2, "enough")
    assert len(reasoner.solve(QUESTION, stopping=Stopping(rule="none", rounds=2)).rounds) == 3
    seen = []

    def cautious(model, **_):
        seen.append(model)
        return UpperConfidenceBound(model, beta=0.1)

    points = [c.u for c in reasoner.solve(QUESTION, acquisition=cautious).candidates]
    usual = [c.u for c in reasoner.solve(QUESTION).candidates]
    assert seen and points[:3] == usual[:3] and points[3:] != usual[3:]


def verifier(verify):
    return type("Mine", (), {"name": "mine", "verify": verify})()


def giving(*scores, **more):
    """A verifier whose verdict has these scores and more."""
    return verifier(lambda self, problem, candidates, context, earlier: Verdict(scores, **more))


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


class OverPoints(AcquisitionFunction):
    """Its values have another shape than (points, problems)."""

    def forward(self, X):
        return X.mean((0, -1, -2))


WRONG = {
    "a class": ({"verifier": Oracle}, "got the class Oracle; pass an instance"),
    "no such part": ({"method": "cot", "verifier": lambda q, c: []}, "that reads it, got method=cot; leave"),
    "a score too few": ({"verifier": lambda q, c: [1]}, "verifier=function: expected 3 scores"),
    "no verify": ({"verifier": object()}, "verifier: expected a function of a question"),
    "a list of scores": (
        {"verifier": verifier(lambda self, p, c, x, e: [1.0] * 3)},
        "expected verify to return a Verdict",
    ),
    "a score above 1": ({"verifier": giving(0.0, 7, 0.0)}, "score: expected a finite number .* got 7"),
    "a number that decodes": ({"decoding": 5}, "decoding: expected an object with temperature, got 5"),
    "no solve": ({"method": object()}, "method: expected a name, or an object with a name and solve"),
    "no generator": (
        {"method": method(lambda self, problem, context: Result(None, ()))},
        "to yield effects, got Result from Mine.solve",
    ),
    "a number as answer": ({"method": returning(Result(7, ()))}, "answer is a string or None, got 7"),
    "texts as candidates": ({"method": returning(Result("7", ("7",)))}, "are Candidates, got .'7'"),
    "yields a text": ({"method": yielded(str)}, "expected an effect .*Generate, Round.*got str"),
    "yields a request": (
        {"method": yielded(lambda: Generate(Request((1,))))},
        "expected a list of Requests, got Request",
    ),
    "values over points": (
        {"acquisition": OverPoints},
        r"acquisition: expected .*got OverP.* \(expected values",
    ),
}


def refused_in_one_line(reasoner, options, message):
    with pytest.raises(UserError, match=message) as error:
        reasoner.solve(QUESTION, **options)
    assert len(str(error.value).splitlines()) == 1
    assert reasoner.solve(QUESTION).candidates  # nothing hangs


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_a_part_is_one_line(reasoner, name):
    refused_in_one_line(reasoner, *WRONG[name])


def test_scores_of_numpy_and_answers_without_weights_are_taken(reasoner):
    scores = (numpy.float32(0.5), torch.tensor(1.0), True)
    solution = reasoner.solve(QUESTION, verifier=giving(*scores, answers=("7", None)), rounds=0)
    assert scores_of(solution) == [0.5, 1.0, 1.0] and {*map(type, scores_of(solution))} == {float}


class Ask(Effect):
    """An effect whose function a test registers."""


def test_an_effect_s_function_that_errs_is_told_in_one_line(reasoner, monkeypatch):
    monkeypatch.setattr("soft_reasoning.schedule.effects._HANDLERS", dict(effects._HANDLERS))

    @answers(Ask)
    def short(jobs, engine):
        return []

    message = r"short: expected a list of 1 answers to Ask.*got \[\]"
    refused_in_one_line(reasoner, {"method": yielded(Ask)}, message)
