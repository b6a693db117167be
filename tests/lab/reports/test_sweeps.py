"""A sweep's tables: rows in order, draws averaged, bold only beyond a paired interval."""

import pytest

from soft_reasoning.lab.reports.comparison import (
    GAIN,
    build_tables,
    rounds_table,
    table_by_place,
)
from tests.lab.reports.sweeps import finished, settings


def test_settings_have_a_row_each_in_the_order_of_their_values(tmp_path):
    runs = [
        finished(
            tmp_path / f"{dim}-{seed}",
            accuracy + seed / 10,
            seed=seed,
            embedding={"dim": dim},
            method="soft_reasoning",
        )
        for dim, accuracy in ((100, 0.9), (5, 0.1), (10, 0.2))
        for seed in (0, 1)
    ]
    table = table_by_place(settings(runs, "embedding.dim=5"))
    assert table.columns == ["method", "accuracy %", "coverage %"]
    assert [row[0] for row in table.rows] == [f"embedding.dim={dim}" for dim in (5, 10, 100)]
    assert table.rows[0][1:] == ["15.0 ± 7.1 (3.5 to 45.9)", "90.0 ± 0.0 (59.6 to 98.2)"]
    assert table.bold == [(2, 1)]  # eight of ten problems more, not one


def test_methods_stand_in_the_order_of_the_command(tmp_path):
    methods = ["soft_reasoning", ["cot", "max_new_tokens=5"], "cot"]
    labels = ["cot", "soft_reasoning", "cot max_new_tokens=5"]
    runs = [finished(tmp_path / str(i), 0.5, label=label, methods=methods) for i, label in enumerate(labels)]
    assert [*settings(runs)["label"]] == ["soft_reasoning", "cot max_new_tokens=5", "cot"]


def grid(tmp_path, **more):
    methods = ["cot", "soft_reasoning"]
    runs = [
        finished(
            tmp_path / f"{m}{d}{s}{seed}",
            0.5 + 0.1 * (m == "soft_reasoning") + seed / 100,
            method=m,
            label=m,
            methods=methods,
            dataset=d,
            shots=s,
            seed=seed,
            model="llama3_8b",
            **more,
        )
        for m in methods
        for d in ("svamp", "gsm8k", "own")
        for s in (0, 8)
        for seed in (0, 1)
        if (m, d, s) != ("cot", "own", 8)
    ]
    return settings(runs, "cot")


def test_the_papers_layout(tmp_path):
    table = table_by_place(grid(tmp_path))
    assert table.columns == ["metric", "shots", "method", "gsm8k", "own", "svamp"] and table.labels == 3
    assert [row[:3] for row in table.rows[:6]] == [
        ["accuracy %", "0", "cot"],
        ["accuracy %", "0", "soft_reasoning"],
        ["accuracy %", "0", GAIN],
        ["accuracy %", "8", "cot"],
        ["accuracy %", "8", "soft_reasoning"],
        ["accuracy %", "8", GAIN],
    ]
    assert table.rows[2][3:] == ["+10.0"] * 3 and table.rows[5][3:] == ["+10.0", "-", "+10.0"]
    assert table.rows[0][3:] == ["50.5 ± 0.7 (24.0 to 76.7)"] * 3
    assert table.rows[3][4] == "-" and table.rules == [3, 6, 8]
    assert not table.bold  # one problem more


def test_rounds_to_termination_over_seeds(tmp_path):
    ended = [{"1": 0.1, "2": 0.6, "3": 0.3}, {"2": 0.8, "5": 0.2}]
    runs = [
        finished(tmp_path / str(i), 0.5, method="soft_reasoning", ended=shares, seed=i)
        for i, shares in enumerate(ended)
    ]
    table = rounds_table(settings(runs))
    assert [row[1] for row in table.rows][:3] == [
        "no proposal",
        "1 round of proposals",
        "2 rounds of proposals",
    ]
    shares = ["5.0 ± 7.1", "70.0 ± 14.1", "15.0 ± 21.2", "0.0 ± 0.0", "10.0 ± 14.1"]
    assert [row[2] for row in table.rows] == shares
    assert rounds_table(grid(tmp_path / "none")) is None


@pytest.mark.parametrize("label", ["soft_reasoning verifier={}", "{}"])
def test_verifiers_are_compared_with_each_other_and_not_where_methods_are(tmp_path, label):
    runs = [
        finished(tmp_path / d / n, 0.5, dataset=d, verifier=(n, accuracy), label=label.format(n))
        for d in ("gsm8k", "svamp")
        for n, accuracy in (("single_judge", 0.7), ("multi_generate", 0.9))
    ]
    rows = [row for row in table_by_place(settings(runs)).rows if "verifier's accuracy" in row[0]]
    assert [row[-1] for row in rows] == (["90.0", "70.0"] if "verifier=" in label else [])


def test_costs_relative_to_a_method(tmp_path):
    runs = [
        finished(
            tmp_path / f"{m}{d}",
            0.5,
            method=m,
            label=m,
            dataset=d,
            model="llama3_8b",
            measured={
                "tokens": {"total": {"prompt": 5000, "cached": 0, "generated": g, "sequences": 50}},
                "peak_bytes": {"kv": g * 2**20, "activations": None},
            },
        )
        for d, factor in (("gsm8k", 1), ("svamp", 3))
        for m, g in (("rap", 1000 * factor), ("soft_reasoning", 100))
    ]
    tables = build_tables(settings(runs, "rap"), "rap")
    plain, relative = tables["cost"], tables["cost_relative"]
    assert relative.title == "Cost relative to rap" and len(plain.rows) == 4
    assert plain.rows[0][: plain.labels] == ["gsm8k", "rap"]
    column = relative.columns.index("generated tokens %")
    assert [row[column] for row in relative.rows] == ["10.00", "3.33"]
