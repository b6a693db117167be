"""Tables, figures and page of the neuron analysis over many questions.

A row holds the figures of one question, as ``run.py`` measures them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from experiments.neurons import plots as neuron_plots
from soft_reasoning.reports import plots
from soft_reasoning.reports.statistics import paired_bootstrap
from soft_reasoning.reports.tables import Table, save
from soft_reasoning.runs.files import write_text

SC, SR, CONTROL = "self_consistency", "soft_reasoning", "random_embedding"
MASKS = ("none", "key", "random", "random by layer", "key, one half", "random by layer, one half")
PAPER = {"none": "62.14", "key": "13.27", "random": "41.89"}
NOTES = """\
Means over questions; intervals are 95 % bootstrap intervals over questions. Rates and differences are in
percent and points. The questions are those with both right and wrong answers among completions that are
not used again. Answer positions 2 to 5 count for every source (the first is a searched answer's soft token);
in the paper all five do. "One half": chosen on one half of self-consistency's completions, judged on the
other half or on new completions;
all else is chosen and judged on the same completions, as in the paper. Masked completions are new ones. The
control draws points at random, in as many rounds."""
TITLES = {
    "activation_rate": "Activation rate (the paper: Soft Reasoning 3 to 4 % above self-consistency)",
    "activation_iterative": "Key neurons by round (the paper: rising)",
    "masking": "Masking while regenerating",
}


def interval(values: Sequence[float]) -> str:
    """Return the mean over questions and its interval, in percent."""
    known = [v for v in values if not math.isnan(v)]
    if not known:
        return "-"
    found = paired_bootstrap(known, [0.0] * len(known))
    return f"{100 * found.difference:.2f} ({100 * found.low:.2f} to {100 * found.high:.2f})"


def tables_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, Table]:
    """Return every table by the name of its file."""
    base = [row["rate"][SC] for row in rows]
    rates = [
        [s, interval([row["rate"][s] for row in rows]),
         "-" if s == SC else interval([row["rate"][s] - b for row, b in zip(rows, base, strict=True)]),
         interval([row["right"][s] for row in rows])]
        for s in (SC, SR, CONTROL)
    ]  # fmt: skip
    shown = ("key", "random by layer", "right")
    columns = ["round", *(f"{s}: {what}" for s in (SR, CONTROL) for what in shown)]
    rounds = []
    for r in range(max(len(row["keys by round"][SR]) for row in rows)):
        cells = [
            interval([row[name][s][r] for row in rows if r < len(row[name][s])])
            for s in (SR, CONTROL)
            for name in ("keys by round", "matched by round", "right by round")
        ]
        rounds.append(["initial" if r == 0 else str(r), *cells])
    rise = [
        interval([row[name][s][-1] - row[name][s][0] for row in rows])
        for s in (SR, CONTROL)
        for name in ("keys by round", "matched by round", "right by round")
    ]
    rounds.append(["last less initial", *rise])
    masked = [
        [name, interval([row["masked"][name] for row in rows]),
         "-" if name == "none" else interval([row["masked"][name] - row["masked"]["none"] for row in rows]),
         PAPER.get(name, "-")]
        for name in MASKS
    ]  # fmt: skip
    for name, other in (("key", "random"), ("key", "random by layer"), (MASKS[4], MASKS[5])):
        less = [row["masked"][name] - row["masked"][other] for row in rows]
        paper = f"{float(PAPER[name]) - float(PAPER[other]):.2f}" if other in PAPER else "-"
        masked.append([f"{name} less {other}", interval(less), "-", paper])
    return {
        "activation_rate": Table(["source", "active %", "less self_consistency", "right %"], rates),
        "activation_iterative": Table(columns, rounds),
        "masking": Table(["masked", "accuracy %", "less none", "paper"], masked),
    }


def write(rows: Sequence[Mapping[str, Any]], out: Path, command: str) -> str:
    """Write tables, figures and neurons.md to ``out``; return the text of neurons.md."""
    out.mkdir(parents=True, exist_ok=True)
    keys = sum(row["keys"] for row in rows) / len(rows)
    parts = ["# Neurons", f"`{command}`", f"{len(rows)} questions, {keys:.0f} key neurons each on average."]
    for name, table in tables_of(rows).items():
        save(table, out, name)
        parts += [f"## {TITLES[name]}", table.markdown()]
        if name.startswith("activation") and plots.available():
            _draw(rows, out, name)
            parts.append(f"![{name}]({name}.png)")
    text = "\n\n".join([*parts, NOTES]) + "\n"
    write_text(out / "neurons.md", text)
    write_text(out / "neurons.json", json.dumps(list(rows), indent=1) + "\n")
    return text


def _draw(rows: Sequence[Mapping[str, Any]], out: Path, name: str) -> None:
    if name == "activation_rate":
        lines = {
            (s, kind): _mean([r["layers"][f"{s} {kind}"] for r in rows if f"{s} {kind}" in r["layers"]])
            for s in (SC, SR, CONTROL) for kind in (True, False)
        }  # fmt: skip
        known = {pair: line for pair, line in lines.items() if line}
        neuron_plots.activation_rates(known, out / f"{name}.png")
        return
    by_round = {s: zip(*(row["key layers by round"][s] for row in rows), strict=False) for s in (SR, CONTROL)}
    rounds = {s: [_mean(list(group)) for group in groups] for s, groups in by_round.items()}
    neuron_plots.key_rates(rounds, out / f"{name}.png")


def _mean(lines: Sequence[Sequence[float]]) -> list[float]:
    """Layer by layer, over the questions that have key neurons there."""
    return torch.tensor([list(line) for line in lines]).nanmean(dim=0).tolist() if lines else []
