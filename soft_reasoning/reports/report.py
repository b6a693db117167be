"""The files about a finished run: report.md, report.html, plots, and tables on demand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

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

DECIDED = "proposals that the acquisition function decided %"

SHOWN = 20
"""Answers that a terminal shows; the file holds all."""

RANDOM = "random_embedding"
"""The control of a search: as many points, drawn at random."""

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
        drawn = _draw(folder, metrics, manifest["config"]) if plots.available() else {}
    notes = [] if plots.available() else [plots.MISSING]
    config = manifest["config"]
    settings = metrics.get("grader") or config.get("grader") or {}
    graded = " ".join(f"{key}={value}" for key, value in settings.items() if key != "_target_")
    made = f"Seed {config.get('seed')}. Grader: {graded or grader.name}."
    parts = [f"# {_title(config)}", _headline(metrics).markdown(), made, _cost(metrics)]
    parts += [f"![{title}]({file})" for title, file in drawn.items()]
    write_text(folder / REPORT, "\n\n".join([*parts, *notes]) + "\n")
    tables = [shown(table, *SECTIONS[name]) for name, table in tables_of(metrics).items()]
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
    return "\n".join([*lines, _headline(metrics).text(), "", _tokens(metrics).text()])


def _ungraded(grades: Mapping[str, Mapping[str, Any]]) -> bool:
    return all(grade["correct"] is None for grade in grades.values())


def _predictions(folder: Path, ids: Collection[str]) -> Iterator[tuple[str, str, str | None]]:
    """Yield (id, question, answer) of the problems in ``ids``."""
    for record in read_records(folder):
        if record["doc_id"] in ids:
            yield record["doc_id"], record["question"], record["answer"]


def _draw(folder: Path, metrics: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, str]:
    """Draw the plots that apply; rounds beside those of random points, if a run of them lies beside this one.

    Returns:
        File names by title.
    """
    drawn: dict[str, str] = {}
    curves = {_name(config, "method"): read_stopped(folder)}
    if (control := beside(folder, config, RANDOM)) is not None and _name(config, "method") != RANDOM:
        curves[f"{RANDOM} (random points)"] = read_stopped(control)
    if len(read_stopped(folder)) > 1:
        drawn["After each round"] = "after_each_round.png"
        plots.after_each_round(curves, folder / "after_each_round.png")
    if len(metrics["tokens"]) > 1:
        drawn["Tokens by role"] = "tokens.png"
        plots.tokens(metrics["tokens"], metrics["problems"], folder / "tokens.png")
    return drawn


def tables_of(metrics: Mapping[str, Any]) -> dict[str, Table]:
    """The tables of a run by name; those with nothing to show are left out."""
    verified = {name.replace("_", " "): {"%": part} for name, part in (metrics.get("verifier") or {}).items()}
    tables = {
        "headline": _headline(metrics),
        "extraction": _listed(metrics["extraction"], "extraction", EXTRACTIONS),
        "rounds": _listed({str(row["round"] + 1): row for row in metrics["by_round"]}, "round", ROUNDS),
        "difficulty": _listed(metrics["by_difficulty"], "difficulty", DIFFICULTIES),
        "verifier": _listed(verified, "", PERCENT),
        "wrong": _listed(
            {WRONG[n]: {"%": v} for n, v in metrics["wrong"].items() if verified}, "", WRONG_PART
        ),
        "tokens": _tokens(metrics),
        "time": _seconds(metrics),
    }
    return {name: table for name, table in tables.items() if table.rows}


Format = Callable[[Mapping[str, Any], str], str]
"""Shows the value of a key of a row."""


def _shown(show: Callable[..., str], *digits: int) -> Format:
    return lambda row, key: show(row.get(key), *digits)


PERCENT: dict[str, tuple[str, Format]] = {"%": ("%", _shown(percent))}
WRONG_PART: dict[str, tuple[str, Format]] = {"% of the problems": ("%", _shown(percent))}
EXTRACTIONS: dict[str, tuple[str, Format]] = {
    "accuracy %": ("exact_match", share),
    "coverage %": ("coverage", share),
    "answers not parsed %": ("unparsed", _shown(percent)),
    "candidates not parsed %": ("candidate_unparsed", _shown(percent)),
}
ROUNDS: dict[str, tuple[str, Format]] = {
    "problems": ("problems", _shown(count)),
    "accuracy of candidates %": ("accuracy", _shown(percent)),
    "coverage %": ("coverage", _shown(percent)),
    "mean reward": ("reward", _shown(number, 3)),
    "best reward": ("best_reward", _shown(number, 3)),
    "mean |u|": ("length", _shown(number)),
}
DIFFICULTIES: dict[str, tuple[str, Format]] = {
    "problems": ("problems", _shown(count)),
    "accuracy %": ("exact_match", share),
    "coverage %": ("coverage", share),
}
"""Columns of tables: key and format."""
WRONG = {
    "uncovered": "no candidate is right",
    "rejected": "the verifier approved of no right candidate",
    "outvoted": "it approved of a right one, another answer was chosen",
}


def _listed(
    rows: Mapping[str, Mapping[str, Any]], name: str, columns: Mapping[str, tuple[str, Format]]
) -> Table:
    cells = [[label, *(show(row, key) for key, show in columns.values())] for label, row in rows.items()]
    return Table([name, *columns], cells)


SECTIONS = {
    "headline": ("", ""),
    "extraction": ("By extraction", EXTRACTION),
    "rounds": (
        "By round",
        "Accuracy, rewards and mean lengths |u| of points are over the problems still searching in a round; "
        "coverage is that of all problems and all rounds so far.",
    ),
    "difficulty": ("By difficulty", ""),
    "verifier": (
        "Verifier",
        "Its verdicts on the first round's candidates against the reference answers. The last row is over "
        "all rounds without a right candidate.",
    ),
    "wrong": ("Wrong answers", ""),
    "tokens": ("Tokens", ""),
    "time": ("Cost", ""),
}
"""Title and note of each table."""


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
        *([f"{name} %", share(metrics, name)] for name in metrics if _is_pass(name)),
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
        *_learnt(metrics.get("auc") or {}),
        ["time", duration(metrics["seconds"].get("total"))],
    ]
    return Table(["", "value"], rows)


def _learnt(auc: Mapping[str, float | None]) -> list[list[str]]:
    """How well the surrogate told right candidates from wrong ones before they were tried; chance is 50 %."""
    names = {"all": "foreseen by the surrogate (AUC) %", "new": "  among new texts %"}
    return [[names[which], percent(value)] for which, value in auc.items() if value is not None]


def _is_pass(name: str) -> bool:
    return name.startswith("pass@") and not name.endswith("_stderr")


def _tokens(metrics: Mapping[str, Any]) -> Table:
    columns = ["tokens", "prompt", "cached", "generated", "sequences", "generated a problem"]
    rows = [
        [
            role,
            *(count(counts[kind]) for kind in ("prompt", "cached", "generated", "sequences")),
            number(counts["generated"] / max(1, metrics["problems"]), 1),
        ]
        for role, counts in metrics["tokens"].items()
    ]
    return Table(columns, rows)


def _seconds(metrics: Mapping[str, Any]) -> Table:
    seconds = metrics["seconds"]
    total = seconds.get("total", 0.0)
    known = {kind: seconds[kind] for kind in KINDS if kind in seconds}
    known["other"] = max(0.0, total - sum(known.values()))
    rows = [
        [kind, duration(value), percent(value / total if total else None)]
        for kind, value in [*known.items(), ("total", total)]
    ]
    return Table(["kind", "time", "%"], rows)


def _cost(metrics: Mapping[str, Any]) -> str:
    """Operations, the engine's idle time and its memory, one sentence each."""
    parts = [f"The engine was idle for at most {duration(metrics['seconds'].get('idle'))}."]
    if metrics["flops"]:
        parts.append(f"About {metrics['flops']['total']:.2g} floating-point operations.")
    for kind, what in (("kv", "Keys and values"), ("activations", "Activations")):
        if metrics["peak_bytes"][kind] is not None:
            mean = metrics["mean_bytes"][kind]
            average = "" if mean is None else f", {mean / 2**20:,.0f} MiB on average"
            parts.append(f"{what} took up to {metrics['peak_bytes'][kind] / 2**20:,.0f} MiB{average}.")
    return " ".join(parts)
