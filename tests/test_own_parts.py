"""A user's own verifier, reward, final rule, acquisition function, stopping rule and method from Python."""

import pytest
from botorch.acquisition import UpperConfidenceBound

from soft_reasoning import Result, SoftReasoner, UserError
from soft_reasoning.rewards.verifiers import Oracle, Verdict
from soft_reasoning.types import Generate, Request

QUESTION = "Sam has 8 cards. 1) Sam gets 10. 2) Sam loses 5. How many cards does Sam have now?"


@pytest.fixture(scope="module")
def reasoner():
    with SoftReasoner.from_pretrained(
        "demo", k=3, rounds=1, max_new_tokens=40, stopping="none", overrides=["engine=fake"]
    ) as opened:
        yield opened


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
    with SoftReasoner.from_pretrained("demo", verifier=Always(), overrides=["engine=fake"]) as other:
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
    solution = reasoner.solve(QUESTION, reward=lambda score, coherence: -coherence)
    assert all(c.reward == -c.coherence for c in solution.candidates)
    assert reasoner.solve(QUESTION, final=lambda candidates: f"{len(candidates)} tries").answer == "6 tries"
    stopped = reasoner.solve(QUESTION, rounds=3, stopping=lambda rewards: len(rewards) == 2)
    assert (len(stopped.rounds), stopped.ended) == (2, "converged")
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
        ({"verifier": Oracle}, "got the class Oracle; make an object of it"),
        ({"method": "cot", "verifier": lambda q, c: []}, "method that has it, got method=cot; leave"),
        ({"verifier": lambda q, c: [1]}, r"verifier: expected 3 scores, one for each candidate, got \[1\]"),
        ({"verifier": lambda q, c: [7, 0, 0]}, "score: expected a finite number at least 0 at most 1, got 7"),
        ({"acquisition": 5}, "acquisition: expected a class of acquisition functions"),
        ({"method": Method}, "method: expected .*got the class Method; make an object of it"),
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
