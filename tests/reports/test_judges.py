"""Weights of an ensemble's parts: the fit, its comparison on held-out questions, and the command."""

import json
import math
from random import Random

import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.reports.judges import (
    JudgedQuestion,
    auc,
    best,
    fitted_scores,
    fitted_to,
    judged_questions,
    report_judges,
    vote,
)
from soft_reasoning.rewards.ensemble import FittedWeights
from soft_reasoning.types import UserError
from tests.rewards.programs.programming import BROKEN, PROBLEM, RIGHT, Programmer, solved

PARTS = ("texts", "verdict")


def world(count, seed=0, noise=0.0):
    """Questions of 5 candidates: ``texts`` says how often an answer is given, ``verdict`` is noise or not."""
    draw, rows = Random(seed), []
    for number in range(count):
        ease = draw.betavariate(1.2, 0.8)
        groups = [0 if draw.random() < ease else draw.randint(1, 3) for _ in range(5)]
        right = [group == 0 for group in groups]
        values = [
            {
                "texts": (groups.count(group) - 1) / 4,
                "verdict": min(1, max(0, 0.6 + noise * (group == 0) + draw.gauss(0, 0.2))),
            }
            for group in groups
        ]
        rows.append(JudgedQuestion(str(number), groups, right, values))
    return rows


def test_a_judge_that_knows_nothing_gets_no_weight_and_does_no_harm():
    rows = world(300)
    fitted = fitted_to(rows, PARTS)
    assert fitted.weights["texts"] > 1 and fitted.weights["verdict"] < 0.25 * fitted.weights["texts"]
    majority = vote(rows, [[1.0] * 5 for _ in rows])
    assert sum(vote(rows, fitted_scores(rows, PARTS))) >= sum(majority) - 3, "1 point"


def test_a_judge_that_knows_something_gets_a_weight_and_helps():
    rows = world(300, noise=0.3)
    assert fitted_to(rows, PARTS).weights["verdict"] > 4
    said = fitted_scores(rows, PARTS)
    assert sum(vote(rows, said)) > 1.03 * sum(vote(rows, [[1.0] * 5 for _ in rows]))
    assert auc(rows, said) > auc(rows, [[v["texts"] for v in row.values] for row in rows]) + 0.02


def test_the_fit_is_the_logistic_regression_of_scikit_learn():
    linear = pytest.importorskip("sklearn.linear_model")
    rows = world(200, noise=0.3)
    fitted = fitted_to(rows, PARTS)
    table = [[value[part] for part in PARTS] for row in rows for value in row.values]
    right = [good for row in rows for good in row.right]
    scales = [
        math.sqrt(sum((x - m) ** 2 for x in column) / len(column))
        for column, m in zip(zip(*table, strict=True), fitted.means.values(), strict=True)
    ]
    scaled = [
        [(x - m) / s for x, m, s in zip(row, fitted.means.values(), scales, strict=True)] for row in table
    ]
    theirs = linear.LogisticRegression(C=1.0, tol=1e-8).fit(scaled, right, sample_weight=[0.2] * len(right))
    ours = [fitted.weights[part] * scale for part, scale in zip(PARTS, scales, strict=True)]
    assert ours == pytest.approx(theirs.coef_[0], abs=1e-3)
    assert fitted.bias == pytest.approx(theirs.intercept_[0], abs=1e-3)


def test_what_a_part_does_not_say_counts_as_its_mean():
    rows = world(50)
    silent = [
        JudgedQuestion(r.id, r.groups, r.right, [{**v, "verdict": None} for v in r.values]) for r in rows
    ]
    fitted = fitted_to(silent, PARTS)
    assert fitted.weights["verdict"] == 0 and all(map(math.isfinite, fitted.means.values()))
    values = {"texts": 0.5, "verdict": None}
    assert fitted.probability(values) == fitted.probability({"texts": 0.5})


def test_measures_of_judges():
    row = JudgedQuestion("q", [0, 1, 1, 2], [True, False, False, False], [{}] * 4)
    only_wrong = JudgedQuestion("r", [0], [False], [{}])
    scores = [[0.6, 0.5, 0.5, 0.7], [0.9]]
    assert auc([row, only_wrong], scores) == pytest.approx(2 / 3)
    assert auc([only_wrong], [[0.9]]) is None
    assert vote([row], scores[:1]) == [0.0] and vote([row], [[1.1, 0.5, 0.5, 0.7]]) == [1.0]
    assert best([row], scores[:1]) == [0.0] and best([row], [[0.8, 0.5, 0.5, 0.7]]) == [1.0]


def test_records_are_read_with_what_each_part_said():
    from soft_reasoning.runs.records import to_record

    options = ["method=best_of_n", "verifier=ensemble", "method.samples=3", "verifier.verdict_weight=0"]
    result = solved(Programmer([RIGHT, BROKEN], answers=["15", "11", "15.0"]), *options)
    record = json.loads(json.dumps(to_record(PROBLEM, result, Grader())))
    [row] = judged_questions([record], ("texts", "programs"), Grader())
    assert row.groups == [0, 1, 0] and row.right == [True, False, True]
    assert [value["programs"] for value in row.values] == [1, 0, 1]
    assert [value["texts"] for value in row.values] == [0.5, 0, 0.5]


def test_too_few_questions_and_one_kind_are_one_line(tmp_path):
    fitted = fitted_to(world(50), PARTS)
    with pytest.raises(UserError, match="calibrate: expected at least 4 questions with an answer, got 3"):
        report_judges(world(3), PARTS, lambda values: 1.0, fitted, tmp_path, tmp_path / "w.json")
    right = [JudgedQuestion("q", [0], [True], [{"texts": 1.0, "verdict": 1.0}])]
    with pytest.raises(UserError, match="calibrate: expected right and wrong candidates"):
        fitted_to(right, PARTS)


def test_an_ensemble_without_a_part_better_than_chance_is_refused(command, tmp_path, monkeypatch):
    parts = ("texts", "verdict", "coherence")

    def misleading(*_):
        """Questions whose right candidates every part scores lowest."""
        values = [dict.fromkeys(parts, score) for score in (0.0, 0.9, 1.0)]
        return [JudgedQuestion(str(i), [0, 1, 2], [True, False, False], values) for i in range(20)]

    monkeypatch.setattr("soft_reasoning.commands.calibrate_judges.judged_questions", misleading)
    model = ["method=verified_sampling", "verifier=ensemble", "verifier.programs_weight=0", "engine=fake"]
    small = ["search.rounds=0", "search.candidates=2", "max_new_tokens=4", "limit=4", "progress=false"]
    done = command("calibrate", *model, *small, "hydra.run.dir=cal")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert "calibrate: expected a part that is right more often than chance, got none" in done.stderr
    assert not (tmp_path / "cal" / "weights.json").exists()


@pytest.mark.slow
def test_the_command_fits_weights_that_a_run_takes_and_others_refuse(command, tmp_path):
    model = ["method=verified_sampling", "verifier=ensemble", "verifier.programs_weight=0", "progress=false"]
    small = [*model, "search.rounds=0", "search.candidates=4", "max_new_tokens=60"]
    words = ["calibrate", *small, "limit=12", "dataset.split=validation", "hydra.run.dir=cal"]
    done = command(*words)
    assert done.returncode == 0, done.stderr
    assert "fitted, held out" in done.stdout and "verifier.fitted=" in done.stdout
    fitted = FittedWeights.load(tmp_path / "cal" / "weights.json")
    assert set(fitted.weights) == {"texts", "verdict", "coherence"} and len(fitted.questions) == 12
    assert "| majority" in (tmp_path / "cal" / "calibration.md").read_text()
    written = (tmp_path / "cal" / "weights.json").read_bytes()
    assert command(*words).returncode == 0
    assert (tmp_path / "cal" / "weights.json").read_bytes() == written, "the same command repeats"

    use = ["run", *small, "verifier.fitted=cal/weights.json", "limit=2"]
    done = command(*use, "hydra.run.dir=used")
    assert done.returncode == 0, done.stderr
    for change, message in [
        (
            "dataset.split=validation",
            "verifier.fitted: expected problems other than those it was made on, got 2",
        ),
        ("prompt.wording.ask='{question}'", "verifier.fitted: expected weights for the run's prompt"),
        ("engine=fake", "verifier.fitted: expected weights for the run's model"),
        ("verifier.verdict.samples=2 verifier.verdict.temperature=1", "run's verifier.verdict"),
    ]:
        refused = command(*use, *change.split(" "), "hydra.run.dir=refused")
        assert refused.returncode == 2 and message in refused.stderr and refused.stderr.count("\n") == 1
    again = command(*words, "verifier.fitted=cal/weights.json")
    assert "calibrate: expected an ensemble without verifier.fitted" in again.stderr
