"""Tables in their four forms, numbers in words, and what distinguishes several runs."""

import csv
import shlex

import pytest

from soft_reasoning.lab.reports.run_groups import find_settings
from soft_reasoning.lab.reports.tables import Table, count, duration, number, over_seeds, percent, share
from soft_reasoning.lab.runs.manifest import typed_options


def test_text_and_markdown():
    table = Table(["name", "value"], [["a|b", "1"], ["c", "10.5"]])
    assert table.text() == "name  value\n----  -----\na|b       1\nc      10.5"
    assert table.markdown().splitlines()[1:3] == ["|:-------|--------:|", "| a\\|b   |       1 |"]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (percent(0.1234), "12.3"),
        (percent(None), "-"),
        (share({"x": 0.5, "x_stderr": 0.051}, "x"), "50.0 ± 5.1"),
        (share({"x": 0.5, "x_stderr": None}, "x"), "50.0"),
        (number(2 / 3), "0.67"),
        (count(1234567.0), "1,234,567"),
        (duration(0.0123), "0.012 s"),
        (duration(59.94), "59.9 s"),
        (duration(245.2), "4 min 05 s"),
        (duration(7380), "2 h 03 min"),
        (duration(None), "-"),
        (over_seeds([0.5, 0.7], 0.2), "60.0 ± 14.1"),
        (over_seeds([0.5], 0.2), "50.0 ± 20.0"),
        (over_seeds([None], None), "-"),
    ],
)
def test_numbers_in_words(shown, expected):
    assert shown == expected


SPECIAL = Table(
    ["method_1", "accuracy %"],
    [["a & b_$5", "50.0 ± 1.2"], ["c{}~^\\#<|", "1,234"], ["less", "-0.5"], ["none", "-"]],
    rules=[1],
    bold=[(0, 1)],
)


def test_csv_has_a_column_for_errors_and_no_commas_in_numbers():
    first, second, third, *_ = csv.reader(SPECIAL.csv().splitlines())
    assert first == ["method_1", "accuracy %", "accuracy % ±"]
    assert second == ["a & b_$5", "50.0", "1.2"] and third[1:] == ["1234", ""]


def test_latex_is_booktabs_with_errors_as_the_paper_has_them():
    lines = [" ".join(line.split()) for line in SPECIAL.tex().splitlines()]
    assert lines[:3] == [r"\begin{tabular}{lr}", r"\toprule", r"method\_1 & accuracy \% \\"]
    assert lines[4] == r"a \& b\_\$5 & \textbf{50.0$_{\pm1.2}$} \\" and lines[5] == r"\midrule"
    assert lines[7:9] == [r"less & -0.5 \\", r"none & - \\"]
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]


def settings(*commands, places=None, labels=None):
    """What distinguishes runs of these commands."""
    manifests = []
    for words in commands:
        overrides = typed_options(shlex.split(words))
        config = {"method": {"name": overrides.get("method", "soft_reasoning")}}
        manifests.append({"overrides": overrides, "config": config})
    for manifest, label in zip(manifests, labels or (), strict=False):
        manifest["config"]["label"] = label
    return find_settings(manifests, places or [("m", "d", 0)] * len(manifests))


def test_settings_are_the_options_that_differ_as_they_were_typed():
    assert settings("d=5 k=3 seed=0", "k=3 d=5e1 seed=1 progress=false") == [
        {"d": 5},
        {"d": 50.0},
    ]
    assert settings("method=cot", "method=fire", "") == [
        {"method": "cot"},
        {"method": "fire"},
        {"method": "soft_reasoning"},
    ]
    assert settings("+experiment=a", "acquisition=ucb prompt.head=\"'a b'\"", "acquisition=ucb")[1] == {
        "acquisition": "ucb",
        "experiment": None,
        "prompt.head": "a b",
    }
    assert settings("k=3", "k=3") == [{}, {}] and find_settings([], []) == []


def test_labels_stand_for_what_follows_from_them():
    labels = ["cot", "ours preset=paper"] * 2
    commands = ["method=cot k=1", "method=ours preset=paper k=1", "method=cot k=2", "preset=paper k=2"]
    assert settings(*commands, labels=labels)[1:3] == [
        {"label": "ours preset=paper", "k": 1},
        {"label": "cot", "k": 2},
    ]
    assert settings(*commands[:2], labels=labels) == [{"label": "cot"}, {"label": "ours preset=paper"}]
    assert "label" not in settings(*commands[:2], labels=["cot", None])[0]


def test_what_follows_from_a_model_or_a_data_set_is_not_named():
    commands = [f"model={m} dataset={d} dataset.path={d}.jsonl" for m in "xy" for d in "ab"]
    places = [(m, d, 0) for m in "xy" for d in "ab"]
    assert settings(*commands, places=places) == [{}] * 4
    assert settings(*commands)[0] == {"dataset.path": "a.jsonl"}
