"""Reports, comparisons and grading again, from folders that a store wrote."""

import json
import re

import pytest

from soft_reasoning.cli.finished import read_solution
from soft_reasoning.lab.reports import plots
from soft_reasoning.lab.reports.comparison import compare
from soft_reasoning.lab.reports.report import build_tables, write_report, write_tables
from soft_reasoning.lab.reports.statistics import holm, paired_permutation
from soft_reasoning.lab.runs.files import read_json
from soft_reasoning.types import Candidate, Problem, Result, Usage, UserError
from tests.lab.runs.world import opened, stored


def finished(
    folder,
    method,
    right,
    *,
    seed=0,
    total=20,
    first=0,
    tokens=10,
    gold="3",
    budget="own",
    times=1,
    **more,
):
    """A run of ``total`` questions from ``first`` on, each ``times``, those of ``right`` answered."""
    config = {
        "seed": seed,
        "method": {"name": method, **more},
        "dataset": {"name": "made_up"},
        "budget": budget,
    }
    results = []
    for i in range(first, first + total):
        text = "3" if i in right else "4"
        rounds = [0] * more["samples"] if "samples" in more else [0, 1]
        candidates = tuple(Candidate(text, text, r, reward=0.5 + r / 10, verified=0.0) for r in rounds)
        result = Result(text, candidates, usage={"candidate": Usage(5, 1, tokens, 2)})
        results += [
            (Problem(f"p{i}{j * '+'}", f"{j * ' '}q {i}", gold, doc={"difficulty": "easy"}), result)
            for j in range(times)
        ]
    independent = method in ("self_consistency", "fire")
    seconds = {"engine": 3.0, "total": 4.0}
    stored(folder, config, results, seconds=seconds, independent=independent)
    repeated = f"{total * (times - 1)} of {total * times} questions repeat others; an interval"
    assert [note.startswith(repeated) for note in write_report(folder)] == [True] * (times > 1)
    return folder


def test_the_report_shows_a_table_and_its_plots(tmp_path):
    finished(tmp_path, "soft_reasoning", range(12))
    text = (tmp_path / "report.md").read_text()
    assert text.startswith("# soft_reasoning on made_up")
    assert re.search(r"\| accuracy % +\| +60.0 \(38.7 to 78.1\) \|", text) and text.count("|:--") == 1
    assert "](after_each_round.svg)" in text and (tmp_path / "after_each_round.pdf").stat().st_size > 5000


@pytest.mark.parametrize(
    ("cut", "answered", "line"),
    [
        (3, False, None),  # fewer than a tenth
        (4, False, "4 of 40 candidates were cut at 26 tokens; raise max_new_tokens"),
        (40, True, None),  # they were cut behind their answers
    ],
)
def test_candidates_that_a_limit_cut_are_counted_in_a_line(tmp_path, cut, answered, line):
    results = []
    for i in range(20):
        candidates = tuple(
            Candidate("So 1 +", "2" if answered else None, 0, generated_tokens=7 + i, finish_reason="length")
            if 2 * i + j < cut
            else Candidate("2", "2", 0, generated_tokens=26, finish_reason="eos")
            for j in range(2)
        )
        results.append((Problem(f"p{i}", f"q{i}", "2"), Result("2", candidates)))
    stored(tmp_path, {}, results)
    expected = [] if line is None else [line.replace("26", str(7 + (cut - 1) // 2))]
    assert write_report(tmp_path) == expected


def test_tables_are_written_on_demand(tmp_path):
    finished(tmp_path, "soft_reasoning", range(12))
    assert not (tmp_path / "tables").exists()
    names = ("difficulty", "headline", "rounds", "time", "tokens", "verifier")
    saved = sorted(path.name for path in write_tables(tmp_path).iterdir())
    assert saved == [f"{name}.{form}" for name in names for form in ("csv", "tex")]
    assert "accuracy %,60.0,38.7,78.1" in (tmp_path / "tables" / "headline.csv").read_text()
    assert r"\toprule" in (tmp_path / "tables" / "rounds.tex").read_text()


def test_without_matplotlib_the_report_says_so_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(plots, "available", lambda: False)
    stored(tmp_path, {}, [(Problem("p", "q", "3"), Result("3", ()))])
    [note] = write_report(tmp_path)
    assert "pip install matplotlib" in note and note in (tmp_path / "report.md").read_text()
    assert not list(tmp_path.glob("*.svg"))


def test_comparison_tests_every_method_against_the_reference(tmp_path, capsys):
    folders = [
        finished(tmp_path / "cot", "cot", range(6), tokens=1),
        finished(tmp_path / "sc", "self_consistency", range(4, 15), tokens=5),
        finished(tmp_path / "sr", "soft_reasoning", range(16), tokens=20),
    ]
    tables = compare(folders, tmp_path)
    quality, cost = tables["comparison"], tables["cost"]
    cot, sc, sr = json.loads((tmp_path / "comparison.json").read_text())
    assert (cot["accuracy"], sc["accuracy"], sr["accuracy"]) == (0.3, 0.55, 0.8)
    assert "p" not in sr and [cot["difference"], sc["difference"]] == pytest.approx([-0.5, -0.25])
    assert cot["low"] < cot["difference"] < cot["high"] < 0
    ones, zeros = [1] * 10, [0] * 10
    raw = [paired_permutation(zeros, ones), paired_permutation([0] * 5, [1] * 5)]
    assert [cot["p"], sc["p"]] == pytest.approx(holm(raw))
    assert (cot["tokens"], sc["tokens"], sr["tokens"], sr["seconds"]) == (1, 5, 20, 0.2)
    for table in (quality, cost):
        assert [row[0] for row in table.rows] == ["cot", "self_consistency", "soft_reasoning"]
    assert quality.rows[2][5] == "reference" and "soft_reasoning" in capsys.readouterr().out
    assert (tmp_path / "comparison.csv").read_text().splitlines()[1].startswith("cot,30.0,14.5,51.9,")
    assert r"\textbf{-50.0}" in (tmp_path / "comparison.tex").read_text()
    assert quality.bold == [(0, 5)]  # five problems in one direction have p = 0.06
    assert "](accuracy_against_tokens.svg)" in (tmp_path / "comparison.md").read_text()
    assert (tmp_path / "accuracy_against_tokens.svg").stat().st_size > 5000


def test_a_question_counts_once_in_every_interval(tmp_path):
    rows = []
    for times in (1, 3):
        runs = [
            finished(tmp_path / f"{method}{times}", method, range(right), times=times)
            for method, right in (("cot", 6), ("soft_reasoning", 14))
        ]
        compare(runs, tmp_path)
        for table in ("headline", "difficulty"):
            assert "70.0 (48.1 to 85.5)" in str(build_tables(read_json(runs[1] / "results.json"))[table].rows)
        rows.append(json.loads((tmp_path / "comparison.json").read_text()))
    names = ("accuracy low", "accuracy high", "difference", "low", "high", "n", "p")
    once, thrice = ([[row.get(name) for name in names] for row in each] for each in rows)
    assert once == thrice and once[0][5] == 20


@pytest.mark.slow
def test_seeds_with_problems_of_their_own_are_paired_within_each(tmp_path):
    folders = []
    for seed, first in enumerate([0, 6, 15]):  # some problems are in two seeds, none is in all
        common = {"seed": seed, "first": first, "total": 10}
        folders.append(finished(tmp_path / f"a{seed}", "cot", range(first + 3), **common))
        folders.append(finished(tmp_path / f"b{seed}", "soft_reasoning", range(first + 5), **common))
    compare(folders, tmp_path)
    cot, sr = json.loads((tmp_path / "comparison.json").read_text())
    assert cot["difference"] == pytest.approx(cot["accuracy"] - sr["accuracy"]) == pytest.approx(-0.2)
    assert cot["n"] == 25 and "n" not in sr and cot["low"] < -0.2 < cot["high"] < 0
    assert cot["p"] == pytest.approx(2 / 2**6, abs=0.005)  # six problems differ, all in one direction


def test_samples_that_an_equal_budget_chose_are_one_setting_over_seeds(tmp_path):
    folders = [
        finished(tmp_path / f"{name}{seed}", name, range(9), total=12, seed=seed, budget="equal", **more)
        for seed, samples in enumerate([7, 6])
        for name, more in [("soft_reasoning", {}), ("cot", {}), ("fire", {"samples": samples})]
    ]
    quality = compare(folders, tmp_path)["comparison"]
    assert [row[0] for row in quality.rows] == ["cot", "fire", "soft_reasoning"]
    assert [row["runs"] for row in json.loads((tmp_path / "comparison.json").read_text())] == [2, 2, 2]
    text = (tmp_path / "comparison.md").read_text()
    assert "soft_reasoning generates: fire (6, 7). All others" in text


def test_a_method_of_one_s_own_is_named_by_its_class(tmp_path):
    folder = finished(tmp_path, None, range(12), _target_="mine.LongestOf")
    assert (folder / "report.md").read_text().startswith("# LongestOf on made_up")
    assert compare([folder])["comparison"].rows[0][0] == "LongestOf"
    assert read_solution(folder, "p0").method == "LongestOf"


def test_what_cannot_be_compared_is_refused(tmp_path):
    with pytest.raises(UserError, match="got none"):
        compare([])
    begun = tmp_path / "begun"
    with opened(begun, {}):
        pass
    with pytest.raises(UserError, match="finished run"):
        compare([begun])


def test_answers_that_nobody_can_grade_have_costs_only(tmp_path):
    own = [finished(tmp_path / method, method, (), gold=None) for method in ("cot", "fire")]
    tables = compare(own, tmp_path)
    assert [row[1:3] for row in tables["comparison"].rows] == [["-", "-"]] * 2
    assert (tmp_path / "comparison.md").is_file() and "cost" in tables


def test_answers_that_were_not_read_are_told_with_their_most_frequent_end(tmp_path):
    texts = ["It is Paris.", "Well.\nIt is Paris.\n", "Who knows?", "Answer: Rome"]
    results = [
        (
            Problem(f"p{i}", f"q{i}", "Rome"),
            Result("Rome" if "Rome" in text else None, (Candidate(text, None, 0),)),
        )
        for i, text in enumerate(texts)
    ]
    stored(tmp_path, {"method": {"name": "cot"}}, results)
    [note] = [note for note in write_report(tmp_path) if "could be read" in note]
    assert note.startswith("3 of 4 questions have no answer") and note.endswith("a text ends: 'It is Paris.'")
