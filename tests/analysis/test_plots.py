"""Plots are PNG files with something on them, and leave matplotlib as they found it."""

import subprocess
import sys
from contextlib import contextmanager

import pytest

from soft_reasoning.analysis import plots

matplotlib = pytest.importorskip("matplotlib")

ROUNDS = [
    {"round": 0, "problems": 100, "accuracy": 0.48, "coverage": 0.7, "reward": 0.9, "best_reward": 1.3},
    {"round": 1, "problems": 60, "accuracy": None, "coverage": None, "reward": 1.1, "best_reward": 1.4},
]
TOKENS = {
    "candidate": {"prompt": 5000, "cached": 3000, "generated": 900, "sequences": 50},
    "verifier": {"prompt": 7000, "cached": 0, "generated": 100, "sequences": 10},
    "total": {"prompt": 12000, "cached": 3000, "generated": 1000, "sequences": 60},
}
METHODS = [
    {"label": "cot", "tokens": 30.0, "accuracy": 0.4, "error": None},
    {"label": "soft_reasoning", "tokens": 400.0, "accuracy": 0.7, "error": 0.05},
]


SWEPT = [
    {"setting": {"embedding.dim": d}, "accuracy": [0.4, 0.5], "accuracy_stderr": 0.1,
     "coverage": [0.8, None], "coverage_stderr": None}
    for d in (5, 50)
]  # fmt: skip
NAMED = [row | {"setting": {"acquisition": name, "k": 3}} for row, name in zip(SWEPT, "ab", strict=True)]


@pytest.mark.parametrize(
    "draw",
    [
        lambda path: plots.accuracy_by_round(ROUNDS, path),
        lambda path: plots.reward_by_round(ROUNDS, path),
        lambda path: plots.tokens(TOKENS, 10, path),
        lambda path: plots.accuracy_against_tokens(METHODS, path),
        lambda path: plots.accuracy_against_tokens([METHODS[0] | {"tokens": 0.0}], path),
        lambda path: plots.accuracy_by_setting(SWEPT, path),
        lambda path: plots.accuracy_by_setting(NAMED, path),
        lambda path: plots.accuracy_by_setting([SWEPT[0] | {"coverage": [None], "accuracy": [0.4]}], path),
        lambda path: plots.correlation([[[1, -0.5], [-0.5, 1]], [[1.0] * 4] * 4], [2, 2], path),
    ],
)
def test_a_plot_is_written_and_nothing_else_changes(tmp_path, draw):
    before = dict(matplotlib.rcParams)
    draw(tmp_path / "plot.png")
    pixels = matplotlib.image.imread(tmp_path / "plot.png")
    assert pixels.shape[0] > 200 and pixels.shape[1] > 600
    assert 0.001 < (pixels[..., :3].min(axis=-1) < 0.8).mean() < 0.9
    assert dict(matplotlib.rcParams) == before


def drawn(monkeypatch, draw, path):
    """The axes that ``draw`` leaves behind."""
    kept, figure = [], plots._figure

    @contextmanager
    def keep(*size, **sizes):
        with figure(*size, **sizes) as axes:
            kept.append(axes)
            yield axes

    monkeypatch.setattr(plots, "_figure", keep)
    draw(path)
    return kept[0]


@pytest.mark.parametrize("accuracy", [0.0, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("rows", [SWEPT, NAMED, SWEPT[:1]])
def test_percentages_lie_within_0_and_100(tmp_path, monkeypatch, rows, accuracy):
    rows = [row | {"accuracy": [accuracy] * 2, "coverage": [accuracy] * 2} for row in rows]
    axes = drawn(monkeypatch, lambda path: plots.accuracy_by_setting(rows, path), tmp_path / "plot.png")
    upright = len(rows) > 1 and "acquisition" not in rows[0]["setting"]
    low, high = axes.get_ylim() if upright else axes.get_xlim()
    assert 0 <= low <= 100 * accuracy <= high <= 100 and high - low >= 9.99


def test_methods_of_no_accuracy_lie_within_0_and_100(tmp_path, monkeypatch):
    rows = [row | {"accuracy": 0.0, "error": 0.0} for row in METHODS]
    axes = drawn(monkeypatch, lambda path: plots.accuracy_against_tokens(rows, path), tmp_path / "plot.png")
    assert axes.get_ylim() == (0, 10)


def test_a_label_names_a_row_by_itself(tmp_path, monkeypatch):
    rows = [row | {"setting": {"label": name}} for row, name in zip(SWEPT, ("cot", "rap"), strict=True)]
    axes = drawn(monkeypatch, lambda path: plots.accuracy_by_setting(rows, path), tmp_path / "plot.png")
    assert [text.get_text() for text in axes.get_yticklabels()] == ["cot", "rap"]


def test_matplotlib_is_imported_on_use_alone():
    code = "import sys, soft_reasoning.evaluation.runner; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
