"""The paper's figures beside a run's: rows of ``experiments/paper`` that match its configuration."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from soft_reasoning.analysis.settings import CLASS, flatten
from soft_reasoning.analysis.tables import MISSING, Table, count, percent, share

PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = (PACKAGE / "paper", PACKAGE.parent / "experiments" / "paper")
"""Folders of the tables: in an installed wheel, and in a clone."""

MODELS = {
    "llama3_8b": "llama-3-8b-instruct",
    "qwen2_7b": "qwen2-7b-instruct",
    "qwen2_72b": "qwen2-72b-instruct",
    "mistral_7b": "mistral-7b-instruct",
}
"""The ends of the names or folders of the paper's models, without versions."""

DATASETS = {
    "gsm8k": "GSM8K",
    "gsm_hard": "GSM-Hard",
    "svamp": "SVAMP",
    "strategyqa": "StrategyQA",
    "aime_2024": "AIME-2024",
}
"""The paper's names of its data sets, in the order of its columns."""

EI = (
    "expected_improvement", "noise_adaptive_expected_improvement", "log_expected_improvement",
    "printed_adaptive_ei", "released_ei",
)  # fmt: skip
CLASSES = {"pi": "log_probability_of_improvement", "ucb": "upper_confidence_bound"}
"""Acquisition functions whose class has another name."""

SAMPLING: dict[str, tuple[float, ...]] = {
    "method.temperature": (0.8,),
    "method.top_k": (50,),
    "method.top_p": (1,),
}
OWN: dict[str, Any] = {
    "cot_decoding": SAMPLING
    | {"method.aggregate": ("majority",), "method.continuation": ("sample",), "method.paths": (5,)},
    "fire": SAMPLING | {"method.first_temperature": (30,), "method.samples": (5,)},
    "self_consistency": SAMPLING | {"method.samples": (5,)},
    "soft_reasoning": {
        "acquisition": EI,
        "embedding": ("gaussian_embedding",),
        "embedding.dim": (50,),
        "method.placement": ("last",),
        "method.scope": (1,),
        "reward.coherence_weight": (1,),
        "reward.verifier_weight": (1,),
        "search.candidates": (5,),
        "search.optimiser": ("bayesian_optimiser",),
        "search.rounds": (4,),
        "search.stopping.rule": ("agreement", "difference", "improvement"),
        "verifier": ("multi_generate",),
        "verifier.presentation": ("together", "one_by_one", "none"),  # not the public code's
    },
}
"""By method, the accepted values of the paper's rows, unless a row changes them."""

PROBLEMS = 200
"""Problems of the runs whose total tokens the paper gives."""

NOTE = (
    "The paper: mean ± standard deviation over five seeds, 200 test problems (AIME 2024: 30), prompts and "
    "exemplars of its own. This run: ± the standard error over its problems."
)


@dataclass(frozen=True)
class Figure:
    """One figure of the paper, and the tables that show it; ``std`` is empty if it gives none."""

    metric: str
    value: str
    std: str
    tables: tuple[str, ...]


def figures(config: Mapping[str, Any]) -> list[Figure]:
    """Return the paper's figures for a run of ``config``, one per metric; empty if there are none."""
    flat = flatten(config)
    model, shots = model_of(str(flat.get("model.path"))), flat.get("dataset.shots")
    found: dict[str, Figure] = {}
    for row in _rows():
        if (
            (row["model"], row["dataset"]) == (model, flat.get("dataset.name"))
            and row["shots"] in ("", str(shots))
            and _fits(row["method"], flat)
        ):
            one = found.setdefault(row["metric"], Figure(row["metric"], row["value"], row["std"], ()))
            std, tables = one.std or row["std"], (*one.tables, row["table"])
            found[row["metric"]] = Figure(one.metric, one.value, std, tables)
    return list(found.values())


def beside(metrics: Mapping[str, Any], config: Mapping[str, Any]) -> Table | None:
    """Return a table of the run's metrics beside the paper's figures, if there are any."""
    rows = []
    for figure in figures(config):
        shown = _shown(figure, metrics)
        if shown is not None:
            others = len(figure.tables) - 1
            rows.append([*shown, figure.tables[0] + (f" and {others} more" if others else "")])
    return Table(["", "this run", "paper", "table"], rows) if rows else None


@cache
def _rows() -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for path in (path for folder in FOLDERS for path in sorted(folder.glob("*.csv"))):
        with path.open(encoding="utf-8", newline="") as file:
            rows += csv.DictReader(file)
    return rows


def model_of(path: str) -> str | None:
    """Return the paper's model that a hub name or a folder stands for."""
    for name, words in MODELS.items():
        if re.search(rf"{words}(-v[\d.]+)?(/|$)", path.lower()):
            return name
    return None


def _fits(method: str, flat: Mapping[str, Any]) -> bool:
    """Whether a run has the name and settings of the row ``method``."""
    name, *changes = method.split()
    wanted = OWN.get(name, {}) | {key: (value,) for key, value in (part.split("=") for part in changes)}
    if flat.get("embedding.sigma") == 0:  # all candidates are the greedy one
        return False

    def found(key: str) -> Any:
        return flat.get(key, flat.get(f"{key}.name", flat.get(key + CLASS)))

    return flat.get("method.name") == name and all(
        any(_same(found(key), value) for value in values) for key, values in wanted.items()
    )


def _same(found: Any, wanted: Any) -> bool:
    """Whether two values are equal: numbers by value, classes (``...GaussianEmbedding``) by name."""
    try:
        return float(found) == float(wanted)
    except (TypeError, ValueError):
        name = CLASSES.get(str(wanted), str(wanted))
        return str(found).rpartition(".")[2].lower().replace("_", "") == name.replace("_", "")


def _shown(figure: Figure, metrics: Mapping[str, Any]) -> list[str] | None:
    """A figure's label, the run's value and the paper's; None if it depends on the machine."""
    plain = f"{figure.value} ± {figure.std}" if figure.std else figure.value
    if figure.metric == "accuracy":
        return ["accuracy %", share(metrics, "exact_match"), plain]
    if figure.metric == "coverage":
        return ["coverage %", share(metrics, "coverage"), plain]
    if figure.metric == "verifier_accuracy":
        verifier = metrics["verifier"]
        ours = percent(verifier["accuracy"]) if verifier else MISSING
        return ["verifier's accuracy, first round %", ours, plain]
    if figure.metric.startswith("ended_after_"):
        number = int(figure.metric.rpartition("_")[2])
        ended = metrics["rounds"]["share_ended_after"].get(
            str(number + 1), 0.0
        )  # the first round has no proposals
        return [f"ended after {number} rounds of proposals %", percent(ended), plain]
    tokens = {"input_tokens": "prompt", "output_tokens": "generated"}.get(figure.metric)
    if tokens:
        ours = metrics["tokens"]["total"][tokens] / metrics["problems"]
        return [f"{tokens} tokens a problem", count(ours), count(float(figure.value) / PROBLEMS)]
    return None
