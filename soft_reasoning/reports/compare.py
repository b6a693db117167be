"""Several runs on the same problems side by side, with statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from soft_reasoning.reports import plots
from soft_reasoning.reports.settings import differing, is_draw
from soft_reasoning.reports.statistics import holm, mean_std, paired_bootstrap, paired_permutation
from soft_reasoning.reports.tables import Table, best, count, duration, memory, over_seeds, percent, save
from soft_reasoning.reports.viewer.files import shown
from soft_reasoning.reports.viewer.overview import Column, Group, write_overview
from soft_reasoning.runs.files import (
    read_grades,
    read_manifest,
    read_results,
    write_json,
    write_text,
    writing,
)
from soft_reasoning.runs.manifest import setting_keys
from soft_reasoning.runs.records import FIRST, MEMORY, ease
from soft_reasoning.types import UserError

COMPARISON = "comparison.md"
PREFERRED = "soft_reasoning"
"""The default reference, if a run of this method is compared."""

SHARES = ("exact_match", "coverage", f"coverage@{FIRST}", f"pass@{FIRST}")
"""Metrics of results.json with a column each."""
QUALITY = (
    "method", "accuracy %", *(f"{name} %" for name in SHARES[1:]), "difference", "95 % interval", "p", "n",
)  # fmt: skip
COST = (
    "method", "prompt", "cached", "generated", "sequences", "time", "keys and values", "activations",
    "decided %",
)  # fmt: skip

NOTE = (
    "Accuracy, coverage and pass@m (unbiased, for independent samples) are mean ± standard deviation over "
    "seeds, or ± standard error for a single run. "
    "Difference is that of accuracy to {reference}, in points, on the n problems of both, each weighted by "
    "the seeds that have it in both; its interval is a paired bootstrap over problems. "
    "p is a two-sided paired permutation test (McNemar's exact test for single runs), Holm-corrected for all "
    "rows together, so that it may be above 0.05 where the interval, which is each row's own, excludes 0. "
    "Tokens, sequences and time are per problem. Keys and values, and activations (counted only on GPUs), "
    "are the most memory in use with all active problems. Decided is the share of proposals that the "
    "acquisition function decided."
)


@dataclass(frozen=True)
class _Group:
    """The runs of one setting (one per seed), and the correctness of each problem in each run that has it."""

    label: str
    folders: tuple[Path, ...]
    configs: tuple[Mapping[str, Any], ...]
    runs: tuple[Mapping[str, Any], ...]
    correct: Mapping[str, Sequence[bool]]
    levels: Mapping[str, str]
    """The difficulty of each problem that has one."""

    def each(self, name: str) -> list[float]:
        return [run[name] for run in self.runs if run.get(name) is not None]

    def among(self, names: Set[str]) -> _Group:
        """Only the problems ``names``."""
        return replace(self, correct={name: its for name, its in self.correct.items() if name in names})

    def per_problem(self, *path: str) -> float:
        """The mean over runs of a count or a time, divided by the run's problems."""
        total = 0.0
        for run in self.runs:
            value: Any = run
            for name in path:
                value = value.get(name, {})
            total += (value or 0.0) / run["problems"]
        return total / len(self.runs)

    def peak(self, kind: str) -> int | None:
        """The most bytes of ``kind`` in any run."""
        known = [run.get("peak_bytes", {}).get(kind) for run in self.runs]
        return max((size for size in known if size is not None), default=None)

    @property
    def equal(self) -> tuple[int, ...]:
        """The samples that an equal budget allowed, over seeds; none where there was no such number."""
        methods = [c["method"] for c in self.configs if c.get("budget") == "equal"]
        return tuple(sorted({m["samples"] for m in methods if "samples" in m and "verifier" not in m}))


def compare(
    folders: Sequence[str | Path],
    folder: str | Path | None = None,
    *,
    reference: str | None = None,
    seed: int = 0,
    show: bool = True,
) -> tuple[Table, Table]:
    """Compare finished runs in two tables with one row per setting: quality of answers, and cost.

    Runs that differ only in their seed share a row. Where problems have difficulties, a third table of
    accuracy is written.

    Args:
        folders: Folders of finished runs.
        folder: Where to write ``comparison.md``, ``comparison.json``, the tables as CSV and LaTeX, a
            plot of accuracy against tokens, and ``report.html``. None writes nothing.
        reference: Label of the row that others are tested against. By default that of ``soft_reasoning``
            without changes, else the first of its rows, else the first row.
        seed: Seed of the bootstrap and the permutation test.
        show: Whether to print the tables as well.

    Raises:
        UserError: If a folder holds no finished run, or a row and the reference share no graded problem.
    """
    groups = _groups([Path(one) for one in folders])
    base = _reference(groups, reference)
    rows = _statistics(groups, base, seed)
    bold = [(i, 1) for i in best([row["accuracy"] for row in rows])]
    quality = Table(QUALITY, [_quality(row) for row in rows], bold=bold)
    tables = quality, Table(COST, [_cost(row) for row in rows])
    if folder is not None:
        notes = [NOTE.format(reference=base.label), *_budgets(groups, base)]
        levels = _by_level(groups, base, seed)
        written = [*tables, *levels]
        if show:
            print("\n\n".join([*(table.text() for table in written), *notes]))
        _write(Path(folder), written, rows, notes)
        columns = [Column(group.label, group.folders) for group in groups]
        parts = [shown(quality, note=" ".join(notes)), shown(tables[1], "Cost")]
        parts += [shown(table, "Accuracy by difficulty") for table in levels]
        write_overview(Path(folder), "Comparison", parts, [Group("", columns)])
    return tables


def _groups(folders: Sequence[Path]) -> list[_Group]:
    if not folders:
        raise UserError("compare: expected at least one run's folder, got none")
    configs = [read_manifest(path)["config"] for path in folders]
    members: dict[str, list[int]] = {}
    for i, config in enumerate(configs):
        keys = {key: value for key, value in setting_keys(config).items() if not is_draw(key)}
        members.setdefault(repr(sorted(keys.items())), []).append(i)
    labels = _labels([configs[indices[0]] for indices in members.values()])
    groups = []
    for label, indices in zip(labels, members.values(), strict=True):
        correct: dict[str, list[bool]] = {}
        levels: dict[str, str] = {}
        for i in indices:
            for name, grade in read_grades(folders[i]).items():
                if grade["correct"] is not None:
                    correct.setdefault(name, []).append(grade["correct"])
                if grade.get("difficulty") is not None:
                    levels[name] = grade["difficulty"]
        if not correct:
            raise UserError(f"compare: {label} has no problem with a reference answer; give the data's gold")
        runs = tuple(read_results(folders[i]) for i in indices)
        paths = tuple(folders[i] for i in indices)
        groups.append(_Group(label, paths, tuple(configs[i] for i in indices), runs, correct, levels))
    return groups


def _labels(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The run's label or its method's name, with the settings that differ between rows of the same name."""
    names = [config.get("label") or _method(config) for config in configs]
    labels = list(names)
    for name in set(names):
        same = [i for i, other in enumerate(names) if other == name]
        for i, settings in zip(same, differing([configs[i] for i in same]), strict=True):
            settings_shown = [f"{key}={value}" for key, value in settings.items() if not is_draw(key)]
            labels[i] = " ".join([name, *settings_shown])
    return labels


def _method(config: Mapping[str, Any]) -> str:
    method = config.get("method")
    return str(method.get("name", "method")) if isinstance(method, Mapping) else str(method)


def _reference(groups: Sequence[_Group], label: str | None) -> _Group:
    if label is None:
        ours = [group for group in groups if _method(group.configs[0]) == PREFERRED] or groups
        return next((group for group in ours if group.label == PREFERRED), ours[0])
    for group in groups:
        if label in (group.label, group.label.removeprefix(f"{_method(group.configs[0])} ")):
            return group
    raise UserError(f"compare: expected a reference among {', '.join(g.label for g in groups)}, got {label}")


def _statistics(groups: Sequence[_Group], base: _Group, seed: int) -> list[dict[str, Any]]:
    """The content of comparison.json: one row per setting, unrounded."""
    rows, tested = [], []
    for group in groups:
        accuracy, std = mean_std(group.each("exact_match"))
        several, first = len(group.runs) > 1, group.runs[0]
        row: dict[str, Any] = {
            "label": group.label,
            "runs": len(group.runs),
            "accuracy": accuracy,
            "error": std if several else first.get("exact_match_stderr"),
            **{name: group.each(name) for name in SHARES},
            **{f"{name}_stderr": None if several else first.get(f"{name}_stderr") for name in SHARES},
            "prompt": group.per_problem("tokens", "total", "prompt"),
            "cached": group.per_problem("tokens", "total", "cached"),
            "sequences": group.per_problem("tokens", "total", "sequences"),
            "tokens": group.per_problem("tokens", "total", "generated"),
            "seconds": group.per_problem("seconds", "total"),
            "peak_bytes": {kind: group.peak(kind) for kind in MEMORY},
            "decided": fmean(shares) if (shares := group.each("decided")) else None,
        }
        if group is not base:
            pair = _paired(group, base)
            interval = paired_bootstrap(*pair, seed=seed)
            row |= {"difference": interval.difference, "low": interval.low, "high": interval.high}
            row |= {"n": len(pair[0]), "p_uncorrected": paired_permutation(*pair, seed=seed)}
            tested.append(row)
        rows.append(row)
    for row, p in zip(tested, holm([row["p_uncorrected"] for row in tested]), strict=True):
        row["p"] = p
    return rows


def _by_level(groups: Sequence[_Group], base: _Group, seed: int) -> list[Table]:
    """Accuracy by difficulty, and its difference to ``base`` with its interval; none without difficulties."""
    found = {level for group in groups for level in group.levels.values()}
    if not found:
        return []
    levels = sorted(found, key=ease)
    rows = []
    for group in groups:
        cells = []
        for level in levels:
            names = {name for name, its in group.levels.items() if its == level}
            pair = _paired(group.among(names), base.among(names)) if names & base.correct.keys() else None
            right = [sum(group.correct[name]) / len(group.correct[name]) for name in names]
            cell = percent(fmean(right)) if right else "-"
            if pair is not None and group is not base:
                gap = paired_bootstrap(*pair, seed=seed)
                cell += f", {100 * gap.difference:+.1f} ({percent(gap.low)} to {percent(gap.high)})"
            cells.append(cell)
        rows.append([group.label, *cells])
    return [Table(("method", *(f"{level}, accuracy %" for level in levels)), rows)]


def _paired(group: _Group, base: _Group) -> tuple[list[float], list[float]]:
    """Mean correctness of both on each shared problem, weighted by the seeds that have it in both.

    With the same problems in every seed all weights are 1. If each seed draws its own problems, the means
    of the two lists are the accuracies over all pairs of a seed and a problem.
    """
    shared = sorted(base.correct.keys() & group.correct.keys())
    if not shared:
        raise UserError(
            f"compare: {group.label} and {base.label}: expected problems that both have, with reference "
            "answers, got none; compare runs on the same problems"
        )
    seeds = [min(len(group.correct[name]), len(base.correct[name])) for name in shared]
    weights = [n * len(shared) / sum(seeds) for n in seeds]

    def weighted(one: _Group) -> list[float]:
        values = (one.correct[name] for name in shared)
        return [w * sum(v) / len(v) for w, v in zip(weights, values, strict=True)]

    return weighted(group), weighted(base)


def _budgets(groups: Sequence[_Group], base: _Group) -> list[str]:
    """A note on which methods had the reference's tokens under ``budget=equal``."""
    if not any(config.get("budget") == "equal" for group in groups for config in group.configs):
        return []
    others = [group for group in groups if group is not base]
    equal = [f"{g.label} ({', '.join(map(str, g.equal))})" for g in others if g.equal]
    own = [g.label for g in others if not g.equal]
    return [
        f"Equal budget: samples were chosen to write as many tokens as {base.label} generates: "
        f"{', '.join(equal) or 'of no method'}. With a budget of their own: {', '.join(own) or 'none'}."
    ]


def _quality(row: Mapping[str, Any]) -> list[str]:
    tested = "p" in row
    return [
        row["label"],
        *(over_seeds(row[name], row[f"{name}_stderr"]) for name in SHARES),
        f"{100 * row['difference']:+.1f}" if tested else "reference",
        f"{percent(row['low'])} to {percent(row['high'])}" if tested else "",
        ("< 0.0001" if row["p"] < 1e-4 else f"{row['p']:.4f}") if tested else "",
        count(row["n"]) if tested else "",
    ]


def _cost(row: Mapping[str, Any]) -> list[str]:
    return [
        row["label"],
        count(row["prompt"]),
        count(row["cached"]),
        count(row["tokens"]),
        f"{row['sequences']:,.1f}",
        duration(row["seconds"]),
        *(memory(row["peak_bytes"][kind]) for kind in MEMORY),
        percent(row["decided"]),
    ]


def _write(
    folder: Path, tables: Sequence[Table], rows: Sequence[Mapping[str, Any]], notes: Sequence[str]
) -> None:
    parts = ["# Comparison", *(table.markdown() for table in tables), *notes]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    if plots.available():
        with writing(folder):
            plots.accuracy_against_tokens(rows, folder / "accuracy_against_tokens.png")
        parts.append("![Accuracy against tokens](accuracy_against_tokens.png)")
    else:
        print(plots.MISSING)
        parts.append(plots.MISSING)
    for name, table in zip(("comparison", "comparison_cost", "comparison_levels"), tables, strict=False):
        save(table, folder, name)
    write_json(folder / "comparison.json", list(rows))
    write_text(folder / COMPARISON, "\n\n".join(parts) + "\n")
