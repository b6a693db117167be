"""What a run had after each round, over all problems."""

import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.judge.final import FinalAnswer
from soft_reasoning.lab.reports.comparison import mean_curve
from soft_reasoning.lab.runs.grading import grade
from soft_reasoning.lab.runs.records import Record
from soft_reasoning.types import Candidate, Problem, Result, Usage
from tests.lab.runs.world import summarise

VOTE = FinalAnswer("vote", verifier_weight=1.0)


def record(name, final, *rounds, verifier=(), gold="3"):
    """A problem with the right answer 3: the candidates' answers of each round, with growing rewards."""
    candidates = tuple(
        Candidate("", answer, number, reward=number + 0.5, generated_tokens=10)
        for number, answers in enumerate(rounds)
        for answer in answers
    )
    verdicts = [{"answers": [answer], "weights": [1.0], "texts": [answer]} for answer in verifier]
    trace = [{"round": i, "verifier": verdict} for i, verdict in enumerate(verdicts)]
    usage = {"candidate": Usage(5, 0, 10 * len(candidates), 1), "verifier": Usage(5, 0, 6 * len(rounds), 1)}
    return Record.new(Problem(name, "q", gold), Result(final, candidates, tuple(trace), usage), Grader())


def curve(*rows):
    return mean_curve([{"after_each_round": part} for part in rows])


def after_each_round(records, grader, final):
    return summarise([grade(record, grader, final) for record in records])["after_each_round"]


def test_a_problem_that_ended_keeps_what_it_had():
    solved = record("a", "3", "33")
    later = record("b", "3", "44", "333")
    spoilt = record("c", "4", "34", "4", verifier=["3", "4"])
    rows = after_each_round([solved, later, spoilt], Grader(), VOTE)
    assert [row["round"] for row in rows] == [1, 2]
    assert [row["accuracy"] for row in rows] == [pytest.approx(2 / 3)] * 2
    assert [row["best_reward"] for row in rows] == [0.5, pytest.approx(3.5 / 3)]  # it never falls
    assert [row["tokens"] for row in rows] == [26.0, pytest.approx((26 + 62 + 42) / 3)]
    more = after_each_round([solved, later, spoilt, record("d", "3", "33", gold=None)], Grader(), VOTE)
    assert [row["accuracy"] for row in more] == [row["accuracy"] for row in rows]
    [_, (tokens, _)] = curve(rows, rows[:1])
    assert tokens == pytest.approx((rows[1]["tokens"] + 26) / 2)


def test_the_rule_is_applied_to_what_was_there():
    rows = after_each_round(
        [record("c", "4", "344", "4", verifier=["3", "4"])], Grader(), FinalAnswer("verifier")
    )
    assert [row["accuracy"] for row in rows] == [1.0, 0.0]


def test_without_a_known_rule_only_the_end_is_known():
    rows = after_each_round([record("b", "3", "44", "33")], Grader(), None)
    assert [row["accuracy"] for row in rows] == [None, 1.0]
    assert curve(rows) == [] and after_each_round([], Grader(), None) == []
