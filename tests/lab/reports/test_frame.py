"""The frame of runs: what distinguishes them, and what they are compared with."""

import math
from pathlib import Path

import pytest

from soft_reasoning.lab.reports.frame import against, by_setting, default_reference, find_reference, read_runs
from tests.lab.reports.sweeps import finished


@pytest.fixture
def options(tmp_path):
    """The options that distinguish runs, each given by what :func:`finished` takes."""

    def read(*runs):
        folders = [finished(tmp_path / f"{i}", 0.5, **run) for i, run in enumerate(runs)]
        return [*read_runs(folders)["options"]]

    return read


def test_a_key_that_refers_to_a_short_option_is_not_named_again(options):
    runs = [{"d": d, "embedding": {"dim": d, "sigma": math.sqrt(d)}, "seed": d} for d in (5, 25.0)]
    assert options(*runs) == [{"d": 5}, {"d": 25}]


def test_a_choice_stands_for_its_class_and_options(options):
    gaussian = {"_target_": "soft_reasoning.Gaussian", "sigma": 8}
    simplex = {"_target_": "soft_reasoning.Simplex", "tau": 6}
    runs = [
        {"embedding": gaussian, "choices": {"embedding": "gaussian"}},
        {"embedding": gaussian | {"sigma": 4}, "choices": {"embedding": "gaussian"}},
        {"embedding": simplex, "choices": {"embedding": "simplex"}},
    ]
    assert options(*runs) == [
        {"embedding": "gaussian", "embedding.sigma": 4},
        {"embedding": "gaussian", "embedding.sigma": 8},
        {"embedding": "simplex", "embedding.sigma": None},
    ]


def test_labels_stand_for_what_follows_from_them(options):
    runs = [
        {"label": label, "method": label.split()[0], "k": k, "choices": {"preset": label}}
        for k in (1, 2)
        for label in ("cot", "ours preset=paper")
    ]
    assert options(*runs)[1:3] == [{"label": "cot", "k": 2}, {"label": "ours preset=paper", "k": 1}]


def test_what_follows_from_a_model_or_a_data_set_is_not_named(options):
    runs = [{"model": m, "dataset": d, "own": {"file": d}} for m in "xy" for d in "ab"]
    assert options(*runs) == [{}] * 4


def test_what_results_do_not_depend_on_distinguishes_nothing(options):
    runs = [{"progress": p, "seed": p, "launcher": {"workers": p}} for p in (1, 2)]
    assert options(*runs) == [{}, {}]


def test_the_default_reference_is_soft_reasoning_or_the_first():
    ours = {"cot": "cot", "soft_reasoning k=3": "soft_reasoning"}
    assert default_reference(ours) == "soft_reasoning k=3"
    assert default_reference(ours | {"soft_reasoning": "soft_reasoning"}) == "soft_reasoning"
    assert default_reference({"cot": "cot", "fire": "fire"}) == "cot"


def test_a_reference_is_named_by_some_of_its_options(tmp_path, capsys):
    """Sweeps over several options have rows with all of them; of one option the experiment names a value."""
    runs = [finished(tmp_path / f"{d}-{k}", 0.5, method="ours", d=d, k=k) for d in (5, 50) for k in (3, 5)]
    table = by_setting(read_runs(runs))
    assert find_reference(table, "k=5 d=50") == "d=50 k=5"
    assert find_reference(table, "d=50") == "d=50 k=3"  # the first of its rows
    assert find_reference(table, "d=7") == "d=5 k=3"
    assert "reference: expected one of d=5 k=3, " in capsys.readouterr().out


def test_questions_of_two_files_are_not_compared_with_each_other(tmp_path):
    """The rows of every file have the numbers 0, 1, ..., by which questions are paired."""
    paths = ["easy.csv", "x/rows.csv", "y/rows.csv"]
    runs = [
        finished(tmp_path / f"{i}-{method}", 0.5, method=method, dataset="custom", path=path)
        for i, path in enumerate(paths)
        for method in ("cot", "fire")
    ]
    table = against(by_setting(read_runs(runs)), "cot")
    here = Path.cwd()
    assert {*table["data set"]} == {f"{here}/x/rows.csv", f"{here}/y/rows.csv", "easy.csv"}
    assert [*table["label"]] == ["cot", "fire"] * 3
    assert [n > 0 for n in table["n"]] == [False, True] * 3
