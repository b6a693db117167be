"""Tables, figures and page of the neuron analysis over many questions.

A row holds the figures of one question, as ``run.py`` measures them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from soft_reasoning.lab.reports import plots
from soft_reasoning.lab.reports.statistics import paired_bootstrap
from soft_reasoning.lab.reports.tables import Table, save
from soft_reasoning.lab.runs.files import write_text

SC, SR, CONTROL = "self_consistency", "soft_reasoning", "random_embedding"
COLORS = {SC: "#2f6db3", SR: "#e0812c", CONTROL: "#9a9a9a"}
MASKS = ("none", "key", "random", "random by layer")
ROUND = ("key", "random by layer", "right")
"""Figures of a round: activation rates of key neurons and of as many others, and correct answers."""
NOTES = """\
Values are means over questions with 95 % bootstrap intervals over questions. Rates are in percent, and
differences in points. The questions are those with both correct and wrong answers among completions that
are not used again. Answer positions 2 to 5 count for every source, because a searched answer's first
position is its soft token; in the paper all five count. As in the paper, key neurons are chosen and judged
on the same completions. Masked completions are new. The control draws random points in as many rounds."""
TITLES = {
    "activation_rate": "Activation rate",
    "activation_iterative": "Key neurons by round",
    "masking": "Masking while regenerating",
}


def interval(values: Iterable[float]) -> str:
    """Return the mean over questions and its interval, in percent."""
    numbers = [v for v in values if not math.isnan(v)]
    if not numbers:
        return "-"
    gap = paired_bootstrap(numbers, [0.0] * len(numbers))
    return f"{100 * gap.difference:.2f} ({100 * gap.low:.2f} to {100 * gap.high:.2f})"


def build_tables(rows: Sequence[Mapping[str, Any]]) -> dict[str, Table]:
    """Return every table by the name of its file."""
    rates = [
        [
            s,
            interval(row["rate"][s] for row in rows),
            "-" if s == SC else interval(row["rate"][s] - row["rate"][SC] for row in rows),
            interval(row["right"][s] for row in rows),
        ]
        for s in (SC, SR, CONTROL)
    ]
    columns = [(s, figure) for s in (SR, CONTROL) for figure in ROUND]
    rounds = [["initial" if r == 0 else str(r)] for r in range(max(len(row["rounds"][SR]) for row in rows))]
    for r, cells in enumerate(rounds):
        for s, figure in columns:
            cells.append(interval(row["rounds"][s][r][figure] for row in rows if r < len(row["rounds"][s])))
    rise = (interval(row["rounds"][s][-1][x] - row["rounds"][s][0][x] for row in rows) for s, x in columns)
    masked = [
        [
            name,
            interval(row["masked"][name] for row in rows),
            "-" if name == "none" else interval(row["masked"][name] - row["masked"]["none"] for row in rows),
        ]
        for name in MASKS
    ]
    for control in MASKS[2:]:
        less = interval(row["masked"]["key"] - row["masked"][control] for row in rows)
        masked.append([f"key minus {control}", less, "-"])
    return {
        "activation_rate": Table(["source", "active %", "minus self_consistency", "correct %"], rates),
        "activation_iterative": Table(
            ["round", *(f"{s}: {figure.replace('right', 'correct')}" for s, figure in columns)],
            [*rounds, ["last minus initial", *rise]],
        ),
        "masking": Table(["masked", "accuracy %", "minus none"], masked),
    }


def write(rows: Sequence[Mapping[str, Any]], out: Path, command: str) -> str:
    """Write tables, figures and neurons.md to ``out``; return the text of neurons.md."""
    out.mkdir(parents=True, exist_ok=True)
    keys = sum(row["keys"] for row in rows) / len(rows)
    parts = ["# Neurons", f"`{command}`", f"{len(rows)} questions, {keys:.0f} key neurons each on average."]
    for name, table in build_tables(rows).items():
        save(table, out, name)
        parts += [f"## {TITLES[name]}", table.markdown()]
        if name.startswith("activation") and plots.available():
            draw(rows, out / f"{name}.png")
            parts.append(f"![{name}]({name}.png)")
    text = "\n\n".join([*parts, NOTES]) + "\n"
    write_text(out / "neurons.md", text)
    write_text(out / "neurons.json", json.dumps(list(rows), indent=1) + "\n")
    return text


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Plot rates by layer: of all neurons by source and kind of answer, or of key neurons by round."""
    if path.stem == "activation_rate":
        panels = {
            "all neurons, first answer tokens": [
                (
                    f"{s}, {kind}",
                    [row["layers"][s][kind] for row in rows if kind in row["layers"][s]],
                    {"color": COLORS[s], "linestyle": "-" if kind == "right" else "--"},
                )
                for s in COLORS
                for kind in ("right", "wrong")
            ]
        }
    else:
        panels = {
            f"key neurons, {s}": [
                ("initial" if r == 0 else f"round {r}", [round["layers"] for round in by_round], {})
                for r, by_round in enumerate(zip(*(row["rounds"][s] for row in rows), strict=False))
            ]
            for s in (SR, CONTROL)
        }
    with plots.panels(path, columns=len(panels), width=5.5 * len(panels), height=4.4) as grid:
        for axes, (title, lines) in zip(grid[0], panels.items(), strict=True):
            for label, values, style in lines:
                if values:
                    mean = 100 * torch.tensor(values).nanmean(dim=0)  # of the questions with such neurons
                    axes.plot(mean, marker="o", markersize=4, label=label, **style)
            axes.set(title=title, xlabel="layer", ylabel="active (%)")
            axes.xaxis.get_major_locator().set_params(integer=True)
            axes.legend(fontsize=8)
