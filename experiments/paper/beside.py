"""The paper's figures beside those of finished runs: python -m experiments.paper.beside FOLDER [--as MODEL]

FOLDER is a run or a sweep. Prints a row for each figure of the paper whose model, data set, shots, method and
settings (200 problems, 300 new tokens, no fake engine) are those of the runs: ours (mean ± standard deviation
over seeds, and the 95 % interval of drawing other problems), the paper's, and the difference; and the gain of
Soft Reasoning over the best baseline. Llama 3.1 has the figures of Llama 3, since the paper names both; the
first of them in the table counts in the mean over models. ``--as`` names the paper's model of runs in any
folder. Writes the table to beside_paper.csv, .tex and .md in FOLDER.
"""

from __future__ import annotations

import argparse
import csv
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from soft_reasoning.lab.reports.comparison import share
from soft_reasoning.lab.reports.frame import PLACE, VERDICTS, Frame, Setting, by_setting, read_runs
from soft_reasoning.lab.reports.tables import Table, count, estimate, number, save
from soft_reasoning.lab.runs.files import RESULTS, write_text
from soft_reasoning.lab.runs.manifest import flatten
from soft_reasoning.types import UserError

HERE = Path(__file__).parent

MODELS = {
    "llama3_8b": r"llama-3(\.1)?-8b-instruct",
    "qwen2_7b": "qwen2-7b-instruct",
    "qwen2_72b": "qwen2-72b-instruct",
    "mistral_7b": "mistral-7b-instruct",
}
"""Patterns of the ends of names or folders of the paper's models, without versions."""

EI = (
    "expected_improvement",
    "noise_adaptive_expected_improvement",
    "log_expected_improvement",
    "printed_adaptive_ei",
    "released_ei",
)
CLASS = "._target_"
"""The end of the key that holds a part's class."""
CLASSES = {"pi": "log_probability_of_improvement", "ucb": "upper_confidence_bound"}
"""Acquisition functions whose class has another name."""

SETTING: dict[str, tuple[Any, ...]] = {"max_new_tokens": (300,), "model.adapter": (None,)}
"""Settings of every row, unless the row changes them."""
SAMPLING: dict[str, tuple[float, ...]] = {
    "temperature": (0.8,),
    "method.top_k": (50,),
    "method.top_p": (1,),
}
OWN: dict[str, Any] = {
    "cot_decoding": SAMPLING
    | {"method.aggregate": ("majority",), "method.continuation": ("sample",), "k": (5,)},
    "fire": SAMPLING | {"method.first_temperature": (30,), "k": (5,)},
    "self_consistency": SAMPLING | {"k": (5,)},
    "soft_reasoning": {
        "acquisition": EI,
        "embedding": ("gaussian_embedding",),
        "d": (50,),
        "placement": ("last",),
        "method.scope": (1,),
        "reward.coherence_weight": (1,),
        "reward.verifier_weight": (1,),
        "k": (5,),
        "search": ("bayesian_optimiser",),
        "rounds": (4,),
        "stopping.rule": ("agreement", "difference", "improvement"),
        "verifier": ("multi_generate",),
        "verifier.presentation": ("together", "one_by_one", "none"),  # not the public code's
    },
}
"""By method, the accepted values of the paper's rows, unless a row changes them."""

FIRST_VERDICTS = "verifier_accuracy"
"""The paper's metric of the first round's verdicts, which does not depend on later rounds."""
LATER = ("rounds", "stopping.rule")

FOLDER = "FOLDER"
"""Stands in a row for any folder."""

PROBLEMS = 200
"""Problems of a run. AIME 2024 has fewer."""

NOTE = (
    "The paper: mean ± standard deviation over five seeds, 200 test problems (AIME 2024: 30), prompts and "
    "exemplars of its own. Rounds are rounds of proposals, and tokens are per problem."
)
SHARES = {"accuracy": "accuracy", "coverage": "coverage", FIRST_VERDICTS: VERDICTS}
"""Columns of the frame of settings by the paper's metric."""
AMOUNTS = {
    "input_tokens": ("prompt tokens", "tokens.total.prompt", 1.0),
    "output_tokens": ("generated tokens", "tokens.total.generated", 1.0),
    "minutes": ("minutes", "seconds.total", 60.0),
    "kv_peak_mb": ("keys and values, peak MiB", "peak_bytes.kv", 2.0**20),
    "activations_peak_mb": ("activations, peak MiB", "peak_bytes.activations", 2.0**20),
}
"""By the paper's metric: its label, its key in results.json and its unit."""
UNMEASURED = ("kv_mean_mb", "activations_mean_mb")
"""The paper's means over time, which no run measures."""


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, and the tables that show it; ``std`` is empty if the paper gives none."""

    metric: str
    value: str
    std: str
    tables: tuple[str, ...]


def figures(config: Mapping[str, Any], named: str | None = None) -> list[Figure]:
    """Return the paper's figures for a run of ``config``, figure per metric; empty if there are none.

    ``named`` is the paper's model of the run; by default its name or folder tells.
    """
    flat = flatten(config)
    limit = PROBLEMS if flat.get("dataset.name") != "aime_2024" else flat.get("dataset.limit")
    if flat.get("dataset.limit") != limit or str(flat.get(f"engine{CLASS}")).endswith("FakeEngine"):
        return []
    model, shots = named or match_model(str(flat.get("model.path"))), flat.get("dataset.shots")
    by_metric: dict[str, Figure] = {}
    for row in _rows():
        if (
            (row["model"], row["dataset"]) == (model, flat.get("dataset.name"))
            and row["shots"] in ("", str(shots))
            and row["metric"] not in UNMEASURED
            and _fits(row["method"], flat, LATER if row["metric"] == FIRST_VERDICTS else ())
        ):
            figure = by_metric.setdefault(row["metric"], Figure(row["metric"], row["value"], row["std"], ()))
            std, tables = figure.std or row["std"], (*figure.tables, row["table"])
            by_metric[row["metric"]] = Figure(figure.metric, figure.value, std, tables)
    return list(by_metric.values())


def beside(settings: Frame, named: str | None = None) -> Table:
    """Return a row for each figure of the paper that fits one of the settings, all of the model ``named``."""
    rows = []
    for _, cell in settings.iterrows():
        for figure in figures(cell.config[0], named):
            others = f" and {len(figure.tables) - 1} more" if len(figure.tables) > 1 else ""
            head = [cell.model, cell["data set"], str(cell.shots), cell.label]
            rows.append([*head, *compare(figure, cell), figure.tables[0] + others])
    gains = [
        (*place, *gain)
        for place, there in settings.groupby(PLACE, sort=False)
        for gain in _gains(there, named)
    ]
    by_method: dict[tuple[str, int, str], dict[str | None, tuple[float, float]]] = {}
    for model, shots, dataset, path, label, *points in gains:
        rows.append(_gain_row(model, dataset, shots, label, *points))
        by_model = by_method.setdefault((dataset, shots, label), {})
        by_model.setdefault(match_model(path), (points[0], points[1]))
    for setting, points in by_method.items():
        if len(points) > 1:
            means = (statistics.fmean(values) for values in zip(*points.values(), strict=True))
            rows.append(_gain_row(f"mean of {len(points)} models", *setting, *means))
    columns = ["model", "data set", "shots", "method", "figure", "ours", "paper", "difference", "table"]
    return Table(columns, rows, labels=5)


def _gain_row(model: str, dataset: str, shots: int, label: str, ours: float, paper: float) -> list[str]:
    gains = [f"{ours:+.1f}", f"{paper:+.1f}", f"{ours - paper:+.1f}"]
    return [model, dataset, str(shots), label, "accuracy, gain over best baseline", *gains, "tab:main_result"]


def _gains(settings: Frame, named: str | None) -> list[tuple[str, str, float, float]]:
    """Each path and label with accuracy minus the best baseline's in the same runs, ours and the paper's."""
    pairs = []
    for _, cell in settings[settings["accuracy"].notna()].iterrows():
        paper = [float(f.value) for f in figures(cell.config[0], named) if f.metric == "accuracy"]
        if paper:
            pairs.append((cell, 100 * cell.accuracy, paper[0]))
    baselines = [pair[1:] for pair in pairs if pair[0].method != "soft_reasoning"]
    if not baselines:
        return []
    best, best_paper = (max(values) for values in zip(*baselines, strict=True))
    ours = [pair for pair in pairs if pair[0].method == "soft_reasoning"]
    return [
        (cell.config[0]["model"]["path"], cell.label, points - best, paper - best_paper)
        for cell, points, paper in ours
    ]


def compare(figure: Figure, cell: Setting) -> list[str]:
    """A figure's label, the runs' value, the paper's, and the difference of shares in points."""
    if figure.metric in AMOUNTS:
        label, key, unit = AMOUNTS[figure.metric]
        values = [flatten(results).get(key) for results in cell.results]
        ours = None if None in values else statistics.fmean(values)
        paper = float(figure.value)
        if label.endswith("tokens"):
            per_problem = ours and ours / cell.problems
            return [label, count(per_problem), count(paper / PROBLEMS), "-"]
        return [label, number(ours and ours / unit), number(paper), "-"]
    if figure.metric in SHARES:
        name = SHARES[figure.metric]
        label, mean, ours = f"{name} %", cell[name], share(cell, name)
    else:  # "ended_after_N"; the first round of candidates has no proposals
        rounds = int(figure.metric.rpartition("_")[2])
        ended = [run["rounds"]["share_ended_after"].get(str(rounds + 1), 0.0) for run in cell.results]
        label, mean = f"ended after {rounds} rounds %", statistics.fmean(ended)
        ours = estimate(mean, std=statistics.stdev(ended) if len(ended) > 1 else math.nan)
    paper = f"{figure.value} ± {figure.std}" if figure.std else figure.value
    difference = "-" if math.isnan(mean) else f"{100 * mean - float(figure.value):+.1f}"
    return [label, ours, paper, difference]


@cache
def _rows() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for path in sorted(HERE.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows += csv.DictReader(file)
    return rows


def match_model(path: str) -> str | None:
    """Return the paper's model that a hub name or a folder stands for."""
    for name, words in MODELS.items():
        if re.search(rf"{words}(-v[\d.]+)?(/|$)", path.lower()):
            return name
    return None


def _fits(method: str, flat: Mapping[str, Any], free: Sequence[str] = ()) -> bool:
    """Whether a run has the name and settings of the row ``method``, except for the keys ``free``."""
    name, *changes = method.split()
    changed = {key: (value,) for key, value in (part.split("=") for part in changes)}
    wanted = SETTING | OWN.get(name, {}) | changed
    if flat.get("embedding.sigma") == 0:  # all candidates equal the greedy solution
        return False

    def configured(key: str) -> Any:
        return flat.get(key, flat.get(f"{key}.name", flat.get(key + CLASS)))

    fits = (
        any(_same(configured(key), v) for v in values) for key, values in wanted.items() if key not in free
    )
    return flat.get("method.name") == name and all(fits)


def _same(value: Any, expected: Any) -> bool:
    """Whether two values are equal: numbers by value, classes (``...GaussianEmbedding``) by name."""
    if expected is None or expected == FOLDER:
        return (value is None) == (expected is None)
    try:
        return float(value) == float(expected)
    except (TypeError, ValueError):
        name = CLASSES.get(str(expected), str(expected))
        return str(value).rpartition(".")[2].lower().replace("_", "") == name.replace("_", "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a run's or a sweep's folder")
    parser.add_argument("--as", dest="named", choices=MODELS, help="the paper's model that the runs are of")
    options = parser.parse_args()
    folder: Path = options.folder
    try:
        settings = by_setting(read_runs(sorted(path.parent for path in folder.rglob(RESULTS))))
        table = beside(settings, options.named)
        if not table.rows:
            raise UserError(
                f"{folder}: expected runs of the paper's settings, found none; name the model by --as, or "
                "see docs/paper.md"
            )
    except UserError as error:
        parser.error(str(error))
    save(table, folder, "beside_paper")
    text = f"{table.markdown()}\n\n{NOTE}\n"
    write_text(folder / "beside_paper.md", text)
    print(text)


if __name__ == "__main__":
    main()
