"""Several runs on the same problems side by side, with statistics."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from soft_reasoning.lab.reports import plots
from soft_reasoning.lab.reports.run_groups import (
    LABEL,
    METHOD,
    RunGroup,
    default_reference,
    group_runs,
    named_reference,
)
from soft_reasoning.lab.reports.statistics import half_width, holm, paired_bootstrap, paired_permutation
from soft_reasoning.lab.reports.tables import Table, count, duration, memory, over_seeds, percent, rough, save
from soft_reasoning.lab.runs.files import write_json, write_text, writing
from soft_reasoning.lab.runs.manifest import tokens_scale_with_samples
from soft_reasoning.lab.runs.records import COVERAGE_AT, MEMORY, read_outcomes
from soft_reasoning.types import UserError

COMPARISON = "comparison.md"
SHARES = {"exact_match": "accuracy", "coverage": "coverage"} | {
    name: name for name in (f"coverage@{COVERAGE_AT}", f"pass@{COVERAGE_AT}")
}
"""Columns of shares by their names in results.json."""
QUALITY: dict[str, Callable[[Mapping[str, Any]], str]] = {
    **{
        f"{title} %": lambda row, name=name: over_seeds(row[name], row[f"{name}_stderr"])
        for name, title in SHARES.items()
    },
    "difference": lambda row: f"{100 * row['difference']:+.1f}" if "p" in row else "reference",
    "95 % interval": lambda row: f"{percent(row['low'])} to {percent(row['high'])}" if "p" in row else "",
    "p": lambda row: "" if "p" not in row else "< 0.0001" if row["p"] < 1e-4 else f"{row['p']:.4f}",
    "n": lambda row: count(row["n"]) if "p" in row else "",
}
COST: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "prompt": lambda row: count(row["prompt"]),
    "cached": lambda row: count(row["cached"]),
    "generated": lambda row: count(row["tokens"]),
    "sequences": lambda row: f"{row['sequences']:,.1f}",
    "time": lambda row: duration(row["seconds"]),
    "operations": lambda row: rough(row["flops"]),
    "keys and values": lambda row: memory(row["peak_bytes"]["kv"]),
    "activations": lambda row: memory(row["peak_bytes"]["activations"]),
    "decided %": lambda row: percent(row["decided"]),
}
"""The columns of both tables, with functions that format a row of comparison.json."""

NOTE = (
    "Mean ± standard deviation over seeds, or ± standard error for a single run. Difference: accuracy less "
    "that of {reference}, in points, on the n problems of both, with a paired bootstrap interval; p: paired "
    "permutation test (McNemar's for single runs), Holm-corrected for all rows. Tokens, sequences, time "
    "and (floating-point) operations are per problem, memory is the most in use. Decided: the share of "
    "points that the acquisition function chose."
)


def compare(
    folders: Sequence[str | Path],
    folder: str | Path | None = None,
    *,
    reference: str | Path | None = None,
    show: bool = True,
) -> tuple[Table, Table]:
    """Compare finished runs in two tables with a row per setting: quality of answers, and cost.

    Runs that differ only in their seed share a row.

    Args:
        folders: Folders of finished runs.
        folder: Where to write ``comparison.md``, ``comparison.json``, the tables as CSV and LaTeX, and a
            plot of accuracy against tokens. None writes nothing.
        reference: The label of the row that others are tested against, or one of its folders. The default is
            the row of ``soft_reasoning`` without options, else the first row of this method, else the first
            row.
        show: Whether to print the tables as well.

    Raises:
        UserError: If a folder holds no finished run, or a row and the reference share no graded problem.
    """
    if not folders:
        raise UserError("compare: expected at least one run's folder, got none")
    groups = group_runs([Path(path) for path in folders])
    columns = ("model", "dataset", "shots")
    varied = [name for name in columns if len({getattr(group, name) for group in groups}) > 1]
    for i, group in enumerate(groups):
        method_part = {} if {LABEL, METHOD} & set(group.setting) else {METHOD: group.method}
        columns_part = {name: getattr(group, name) for name in varied}
        groups[i] = replace(group, setting={**columns_part, **method_part, **group.setting})
    if isinstance(reference, Path):
        base = next(group for group in groups if reference in group.folders)
    else:
        base = default_reference(groups) if reference is None else named_reference(groups, reference)
    rows = _statistics(groups, base)
    notes = [NOTE.format(reference=base.label), *_budgets(groups, base)]
    labelled = [(row["label"], row) for row in rows]
    accuracies = [row["accuracy"] for row in rows]
    bold = [(i, 1) for i, value in enumerate(accuracies) if value == max(accuracies) > min(accuracies)]
    quality = replace(Table.of("method", labelled, QUALITY, note=" ".join(notes)), bold=bold)
    tables = quality, Table.of("method", labelled, COST, "Cost")
    if folder is not None:
        if show:
            print("\n\n".join([*(table.text() for table in tables), *notes]))
        pictures = _write(Path(folder), tables, rows)
        images = [f"![{title}]({file})" for title, file in pictures.items()] or [plots.MISSING]
        parts = ["# Comparison", *(table.markdown() for table in tables), *notes, *images]
        write_text(Path(folder) / COMPARISON, "\n\n".join(parts) + "\n")
    return tables


def _grades(group: RunGroup) -> Any:
    """For each graded problem the share of its seeds with a ``right`` answer, and the number of ``seeds``."""
    outcomes = [pair for folder in group.folders for pair in read_outcomes(folder).items()]
    names, corrects = [name for name, _ in outcomes], [outcome.correct for _, outcome in outcomes]
    graded = pd.Series(corrects, names, dtype=object).dropna().astype(float)
    if graded.empty:
        raise UserError(
            f"compare: {group.label} has no problem with a reference answer; give the data's gold"
        )
    return graded.groupby(level=0).agg(right="mean", seeds="size")


def _statistics(groups: Sequence[RunGroup], base: RunGroup) -> list[dict[str, Any]]:
    """The content of comparison.json: a row per setting, unrounded."""
    grades = [_grades(group) for group in groups]
    reference = grades[groups.index(base)]
    rows, tested = [], []
    for group, graded in zip(groups, grades, strict=True):
        accuracies: Any = pd.Series(group.each("exact_match"))
        several, first = len(group.results) > 1, group.results[0]
        peaks = {kind: group.each("peak_bytes", kind) for kind in MEMORY}
        row: dict[str, Any] = {
            "label": group.label,
            "runs": len(group.results),
            "accuracy": accuracies.mean(),
            "error": accuracies.std() if several else first.get("exact_match_stderr"),
            "interval": half_width(accuracies.std(), len(accuracies), first.get("exact_match_stderr")),
            "curve": mean_curve([result["after_each_round"] for result in group.results]),
            **{name: group.each(name) for name in SHARES},
            **{f"{name}_stderr": None if several else first.get(f"{name}_stderr") for name in SHARES},
            **{
                name: group.per_problem("tokens", "total", name) for name in ("prompt", "cached", "sequences")
            },
            "tokens": group.per_problem("tokens", "total", "generated"),
            "seconds": group.per_problem("seconds", "total"),
            "flops": group.per_problem("flops", "total") or None,
            "peak_bytes": {kind: int(max(sizes)) if sizes else None for kind, sizes in peaks.items()},
            "decided": group.mean("decided"),
        }
        if group is not base:
            pair = _paired(graded, reference)
            if not pair[0]:
                raise UserError(
                    f"compare: {group.label} and {base.label}: expected problems that both have, with "
                    "reference answers, got none; compare runs on the same problems"
                )
            interval = paired_bootstrap(*pair)
            row |= {"difference": interval.difference, "low": interval.low, "high": interval.high}
            row |= {"n": len(pair[0]), "p_uncorrected": paired_permutation(*pair)}
            tested.append(row)
        rows.append(row)
    for row, p in zip(tested, holm([row["p_uncorrected"] for row in tested]), strict=True):
        row["p"] = p
    return rows


def mean_curve(curves: Sequence[Sequence[Mapping[str, Any]]]) -> list[tuple[float, float]]:
    """(tokens, accuracy) after each round, mean over runs; empty unless all accuracies are known."""
    rounds = [[c[min(n, len(c) - 1)] for c in curves] for n in range(max(map(len, curves))) if all(curves)]
    if any(row["accuracy"] is None for rows in rounds for row in rows):
        return []
    return [(fmean(r["tokens"] for r in rows), fmean(r["accuracy"] for r in rows)) for rows in rounds]


def _paired(grades: Any, base: Any) -> tuple[list[float], list[float]]:
    """Mean correctness of both on each shared problem, weighted by the number of seeds with it in both.

    With the same problems in every seed all weights are 1. If each seed draws its own problems, the means
    of the two lists are the accuracies over all pairs of a seed and a problem.
    """
    both = grades.join(base, how="inner", rsuffix="_base").sort_index()
    seeds = both[["seeds", "seeds_base"]].min(axis=1)
    weights = seeds * len(both) / seeds.sum()
    return (weights * both["right"]).tolist(), (weights * both["right_base"]).tolist()


def _budgets(groups: Sequence[RunGroup], base: RunGroup) -> list[str]:
    """A note on the methods that had the reference's tokens under ``budget=equal``."""
    equal = {
        group.label: [config["method"] for config in group.configs if config.get("budget") == "equal"]
        for group in groups
    }
    if not any(equal.values()):
        return []
    samples = {
        label: sorted({method["samples"] for method in methods if tokens_scale_with_samples(method)})
        for label, methods in equal.items()
        if label != base.label
    }
    matched = [f"{label} ({', '.join(map(str, chosen))})" for label, chosen in samples.items() if chosen]
    return [
        f"Equal budget: samples were chosen to write as many tokens as {base.label} generates: "
        f"{', '.join(matched) or 'of no method'}. With a budget of their own: "
        f"{', '.join(label for label, chosen in samples.items() if not chosen) or 'none'}."
    ]


def _write(folder: Path, tables: Sequence[Table], rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Write tables, rows and the plot; return the plot's file by title."""
    pictures = {"Accuracy against tokens": "accuracy_against_tokens.svg"} if plots.available() else {}
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file in pictures.values():
            plots.accuracy_against_tokens(rows, folder / file)
    if not pictures:
        print(plots.MISSING)
    save(tables[0], folder, "comparison")
    save(tables[1], folder, "comparison_cost")
    write_json(folder / "comparison.json", list(rows))
    return pictures
