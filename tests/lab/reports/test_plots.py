"""Plots have something on them, and leave matplotlib as they found it."""

import pytest

from soft_reasoning.lab.reports import plots
from soft_reasoning.lab.reports.comparison import draw_sweep
from tests.lab.reports.sweeps import finished, settings

matplotlib = pytest.importorskip("matplotlib")
pytest.importorskip("matplotlib.figure")  # an attribute of matplotlib once it is imported

ROUNDS = [
    {"round": 1, "accuracy": 0.48, "best_reward": 1.3},
    {"round": 2, "accuracy": None, "best_reward": 1.4},
]
COT = {"label": "cot", "tokens": 30.0, "accuracy": 0.4, "accuracy low": 0.3, "accuracy high": 0.6}
OURS = {
    "label": "costs $5 or $10_{",
    "tokens": 400.0,
    "accuracy": 0.7,
    "accuracy low": 0.6,
    "accuracy high": 0.75,
}
CURVE = {"curve": [(200.0, 0.5), (400.0, 0.7)]}


def sweep(name, *values, accuracy):
    """A plot of two seeds of each value of an option."""

    def draw(path):
        runs = [
            finished(
                path.parent / f"{i}-{seed}",
                accuracy,
                measured={"coverage": accuracy},
                seed=seed,
                group={name: value},
            )
            for i, value in enumerate(values)
            for seed in (0, 1)
        ]
        draw_sweep(settings(runs), path)

    return draw


@pytest.mark.parametrize(
    "draw",
    [
        lambda path: plots.after_each_round(ROUNDS, 50, path),
        lambda path: plots.accuracy_against_tokens([COT, OURS | CURVE], path),
        sweep("numbers", 50, 5, 10, accuracy=0.0),
        sweep("names", "ei", "costs $5 or $10", accuracy=1.0),
        sweep("draws", 5, accuracy=1.0),
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
