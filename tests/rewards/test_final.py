import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.rewards.final import RULES, FinalAnswer
from soft_reasoning.types import Candidate, UserError


def candidates(*rows):
    """Rows of (answer, round, reward)."""
    return [Candidate(text="", answer=a, round=r, reward=w) for a, r, w in rows]


SEEN = candidates(("1", 0, 0.2), ("1", 0, 0.1), ("2", 1, 1.9), (None, 1, 0.0), ("3", 2, 1.0))


@pytest.mark.parametrize(
    ("rule", "verifier", "posterior", "expected"),
    [
        ("vote", [["3"], ["2"], ["2"]], None, "2"),  # 1: two, 2: one and two by the verifier
        ("vote", [["1"]], None, "1"),
        ("reward_vote", [], None, "2"),
        ("round_vote", [], None, "3"),  # round 2 counts 3, two firsts count 2, one second counts 2
        ("posterior_vote", [], [0.0, 0.0, 0.1, 0.0, 0.9], "3"),
        ("best_posterior_mean", [], [0.0, 0.5, 0.1, 2.0, 0.4], "1"),  # the unparsed one cannot win
        ("best_reward", [["1"]], None, "2"),
        ("verifier", [["1"], ["3"], [None]], None, "3"),
        ("verifier", [[None]], None, "1"),
    ],
)
def test_rules(rule, verifier, posterior, expected):
    final = FinalAnswer(rule)
    assert final.choose(SEEN, verifier, Grader(), "number", posterior) == expected


def test_numerically_equal_answers_vote_together():
    seen = candidates(("18", 0, 1.0), ("7", 0, 1.0), ("7", 0, 1.0))
    assert FinalAnswer("vote").choose(seen, [["18.0"], ["18"]], Grader(), "number") == "18"


def test_verifier_weight_zero_leaves_its_answers_out():
    final = FinalAnswer("vote", verifier_weight=0.0)
    assert final.choose(SEEN, [["2"], ["2"], ["2"]], Grader(), "number") == "1"


def test_several_samples_of_one_round_weigh_as_one_answer():
    seen = candidates(("1", 0, 1.0), ("1", 0, 1.0))
    assert FinalAnswer("vote").choose(seen, [["2", "2", "2"]], Grader(), "number") == "1"


@pytest.mark.parametrize("rule", RULES)
def test_nothing_parsed_is_none(rule):
    seen = candidates((None, 0, 0.5), (None, 0, 0.1))
    assert FinalAnswer(rule).choose(seen, [[None]], Grader(), "number", [0.0, 1.0]) is None


def test_bad_values_say_what_was_expected():
    with pytest.raises(UserError, match="expected one of vote"):
        FinalAnswer("plurality")
    with pytest.raises(UserError, match="expected 0 or more"):
        FinalAnswer("vote", verifier_weight=-1)
