"""Plots are PNG files with something on them, and leave matplotlib as they found it."""

from contextlib import contextmanager

import pytest

from soft_reasoning.reports import plots, sweep_plots
from soft_reasoning.reports.cells import read_cells
from tests.reports.sweeps import finished

matplotlib = pytest.importorskip("matplotlib")

ROUNDS = [
    {"round": 1, "accuracy": 0.48, "stderr": 0.05, "best_reward": 1.3},
    {"round": 2, "accuracy": None, "stderr": None, "best_reward": 1.4},
]
METHODS = [
    {"label": "cot", "tokens": 30.0, "accuracy": 0.4, "interval": None},
    {
        "label": "soft_reasoning",
        "tokens": 400.0,
        "accuracy": 0.7,
        "interval": 0.05,
        "curve": [(200.0, 0.5), (400.0, 0.7)],
    },
]


@pytest.mark.parametrize(
    "draw",
    [
        lambda path: plots.after_each_round({"ours": ROUNDS, "random points": ROUNDS[:1]}, path),
        lambda path: plots.accuracy_against_tokens(METHODS, path),
        lambda path: plots.accuracy_against_tokens([METHODS[0] | {"tokens": 0.0}], path),
        lambda path: plots.accuracy_against_tokens([METHODS[1] | {"label": "costs $5 or $10_{"}], path),
    ],
)
def test_a_plot_is_written_and_nothing_else_changes(tmp_path, draw):
    before = dict(matplotlib.rcParams)
    draw(tmp_path / "plot.png")
    pixels = matplotlib.image.imread(tmp_path / "plot.png")
    assert pixels.shape[0] > 200 and pixels.shape[1] > 600
    assert 0.001 < (pixels[..., :3].min(axis=-1) < 0.8).mean() < 0.9
    assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "plot.pdf").read_bytes().startswith(b"%PDF")


def drawn(monkeypatch, draw, path):
    """The axes that ``draw`` leaves behind, row by row."""
    kept, panels = [], plots.panels

    @contextmanager
    def keep(*size, **sizes):
        with panels(*size, **sizes) as axes:
            kept.append(axes)
            yield axes

    monkeypatch.setattr(plots, "panels", keep)
    monkeypatch.setattr(sweep_plots, "panels", keep)
    draw(path)
    return kept[0]


def swept(tmp_path, *settings, accuracy=0.5, **more):
    """Cells of one run per setting and seed."""
    runs = [
        finished(tmp_path / f"{i}-{seed}", accuracy, coverage=accuracy, seed=seed, **setting, **more)
        for i, setting in enumerate(settings)
        for seed in (0, 1)
    ]
    return read_cells(runs)


DIMS = [{"embedding": {"dim": d}} for d in (50, 5, 10)]
NAMED = [{"acquisition": {"name": name}} for name in ("ei", "costs $5 or $10")]


@pytest.mark.parametrize("accuracy", [0.0, 1.0])
@pytest.mark.parametrize("settings", [DIMS, NAMED, DIMS[:1]], ids=["numbers", "names", "draws"])
def test_percentages_lie_within_0_and_100(tmp_path, monkeypatch, settings, accuracy):
    cells = swept(tmp_path, *settings, accuracy=accuracy)
    [[axes]] = drawn(monkeypatch, lambda path: sweep_plots.draw_sweep(cells, path), tmp_path / "plot.png")
    low, high = axes.get_ylim() if settings is DIMS else axes.get_xlim()
    assert 0 <= low <= 100 * accuracy <= high <= 100 and high - low >= 9.99


def test_fifty_projections_are_a_distribution(tmp_path, monkeypatch):
    runs = [
        finished(tmp_path / str(i), 0.5 + i / 1000, method="soft_reasoning", embedding={"seed": i})
        for i in range(50)
    ]
    cells = read_cells(runs)
    assert len(cells) == 1
    [[axes]] = drawn(monkeypatch, lambda path: sweep_plots.draw_sweep(cells, path), tmp_path / "plot.png")
    assert sum(patch.get_height() for patch in axes.patches if hasattr(patch, "get_height")) >= 50
    note = "52.5 ± 1.5 %, range 50.0 to 54.9"
    assert sweep_plots.distribution_note([100 * v for v in cells[0].each("exact_match")]) == note
    [legend] = axes.figure.legends
    assert f"mean {note}" in [text.get_text() for text in legend.get_texts()]
