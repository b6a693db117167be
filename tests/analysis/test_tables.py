"""Tables, numbers in words, and the combined table of a sweep."""

import json

import pytest

from soft_reasoning.analysis.settings import differing, flatten, result_keys
from soft_reasoning.analysis.tables import Table, combine, count, duration, number, over_seeds, percent, share


def test_text_and_markdown():
    table = Table(["name", "value"], [["a|b", "1"], ["c", "10.5"]])
    assert table.text() == "name  value\n----  -----\na|b       1\nc      10.5"
    assert table.markdown() == "| name | value |\n| --- | ---: |\n| a\\|b | 1 |\n| c | 10.5 |"


def test_a_table_with_a_short_row_is_refused():
    with pytest.raises(ValueError):
        Table(["a", "b"], [["1"]]).text()


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


def test_flat_keys():
    config = {"a": {"b": 1, "c": [1, {"d": 2}], "e": {}}, "hydra": {"run": {"dir": "x"}}, "fresh": True}
    assert flatten(config["a"]) == {"b": 1, "c": [1, {"d": 2}], "e": {}}
    assert set(result_keys(config)) == {"a.b", "a.c", "a.e"}


def run(tmp_path, name, config, accuracy):
    folder = tmp_path / name
    folder.mkdir()
    (folder / "manifest.json").write_text(json.dumps({"config": config}))
    results = {
        "exact_match": accuracy,
        "exact_match_stderr": 0.05,
        "coverage": 0.9,
        "coverage_stderr": 0.03,
        "rounds": {"mean": 2.5},
        "tokens": {"total": {"generated": 1000}},
        "seconds": {"total": 61.0},
    }
    (folder / "results.json").write_text(json.dumps(results))
    return folder


def test_a_sweep_has_a_row_a_setting_and_averages_seeds(tmp_path, capsys):
    runs = [
        run(tmp_path, f"{dim}-{seed}",
            {"seed": seed, "embedding": {"dim": dim}, "method": {"embedding": {"dim": dim}}, "limit": dim},
            0.5 + dim / 100 + seed / 10)
        for dim in (5, 10) for seed in (0, 1)
    ]  # fmt: skip
    table = combine(runs, tmp_path)
    assert table.columns[:2] == ["embedding.dim", "runs"]
    assert table.rows[0] == ["5", "2", "60.0 ± 7.1", "90.0 ± 0.0", "2.50", "1,000", "1 min 01 s"]
    assert [row[0] for row in table.rows] == ["5", "10"]
    assert table.text() in capsys.readouterr().out
    assert (tmp_path / "sweep.md").read_text().startswith(table.markdown())
    assert [one["seed"] for one in json.loads((tmp_path / "sweep.json").read_text())] == [0, 1, 0, 1]


def test_a_sweep_of_one_setting_still_has_a_table(tmp_path):
    table = combine([run(tmp_path, "only", {"seed": 0}, 0.5)])
    assert table.rows == [["1", "50.0 ± 5.0", "90.0 ± 3.0", "2.50", "1,000", "1 min 01 s"]]
    assert table.text().splitlines()[0].startswith("runs")


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
