import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.rewards.final import RULES, FinalAnswer
from soft_reasoning.rewards.judged import Judged
from soft_reasoning.rewards.verifiers import Verdict
from soft_reasoning.types import Candidate, UserError


def candidates(*rows):
    """Rows of (answer, round, reward)."""
    return [Candidate(text="", answer=a, round=r, reward=w) for a, r, w in rows]


def verdicts(*rounds):
    """A verdict a round from its answers, each a text or a pair (text, weight)."""
    pairs = [[a if isinstance(a, tuple) else (a, 1.0) for a in answers] for answers in rounds]
    return [Verdict((), tuple(a for a, _ in row), (), tuple(w for _, w in row)) for row in pairs]


SEEN = candidates(("1", 0, 0.2), ("1", 0, 0.1), ("2", 1, 1.9), (None, 1, 0.0), ("3", 2, 1.0))


@pytest.mark.parametrize(
    ("rule", "verifier", "expected"),
    [
        ("vote", [["3"], ["2"], ["2"]], "2"),  # 1: two, 2: one and two by the verifier
        ("vote", [["1"]], "1"),
        ("reward_vote", [], "2"),
        ("best_reward", [["1"]], "2"),
        ("verifier", [["1"], ["3"], [None]], "3"),
        ("verifier", [[None]], "1"),
    ],
)
def test_rules(rule, verifier, expected):
    assert FinalAnswer(rule).choose(Judged(SEEN, verdicts(*verifier), Grader())) == expected


def test_the_least_rewarded_candidates_do_not_vote():
    assert FinalAnswer("vote").choose(Judged(SEEN, [], Grader())) == "1"
    assert FinalAnswer("vote", keep=0.4).choose(Judged(SEEN, [], Grader())) == "2"
    assert FinalAnswer("vote", keep=0.01).choose(Judged(SEEN, [], Grader())) == "2"  # one is left


def test_numerically_equal_answers_vote_together():
    seen = candidates(("18", 0, 1.0), ("7", 0, 1.0), ("7", 0, 1.0))
    assert FinalAnswer("vote").choose(Judged(seen, verdicts(["18.0"], ["18"]), Grader())) == "18"


def test_verifier_weight_zero_leaves_its_answers_out():
    final = FinalAnswer("vote", verifier_weight=0.0)
    assert final.choose(Judged(SEEN, verdicts(["2"], ["2"], ["2"]), Grader())) == "1"


def test_several_samples_of_one_round_weigh_as_one_answer():
    seen = candidates(("1", 0, 1.0), ("1", 0, 1.0))
    assert FinalAnswer("vote").choose(Judged(seen, verdicts(["2", "2", "2"]), Grader())) == "1"


def test_a_verifier_s_answer_counts_by_its_confidence():
    seen = candidates(("1", 0, 1.0), ("2", 0, 1.0))
    rounds = verdicts([("1", 0.9), ("2", 0.3)], [("2", 0.5)])  # 1: 1 + 0.45, 2: 1 + 0.15 + 0.5
    assert FinalAnswer("vote").choose(Judged(seen, rounds, Grader())) == "2"
    assert FinalAnswer("verifier").choose(Judged(seen, rounds[:1], Grader())) == "1"


def test_an_answer_counts_though_it_is_the_lowest():
    """Where all rewards are alike the majority decides."""
    seen = candidates(("1", 0, 0.2), ("2", 0, 0.2), ("2", 0, 0.2))
    assert FinalAnswer("reward_vote").choose(Judged(seen, [], Grader())) == "2"


@pytest.mark.parametrize("rule", RULES)
def test_nothing_parsed_is_none(rule):
    seen = candidates((None, 0, 0.5), (None, 0, 0.1))
    assert FinalAnswer(rule).choose(Judged(seen, verdicts([None]), Grader())) is None


def test_bad_values_say_what_was_expected():
    with pytest.raises(UserError, match="expected one of vote"):
        FinalAnswer("plurality")
    with pytest.raises(UserError, match="verifier_weight: expected a finite number at least 0"):
        FinalAnswer("vote", verifier_weight=-1)
