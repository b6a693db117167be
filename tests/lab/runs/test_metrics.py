"""Metrics of records written by hand, against numbers worked out by hand."""

import itertools

import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.lab.runs.grading import grade
from soft_reasoning.lab.runs.metrics import equal_samples
from soft_reasoning.lab.runs.records import Record
from soft_reasoning.types import Candidate, Problem, Result, Usage
from tests.lab.runs.world import summarise

GRADER = Grader()


def row(gold, answer, rounds, *, verified=None, difficulty=None, usage=None, name="p"):
    """The graded record of a problem whose candidates gave the answers ``rounds`` (one list a round)."""
    candidates = [
        Candidate(f"Answer: {a}", a, r, verified=v, reward=None if v is None else v + 0.5)
        for r, answers in enumerate(rounds)
        for a, v in zip(answers, (verified or [[None] * len(x) for x in rounds])[r], strict=True)
    ]
    doc = {} if difficulty is None else {"difficulty": difficulty}
    problem = Problem(name, "How many?", gold, doc=doc)
    return grade(Record.new(problem, Result(answer, tuple(candidates), usage=usage or {}), GRADER), GRADER)


def test_accuracy_coverage_and_their_errors():
    rows = [
        row("3", "3", [["3", "4"], ["5", "3"]]),
        row("3", "4", [["4", "4"], ["3", "4"]]),
        row("3", None, [["4", None]]),
        row("3", "3.0", [["4", "4"]]),  # the answer was a verifier's: right, and not covered
    ]
    m = summarise(rows)
    assert m["exact_match"] == 0.5
    assert m["coverage"] == 0.5 and m["unparsed"] == 0.25
    assert m["candidate_accuracy"] == pytest.approx(3 / 12)
    assert m["rounds"] == {"mean": 1.5, "share_ended_after": {"1": 0.5, "2": 0.5}}
    first, second = m["by_round"]
    assert (first["problems"], first["accuracy"], first["coverage"]) == (4, 1 / 8, 0.25)
    assert (second["problems"], second["accuracy"], second["coverage"]) == (2, 0.5, 0.5)


def test_pass_at_5_is_reported_for_more_samples_and_only_the_first_round_counts():
    answers = ["3", *["4"] * 5]
    rows = [row("3", "3", [answers]), row("3", "3", [answers, ["3"] * 6])]
    m = summarise(rows, independent=True)
    assert [name for name in m if name.startswith("pass@")] == [
        "pass@1",
        "pass@2",
        "pass@4",
        "pass@5",
        "pass@6",
    ]
    subsets = list(itertools.combinations(answers, 5))
    assert m["pass@5"] == pytest.approx(sum("3" in s for s in subsets) / len(subsets)) == pytest.approx(5 / 6)
    assert m["coverage"] == m["pass@6"] == 1.0


def test_problems_without_gold_are_left_out_of_shares_alone():
    rows = [row(None, "3", [["3", None]]), row("3", "3", [["3"]])]
    m = summarise(rows)
    assert m["problems"] == 2 and m["exact_match"] == 1.0
    assert m["candidates"] == 1.5
    alone = summarise(rows[:1])
    assert alone["exact_match"] is None and alone["coverage"] is None
    assert alone["by_round"][0]["accuracy"] is None


def test_difficulties_in_the_order_of_the_problems():
    levels = ["hard", "easy", "medium", "easy"]
    m = summarise([row("3", "3" if i else "4", [["3"]], difficulty=d) for i, d in enumerate(levels)])
    assert list(m["by_difficulty"]) == ["hard", "easy", "medium"]
    assert m["by_difficulty"]["hard"]["exact_match"] == 0 and m["by_difficulty"]["easy"]["problems"] == 2


def test_the_verifier_against_gold():
    m = summarise([row("3", "3", [["3", "3", "4", "4", "4"]], verified=[[1.0, 0.0, 0.0, 0.0, 1.0]])])
    assert m["verifier"] == pytest.approx(
        {
            "accuracy": 3 / 5,
            "base_rate": 2 / 5,
            "sensitivity": 1 / 2,
            "specificity": 2 / 3,
        }
    )
    assert m["by_round"][0]["reward"] == pytest.approx(0.9) and m["by_round"][0]["best_reward"] == 1.5
    assert summarise([row("3", "3", [["3"]])])["verifier"] is None


def test_the_verifier_is_judged_before_its_confidence():
    problem = Problem("p", "How many?", "3")
    candidates = (Candidate("", "3", 0, verified=0.3, agreement=1.0), Candidate("", "4", 0, verified=0.0))
    record = Record.new(problem, Result("3", candidates), GRADER)
    assert summarise([grade(record, GRADER)])["verifier"]["accuracy"] == 1.0


def test_cost_is_counted_from_usage_time_and_memory():
    usage = {"candidate": Usage(10, 4, 6, 2), "verifier": Usage(20, 0, 3, 1, 2)}
    m = summarise(
        [row("3", "3", [["3"]], usage=usage)],
        seconds={"engine": 3.0, "total": 4.5},
        peaks={"kv": 7},
    )
    counts = {"prompt": 30, "cached": 4, "generated": 9, "sequences": 3, "replayed": 2}
    assert m["tokens"]["total"] == counts
    assert m["seconds"] == {"engine": 3.0, "total": 4.5}
    assert m["peak_bytes"] == {"kv": 7, "activations": None}


def test_order_changes_no_digit():
    rows = [row("3", "3", [["3", "4"]], verified=[[i / 7, 0.1]], name=str(i)) for i in range(7)]
    assert summarise(rows) == summarise(rows[::-1])


def test_the_share_that_the_acquisition_function_decided():
    candidates = tuple(Candidate("", "3", r) for r in range(3))
    trace = ({"proposal": None}, {"proposal": {"decided": 1.0}}, {"proposal": {"decided": 0.4}})
    graded = grade(Record.new(Problem("p", "How many?", "3"), Result("3", candidates, trace), GRADER), GRADER)
    assert summarise([graded, row("3", "3", [["3"]])])["decided"] == pytest.approx(0.7)
    assert summarise([row("3", "3", [["3"]])])["decided"] is None


def test_different_texts_and_answers():
    rounds = [["4", "5"], ["3", "4", "6"], ["3", "7"]]
    candidates = tuple(Candidate(f"Answer: {a}", a, r) for r, answers in enumerate(rounds) for a in answers)
    graded = grade(Record.new(Problem("p", "?", "3"), Result("3", candidates), GRADER), GRADER)
    m = summarise([graded])
    assert (m["texts"], m["answers"]) == (5, 5)


@pytest.mark.parametrize(
    ("generated", "samples"),
    [(250, 13), (9000, 1)],  # 650 / 50, and at least one
)
def test_an_equal_budget_allows_the_references_tokens_over_those_of_a_sample(generated, samples):
    reference = {"problems": 20, "tokens": {"total": {"generated": 20 * 650}}}
    tried = {"problems": 10, "tokens": {"total": {"generated": 10 * generated}}}
    assert equal_samples(tried, 5, reference) == samples
