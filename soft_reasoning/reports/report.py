"""The files about a finished run: report.md, report.html, plots, and tables on demand."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.reports import plots
from soft_reasoning.reports.stopped import STOPPED, if_stopped, read_stopped
from soft_reasoning.reports.tables import Table, count, duration, number, percent, save, share
from soft_reasoning.reports.viewer.files import shown
from soft_reasoning.reports.viewer.run import beside, final_of, write_run
from soft_reasoning.runs.files import (
    PREDICTIONS,
    REPORT,
    read_grades,
    read_manifest,
    read_records,
    read_results,
    write_json,
    write_text,
    writing,
)
from soft_reasoning.runs.records import FIRST
from soft_reasoning.types import shortened

EXTRACTION = (
    "An answer that could not be parsed counts as wrong. The run searched and voted under its own extraction "
    "(grader, grader.extraction); under another the texts that gave its final answers are read again."
)

AUC = {"all": "foreseen by the surrogate (AUC) %", "new": "  among new texts %"}
"""How well the surrogate told right candidates from wrong ones before they were tried; chance is 50 %."""
DECIDED = "proposals that the acquisition function decided %"

SHOWN = 20
"""Answers that a terminal shows; the file holds all."""

RANDOM = "random_embedding"
"""The control of a search: as many points, drawn at random."""

ROUNDS_PLOT = "after_each_round.png"
TABLES = "tables"
"""Inside a run's folder: every table of its report as CSV and LaTeX."""

KINDS = ("engine", "optimiser", "method", "store")


def write_report(folder: Path, grader: AnswerGrader) -> list[str]:
    """Write ``report.md``, ``report.html`` and plots of the finished run in ``folder``.

    Where no problem has a reference answer, the answers are written to ``predictions.csv``.

    Args:
        folder: The run's folder.
        grader: Reads and compares the answers that the page shows.

    Returns:
        Notes on what could not be done.

    Raises:
        UserError: If the folder holds no finished run, or cannot be written.
    """
    metrics, manifest, grades = read_results(folder), read_manifest(folder), read_grades(folder)
    with writing(folder):
        final = final_of(manifest["config"])
        records = (record for record in read_records(folder) if record["doc_id"] in grades)
        write_json(folder / STOPPED, if_stopped(records, grader, final))
        drawn = _draw(folder, manifest["config"]) if plots.available() else {}
    notes = [] if plots.available() else [plots.MISSING]
    config = manifest["config"]
    settings = metrics.get("grader") or config.get("grader") or {}
    graded = " ".join(f"{key}={value}" for key, value in settings.items() if key != "_target_")
    made = f"Seed {config.get('seed')}. Grader: {graded or grader.name}."
    parts = [f"# {_title(config)}", _headline(metrics).markdown(), made, _cost(metrics)]
    parts += [f"![{title}]({file})" for title, file in drawn.items()]
    write_text(folder / REPORT, "\n\n".join([*parts, *notes]) + "\n")
    titles = {name: (section.title, section.note) for name, section in SECTIONS.items()}
    tables = [shown(table, *titles.get(name, ())) for name, table in tables_of(metrics).items()]
    seconds = metrics["seconds"].get("total")
    write_run(folder, _title(config), tables, grades.keys(), grader, drawn, seconds)
    if _ungraded(grades):
        rows = [(name, question, answer or "") for name, question, answer in _predictions(folder, grades)]
        write_text(folder / PREDICTIONS, Table(("id", "question", "answer"), rows, labels=3).csv())
    return notes


def write_tables(folder: Path) -> list[Path]:
    """Write every table of the finished run in ``folder`` into ``tables/``, as CSV and LaTeX.

    Returns:
        The files.

    Raises:
        UserError: If the folder holds no finished run, or cannot be written.
    """
    for name, table in tables_of(read_results(folder)).items():
        save(table, folder / TABLES, name)
    return sorted((folder / TABLES).iterdir())


def summary(folder: Path) -> str:
    """What a terminal shows of the finished run in ``folder``: its answers if none was graded, two tables."""
    metrics, grades = read_results(folder), read_grades(folder)
    lines: list[str] = []
    if _ungraded(grades):
        answers = list(_predictions(folder, grades))
        lines = [f"{shortened(name)}: {answer or 'no answer'}" for name, _, answer in answers[:SHOWN]]
        if len(answers) > SHOWN:
            lines.append(f"... and {len(answers) - SHOWN} more")
        lines += ["", str(folder / PREDICTIONS), ""]
    return "\n".join([*lines, _headline(metrics).text(), "", _table("tokens", metrics).text()])


def _ungraded(grades: Mapping[str, Mapping[str, Any]]) -> bool:
    return all(grade["correct"] is None for grade in grades.values())


def _predictions(folder: Path, ids: Collection[str]) -> Iterator[tuple[str, str, str | None]]:
    """Yield (id, question, answer) of the problems in ``ids``."""
    for record in read_records(folder):
        if record["doc_id"] in ids:
            yield record["doc_id"], record["question"], record["answer"]


def _draw(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Plot the rounds, if there are several, beside those of a run of random points; files by title."""
    curves = {_name(config, "method"): read_stopped(folder)}
    if len(*curves.values()) < 2:
        return {}
    if (control := beside(folder, config, RANDOM)) is not None and _name(config, "method") != RANDOM:
        curves[f"{RANDOM} (random points)"] = read_stopped(control)
    plots.after_each_round(curves, folder / ROUNDS_PLOT)
    return {"After each round": ROUNDS_PLOT}


Metrics: TypeAlias = Mapping[str, Any]

NUMBERS = {"reward", "best_reward", "length", "each"}
"""Columns that are neither counts nor shares; ``time`` is in seconds."""
NAMES = {"exact_match": "accuracy", "length": "mean |u|", "each": "generated a problem", "share": ""}
"""Titles of columns that are not called as in results.json."""


def _cell(row: Metrics, key: str) -> str:
    value = row.get(key)
    if key == "time":
        return duration(value)
    if key in NUMBERS:
        return number(value, 3 if key.endswith("reward") else 2)
    return count(value) if isinstance(value, int) else share(row, key)


def _table(name: str, metrics: Metrics) -> Table:
    section = SECTIONS[name]
    rows = section.rows(metrics)
    keys = [key for key in section.columns if any(key in row for row in rows.values())]
    shares = {key for key in keys if not any(isinstance(row.get(key), int) for row in rows.values())}
    shares -= {*NUMBERS, "time"}
    titles = [NAMES.get(key, key.replace("_", " ")) + " %" * (key in shares) for key in keys]
    return Table(
        [section.head, *map(str.strip, titles)],
        [[label, *(_cell(row, key) for key in keys)] for label, row in rows.items()],
    )


def _shares(parts: Metrics | None) -> dict[str, Metrics]:
    return {name.replace("_", " "): {"share": part} for name, part in (parts or {}).items()}


def _tokens(metrics: Metrics) -> dict[str, Metrics]:
    problems = max(1, metrics["problems"])
    return {role: {**row, "each": row["generated"] / problems} for role, row in metrics["tokens"].items()}


def _times(metrics: Metrics) -> dict[str, Metrics]:
    seconds = metrics["seconds"]
    total = seconds.get("total", 0.0)
    known = {kind: seconds[kind] for kind in KINDS if kind in seconds}
    known |= {"other": max(0.0, total - sum(known.values())), "total": total}
    return {kind: {"time": t, "share": t / total if total else None} for kind, t in known.items()}


@dataclass(frozen=True)
class Section:
    """A table of a run: title and note on the page, head of the labels, columns, and rows by label."""

    title: str
    note: str
    head: str
    columns: tuple[str, ...]
    rows: Callable[[Metrics], Mapping[str, Metrics]]


SECTIONS = {
    "extraction": Section(
        "By extraction", EXTRACTION, "extraction",
        ("exact_match", "coverage", "unparsed", "candidate_unparsed"), lambda m: m["extraction"],
    ),
    "rounds": Section(
        "By round",
        "Accuracy, rewards and mean lengths |u| of points are over the problems still searching in a round; "
        "coverage is that of all problems and all rounds so far.",
        "round", ("problems", "accuracy", "coverage", "reward", "best_reward", "length"),
        lambda m: {str(row["round"] + 1): row for row in m["by_round"]},
    ),
    "difficulty": Section(
        "By difficulty", "", "difficulty", ("problems", "exact_match", "coverage"),
        lambda m: m["by_difficulty"],
    ),
    "verifier": Section(
        "Verifier",
        "Its verdicts on the first round's candidates against the reference answers. The last row is over "
        "all rounds without a right candidate.",
        "", ("share",), lambda m: _shares(m.get("verifier")),
    ),
    "wrong": Section(
        "Wrong answers",
        "Of all problems: no candidate is right; the verifier approved of no right candidate; it did, and "
        "another answer was chosen.",
        "", ("share",), lambda m: _shares(m["wrong"] if m.get("verifier") else None),
    ),
    "tokens": Section(
        "Tokens", "", "tokens", ("prompt", "cached", "generated", "sequences", "each"), _tokens
    ),
    "time": Section("Cost", "", "kind", ("time", "share"), _times),
}  # fmt: skip
"""The tables of a run beside the headline, by name."""


def tables_of(metrics: Metrics) -> dict[str, Table]:
    """The tables of a run by name; those with nothing to show are left out."""
    tables = {"headline": _headline(metrics), **{name: _table(name, metrics) for name in SECTIONS}}
    return {name: table for name, table in tables.items() if table.rows}


def _title(config: Mapping[str, Any]) -> str:
    return f"{_name(config, 'method')} on {_name(config, 'dataset')}"


def _name(config: Mapping[str, Any], key: str) -> str:
    value = config.get(key)
    return str(value.get("name", key)) if isinstance(value, Mapping) else str(value or key)


def _headline(metrics: Mapping[str, Any]) -> Table:
    rows = [
        ["problems", count(metrics["problems"])],
        ["accuracy %", share(metrics, "exact_match")],
        ["coverage %", share(metrics, "coverage")],
        [f"coverage of the first {FIRST} %", share(metrics, f"coverage@{FIRST}")],
        *([f"{name} %", share(metrics, name)] for name in metrics if re.fullmatch(r"pass@\d+", name)),
        ["accuracy of a candidate %", percent(metrics["candidate_accuracy"])],
        ["answers not parsed %", percent(metrics["unparsed"])],
        *(
            [f"accuracy, {mode} extraction %", share(graded, "exact_match")]
            for mode, graded in metrics["extraction"].items()
        ),
        ["candidates a problem", number(metrics["candidates"], 1)],
        ["  different texts", number(metrics.get("texts"), 1)],
        ["  different answers", number(metrics.get("answers"), 1)],
        ["rounds", number(metrics["rounds"]["mean"])],
        *(
            [f"  ended after {ended} %", percent(part)]
            for ended, part in metrics["rounds"]["share_ended_after"].items()
        ),
        *([[DECIDED, percent(metrics["decided"])]] if metrics["decided"] is not None else []),
        *(
            [AUC[which], percent(part)]
            for which, part in (metrics.get("auc") or {}).items()
            if part is not None
        ),
        ["time", duration(metrics["seconds"].get("total"))],
    ]
    return Table(["", "value"], rows)


def _cost(metrics: Mapping[str, Any]) -> str:
    """Operations, the engine's idle time and its memory, one sentence each."""
    idle = metrics["seconds"].get("idle")
    parts = [] if idle is None else [f"The engine was idle for at most {duration(idle)}."]
    if metrics["flops"]:
        parts.append(f"About {metrics['flops']['total']:.2g} floating-point operations.")
    for kind, what in (("kv", "Keys and values"), ("activations", "Activations")):
        if metrics["peak_bytes"][kind] is not None:
            parts.append(f"{what} took up to {metrics['peak_bytes'][kind] / 2**20:,.0f} MiB.")
    return " ".join(parts)
