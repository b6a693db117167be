"""Tables in their four forms, and numbers in words."""

import csv

from soft_reasoning.lab.reports.tables import Table


def test_text_and_markdown():
    table = Table(["name", "value"], [["a|b", "1"], ["c", "10.5"]])
    assert table.text() == "name  value\n----  -----\na|b       1\nc      10.5"
    assert table.markdown().splitlines()[1:3] == ["|:-------|--------:|", "| a\\|b   |       1 |"]


SPECIAL = Table(
    ["method_1", "accuracy %"],
    [["a & b_$5", "50.0 ± 1.2 (48.0 to 52.0)"], ["c{}~^\\#<|", "1,234"], ["less", "-0.5"], ["none", "-"]],
    rules=[1],
    bold=[(0, 1)],
)


def test_csv_has_columns_for_deviations_and_intervals_and_no_commas_in_numbers():
    first, second, third, *_ = csv.reader(SPECIAL.csv().splitlines())
    assert first == ["method_1", "accuracy %", "accuracy % ±", "accuracy % low", "accuracy % high"]
    assert second == ["a & b_$5", "50.0", "1.2", "48.0", "52.0"] and third[1:] == ["1234", "", "", ""]


def test_latex_is_booktabs_with_errors_as_the_paper_has_them():
    lines = [" ".join(line.split()) for line in SPECIAL.tex().splitlines()]
    assert lines[:3] == [r"\begin{tabular}{lr}", r"\toprule", r"method\_1 & accuracy \% \\"]
    assert lines[4] == r"a \& b\_\$5 & \textbf{50.0$_{\pm1.2}$ (48.0 to 52.0)} \\" and lines[5] == r"\midrule"
    assert lines[7:9] == [r"less & -0.5 \\", r"none & - \\"]
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
