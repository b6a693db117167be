import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.judge.final import RULES, FinalAnswer, SearchHistory
from soft_reasoning.judge.verifier import Verdict
from soft_reasoning.types import Candidate, UserError


def candidates(*rows):
    """Rows of (answer, reward)."""
    return [Candidate("", answer, 0, reward=reward) for answer, reward in rows]


def verdicts(*rounds):
    """A verdict a round from its answers, each a text or a pair (text, weight)."""
    pairs = [[a if isinstance(a, tuple) else (a, 1.0) for a in answers] for answers in rounds]
    return [Verdict((), tuple(a for a, _ in row), (), tuple(w for _, w in row)) for row in pairs]


SEEN = candidates(("1", 0.2), ("1", 0.1), ("2", 1.9), (None, 0.0), ("3", 1.0))
WEAK = candidates(("1", 0.9), ("1", 0.9), ("2", 1.7))
SURE_OF_NOTHING = candidates((None, 2.0), ("1", 0.1), ("2", 0.9), (None, 3.0))
ONE_TWO = candidates(("1", 1.0), ("2", 1.0))
ALIKE = candidates(("1", 0.2), ("2", 0.2), ("2", 0.2))
NUMBERS = candidates(("18", 1.0), ("7", 1.0), ("7", 1.0))
SURE = [("1", 0.9), ("2", 0.3)]


@pytest.mark.parametrize(
    ("final", "seen", "verifier", "expected"),
    [
        (FinalAnswer("vote"), SEEN, [["3"], ["2"], ["2"]], "2"),  # 1: two, 2: one and two by the verifier
        (FinalAnswer("vote", verifier_weight=0.0), SEEN, [["2"], ["2"], ["2"]], "1"),
        (FinalAnswer("vote"), SEEN, [["1"]], "1"),
        (FinalAnswer("vote"), SEEN, [], "1"),
        (FinalAnswer("best_reward"), SURE_OF_NOTHING, [], "2"),  # of those with an answer
        (FinalAnswer("vote"), NUMBERS, [["18.0"], ["18"]], "18"),  # numerically equal
        (FinalAnswer("vote"), SEEN[:2], [["2", "2", "2"]], "1"),  # samples of a round weigh as one answer
        (FinalAnswer("vote"), ONE_TWO, [SURE, [("2", 0.5)]], "2"),  # 1: 1 + 0.45, 2: 1 + 0.15 + 0.5
        (FinalAnswer("reward_vote"), SEEN, [], "2"),
        (FinalAnswer("reward_vote"), ALIKE, [], "2"),  # the lowest reward counts, too
        (FinalAnswer("weighted_vote"), WEAK, [], "1"),  # 0.9 + 0.9 against 1.7
        (FinalAnswer("weighted_vote"), candidates(("1", -3.0), ("2", -1.0), ("2", -2.0)), [], "2"),
        (FinalAnswer("best_reward"), SEEN, [["1"]], "2"),
        (FinalAnswer("verifier"), SEEN, [["1"], ["3"], [None]], "3"),
        (FinalAnswer("verifier"), SEEN, [[None]], "1"),
        (FinalAnswer("verifier"), ONE_TWO, [SURE], "1"),
        *((FinalAnswer(rule), candidates((None, 0.5), (None, 0.1)), [[None]], None) for rule in RULES),
    ],
)
def test_the_final_answer(final, seen, verifier, expected):
    assert final.choose(SearchHistory(seen, verdicts(*verifier), Grader())) == expected


def test_bad_values_say_what_was_expected():
    with pytest.raises(UserError, match="expected one of vote"):
        FinalAnswer("plurality")
    with pytest.raises(UserError, match="verifier_weight: expected a finite number at least 0"):
        FinalAnswer("vote", verifier_weight=-1)
