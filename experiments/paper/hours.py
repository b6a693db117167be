"""GPU hours of the paper's tables and figures, from its printed times: python -m experiments.paper.hours

The paper prints the minutes of each method on 200 problems with eight exemplars and Llama 3 8B
(computation2.csv); it names no hardware. A run here counts that time whatever its exemplars and options, so
fewer exemplars take less. What is not printed is derived: greedy decoding takes a fifth of five samples'
time, the prefix scorer as long as five samples, 30 problems of AIME 2024 as long as 30 of GSM-Hard, and 72
billion parameters nine times as long. The speeds that fit the printed times best are printed, too.
"""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser

from soft_reasoning.cli.compose import compose_config, methods_of
from soft_reasoning.cli.groups import register
from soft_reasoning.configuration.data import conf_dir
from soft_reasoning.lab.reports.tables import Table, count, number

HERE = Path(__file__).parent
LARGE = {"qwen2_72b": 9.0}
"""Times of models relative to 8 billion parameters'; those of 7 billion count as 8."""
FILES = sorted(path.stem for path in Path(conf_dir(), "experiment").glob("paper_*.yaml"))
WITHOUT = ("paper_neurons",)
"""Experiments that are no runs of a method."""


def read(name: str) -> dict[tuple[str, str], dict[str, float]]:
    """The values of a table of the paper by method, data set and metric."""
    values: dict[tuple[str, str], dict[str, float]] = {}
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            values.setdefault((row["method"], row["dataset"]), {})[row["metric"]] = float(row["value"])
    return values


PRINTED = {place: values["minutes"] for place, values in read("computation2.csv").items()}


def minutes(method: str, dataset: str, model: str = "llama3_8b") -> float:
    """The minutes of one run of ``method`` (with its temperature, if it has one)."""
    if dataset == "aime_2024":
        return 30 / 200 * minutes(method, "gsm_hard", model)
    samples = PRINTED["self_consistency temperature=0.8", dataset]
    derived = {"cot": samples / 5, "prefix_scorer": samples}
    return LARGE.get(model, 1.0) * (derived.get(method) or PRINTED[method, dataset])


def runs(name: str) -> list[tuple[str, str, str]]:
    """The method, data set and model of every run of an experiment."""
    register()
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_dir())):
        config = compose("config", overrides=[f"+experiment={name}"], return_hydra_config=True)
    values = swept(config.hydra.sweeper.params or {})
    found, methods = [], {}
    for point in itertools.product(*values.values()):
        chosen = dict(zip(values, point, strict=True))
        shots = chosen.get("dataset.shots", config.dataset.shots)
        if shots not in methods:
            composed = compose_config([f"+experiment={name}", f"dataset.shots={shots}"])
            methods[shots] = [named(label) for label in methods_of(composed)] or ["soft_reasoning"]
        place = (chosen.get("dataset", "gsm8k"), chosen.get("model", "llama3_8b"))
        found += [(method, *place) for method in methods[shots]]
    return found


def swept(params: Mapping[str, Any]) -> dict[str, list[str]]:
    """The values of each option of a sweep."""
    parser = OverridesParser.create()
    overrides = [parser.parse_override(f"{key}={value}") for key, value in params.items()]
    return {
        o.key_or_group: list(o.sweep_string_iterator()) if o.is_sweep_override() else [str(o.value())]
        for o in overrides
    }


def named(label: str) -> str:
    """The method in a label, with the temperature that the printed times tell apart."""
    name, *words = label.split()
    return " ".join([name, *(word for word in words if word.startswith("temperature="))])


def fit() -> tuple[list[float], float]:
    """Tokens read and written in a second that fit the printed times best, and their largest relative error.

    The times and tokens are those of Soft Reasoning and RAP on four data sets.
    """
    rows = list(read("llama-comparison.csv").values())
    times = np.array([row["minutes"] * 60 for row in rows])
    tokens = np.array([[row["input_tokens"], row["output_tokens"]] for row in rows]) / times[:, None]
    seconds, *_ = np.linalg.lstsq(tokens, np.ones(len(rows)), rcond=None)
    return [1 / value for value in seconds.tolist()], float(np.abs(tokens @ seconds - 1).max())


def main() -> None:
    rows = []
    for name in FILES:
        if name not in WITHOUT:
            found = runs(name)
            hours = math.fsum(minutes(*run) for run in found) / 60
            rows.append([name, count(len(found)), number(hours, 1)])
    print(Table(["experiment", "runs", "GPU hours"], rows).markdown())
    speeds, error = fit()
    print(
        "\nThe printed times fit {:,.0f} tokens read and {:,.0f} written in a second".format(*speeds), end=""
    )
    print(f" within {100 * error:.0f} %.")


if __name__ == "__main__":
    main()
