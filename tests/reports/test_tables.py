"""Tables in their four forms, numbers in words, and what tells several runs apart."""

import csv

import pytest

from soft_reasoning.reports.cells import differing
from soft_reasoning.reports.tables import (
    Table,
    count,
    duration,
    number,
    over_seeds,
    percent,
    share,
)


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


def test_settings_that_tell_runs_apart_without_their_echoes():
    ei = {"acquisition": {"_target_": "a.EI", "xi": 0.1}, "method": {"acquisition": {"_target_": "a.EI"}}}
    ucb = {"acquisition": {"_target_": "a.UCB", "beta": 2}, "method": {"acquisition": {"_target_": "a.UCB"}}}
    assert differing([ei, ucb]) == [{"acquisition": "EI"}, {"acquisition": "UCB"}]
    named = [{"method": {"name": n, "_target_": t}} for n, t in (("a", "x.T"), ("b", "x.T"), ("c", "x.U"))]
    assert differing(named) == [{"method.name": "a"}, {"method.name": "b"}, {"method.name": "c"}]
    assert differing([{"a": 1}, {"a": 1, "b": 2}]) == [{"b": None}, {"b": 2}]
    assert differing([{"a": 1}] * 2) == [{}, {}] and differing([]) == []


def test_labels_stand_for_what_follows_from_them():
    paper = {"label": "ours preset=paper", "surrogate": {"mean": "zero"}, "final": "vote"}
    ours = {"label": "ours", "surrogate": {"mean": "centred"}, "final": "reward_vote"}
    assert differing([ours, paper]) == [{"label": "ours"}, {"label": "ours preset=paper"}]
    swept = [one | {"seed": seed} for one in (ours, paper) for seed in (0, 1)]
    assert differing(swept)[2:] == [{"label": "ours preset=paper", "seed": seed} for seed in (0, 1)]
    assert differing(swept[:2]) == [{"seed": 0}, {"seed": 1}]
    unnamed = {key: value for key, value in paper.items() if key != "label"}
    assert "label" not in differing([ours, unnamed])[0]


def test_a_part_that_only_some_have_is_named_where_nothing_else_tells_runs_apart():
    ei = {"acquisition": {"_target_": "x.EI"}}
    one, five = ({"acquisition": {"_target_": "x.UCB", "beta": beta, "loud": True}} for beta in (1, 5))
    assert differing([ei, one, five]) == [
        {"acquisition": "EI", "acquisition.beta": None},
        {"acquisition": "UCB", "acquisition.beta": 1},
        {"acquisition": "UCB", "acquisition.beta": 5},
    ]


def test_what_follows_from_a_data_set_or_a_model_is_not_named():
    def config(name, model, shots=0):
        prompt = {"wording": {"head": f"{name}, $"}, "layout": "completion"}
        dataset = {"name": name, "hub": {"id": f"hub/{name}"}, "shots": shots}
        return {"model": {"path": model}, "engine": {"path": model}, "prompt": prompt, "dataset": dataset}

    configs = [config(n, m) for n in ("a", "b") for m in ("x", "y")]
    assert differing(configs)[1] == {"dataset.name": "a", "model.path": "y"}
    configs = [config("a", "x"), config("a", "x", 8), config("b", "x"), config("b", "x", 8)]
    assert differing(configs)[1] == {"dataset.name": "a", "dataset.shots": 8}
