"""The report of a finished run: report.md, report.html, plots, and its tables on demand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from soft_reasoning.checks import shortened
from soft_reasoning.judge.final import cut_warning
from soft_reasoning.lab.reports import plots
from soft_reasoning.lab.reports.page import write_page
from soft_reasoning.lab.reports.statistics import wilson
from soft_reasoning.lab.reports.tables import (
    MISSING,
    Table,
    count,
    duration,
    estimate,
    memory,
    number,
    percent,
    save,
)
from soft_reasoning.lab.runs.files import (
    MANIFEST,
    PREDICTIONS,
    REPORT,
    RESULTS,
    TABLES,
    Json,
    read_json,
    write_text,
)
from soft_reasoning.lab.runs.manifest import flatten, method_name
from soft_reasoning.lab.runs.records import COVERAGE_AT, Graded, read_graded
from soft_reasoning.types import Problem

ROUNDS = (
    "Accuracy and rewards are over the problems that still search in a round. Coverage is over all problems "
    "and all rounds so far."
)
VERIFIER = "The verdicts on the first round's candidates, compared with the reference answers."

UNREAD = "{count} of {all} questions have no answer that could be read; most often a text ends: {line!r:.80}"

REPEATED = "{repeated} of {graded} questions repeat others; an interval counts each question once."

INTERVALS = "Intervals are at 95 % (Wilson's score), for drawing other questions."

SHOWN = 20
"""Number of answers shown in a terminal; those of longer runs are shown only where none could be graded."""

ROUNDS_PLOT = "after_each_round.svg"


def write_report(folder: Path) -> list[str]:
    """Write ``report.md``, ``report.html`` and plots of the finished run in ``folder``.

    If a problem has no reference answer, all answers are written to ``predictions.csv``.

    Returns:
        Notes about missing parts of the report.

    Raises:
        UserError: If the folder holds no finished run.
    """
    metrics, manifest = (read_json(folder / name) for name in (RESULTS, MANIFEST))
    rows = read_graded(folder)
    config, rounds = manifest["config"], metrics["after_each_round"]
    pictures = {"After each round": ROUNDS_PLOT} if plots.available() and len(rounds) > 1 else {}
    if pictures:
        plots.after_each_round(rounds, metrics["questions"], folder / ROUNDS_PLOT)
    notes = [] if plots.available() else [plots.MISSING]
    lost = [record.result for record, row in rows if row.answer is None]
    ends = Counter(c.text.strip().split("\n")[-1] for result in lost for c in result.candidates)
    if ends:
        notes.append(UNREAD.format(count=len(lost), all=len(rows), line=ends.most_common(1)[0][0]))
    total = round((metrics["candidates"] or 0) * metrics["problems"])
    limits = [key for key in ("max_tokens", "max_seconds") if config.get(key) is not None]
    if line := cut_warning(metrics["cut"]["candidates"], total, metrics["cut"]["tokens"], limits):
        notes.append(line)
    if repeated := metrics["graded"] - metrics["questions"]:
        notes.append(REPEATED.format(repeated=repeated, graded=metrics["graded"]))
    title = f"{method_name(config)} on {flatten(config).get('dataset.name')}"
    grader = metrics["grader"]
    settings = " ".join(f"{key}={value}" for key, value in grader.items())
    parts = [
        f"# {title}",
        _headline(metrics).markdown(),
        f"Seed {config.get('seed')}. Grader: {settings}. {INTERVALS}",
    ]
    parts += [f"![{name}]({file})" for name, file in pictures.items()]
    write_text(folder / REPORT, "\n\n".join([*parts, *notes]) + "\n")
    headline, *others = build_tables(metrics).values()
    tables = [replace(headline, note=" ".join([INTERVALS, *notes])), *others]
    write_page(folder, title, manifest, grader["name"], rows, tables, pictures)
    if metrics["graded"] < metrics["problems"]:
        answers = [(r.problem.id, r.problem.question, row.answer or "") for r, row in rows]
        write_text(folder / PREDICTIONS, Table(("id", "question", "answer"), answers, labels=3).csv())
    return notes


def write_tables(folder: Path) -> Path:
    """Write every table of the finished run in ``folder`` as CSV and LaTeX; return the folder with them.

    Raises:
        UserError: If ``folder`` holds no finished run.
    """
    for name, table in build_tables(read_json(folder / RESULTS)).items():
        save(table, folder / TABLES, name)
    return folder / TABLES


def summary(folder: Path) -> str:
    """Format the finished run in ``folder`` for a terminal: its answers if they are few, and two tables."""
    metrics, lines, rows = read_json(folder / RESULTS), list[str](), read_graded(folder)
    if not metrics["graded"] or len(rows) <= SHOWN:
        lines = [_answered(record.problem, row) for record, row in rows[:SHOWN]]
        if len(rows) > SHOWN:
            lines.append(f"... and {len(rows) - SHOWN} more")
        lines += [""]
    if metrics["graded"] < metrics["problems"]:
        lines += [str(folder / PREDICTIONS), ""]
    return "\n".join([*lines, *_sentence(metrics), _headline(metrics).text(), "", _tokens(metrics).text()])


def _answered(problem: Problem, grade: Graded) -> str:
    """A line about a question: its place, its end, its answer as graded, and whether it is correct."""
    texts, correct = (problem.question, grade.answer, problem.gold), grade.correct
    question, answer, gold = (" ".join((text or "").split()) for text in texts)
    asked = question if len(question) <= 60 else f"...{question[-57:]}"  # the end asks
    graded = "" if correct is None else " (correct)" if correct else f" (wrong: {shortened(gold)})"
    return f"{problem.place:>3}  {asked}  {shortened(answer) or 'no answer'}{graded}"


def _sentence(metrics: Json) -> list[str]:
    """What happened in one sentence, and a blank line; nothing without graded answers."""
    solved, covered = metrics["exact_match"], metrics["coverage"]
    if solved is None or covered is None:
        return []
    problems, several = metrics["graded"], (metrics["candidates"] or 0) > 1
    coverage = f"; {covered * problems:.0f} have a correct candidate" if several else ""
    unknown = metrics["problems"] - problems
    known = f" with a reference answer ({unknown} more have none)" if unknown else ""
    counts = f"{solved * problems:.0f} of {problems} questions{known} were answered correctly"
    return [f"{counts}{coverage}. {INTERVALS}", ""]


def build_tables(metrics: Json) -> dict[str, Table]:
    """Return the tables of a run by the names of their files; empty tables are left out."""
    problems = {"problems": lambda row: count(row["problems"])}
    answers = {
        "accuracy %": lambda row: _share(row, "exact_match"),
        "coverage %": lambda row: _share(row, "coverage"),
    }
    in_round = {
        "accuracy %": lambda row: percent(row["accuracy"]),
        "coverage %": lambda row: percent(row["coverage"]),
        "reward": lambda row: number(row["reward"], 3),
        "best reward": lambda row: number(row["best_reward"], 3),
    }
    rounds = [(str(row["round"] + 1), row) for row in metrics["by_round"]]
    verdicts = [(name.replace("_", " "), part) for name, part in (metrics["verifier"] or {}).items()]
    difficulty = metrics["by_difficulty"].items()
    tables = {
        "headline": _headline(metrics),
        "rounds": Table.from_rows("round", rounds, problems | in_round, "By round", ROUNDS),
        "difficulty": Table.from_rows("difficulty", difficulty, problems | answers, "By difficulty"),
        "verifier": Table.from_rows("", verdicts, {"%": percent}, "Verifier", VERIFIER),
        "tokens": _tokens(metrics),
        "time": _times(metrics["seconds"]),
    }
    return {name: table for name, table in tables.items() if table.rows}


def _tokens(metrics: Json) -> Table:
    problems = max(1, metrics["problems"])
    columns: dict[str, Callable[[Json], str]] = {
        name: lambda row, name=name: count(row[name])
        for name in ("prompt", "cached", "generated", "sequences")
    }
    if metrics["tokens"]["total"].get("replayed"):
        columns["from the store"] = lambda row: count(row["replayed"])
    columns["generated per problem"] = lambda row: number(row["generated"] / problems)
    return Table.from_rows("tokens", metrics["tokens"].items(), columns, "Tokens")


def _times(seconds: Mapping[str, float]) -> Table:
    total = seconds.get("total", 0.0)
    parts = {kind: seconds[kind] for kind in ("engine", "optimiser", "method", "store") if kind in seconds}
    parts |= {"other": max(0.0, total - sum(parts.values())), "total": total}
    columns = {"time": duration, "%": lambda time: percent(time / total if total else None)}
    return Table.from_rows("kind", parts.items(), columns, "Cost")


def _share(metrics: Json, name: str) -> str:
    """Format a share of the questions with its interval, in percent."""
    value = metrics.get(name)
    return MISSING if value is None else estimate(value, *wilson(value, metrics["questions"]))


def _headline(metrics: Json) -> Table:
    unknown = metrics["problems"] - metrics["graded"]
    rows = [
        ["Answers", ""],
        ["problems", count(metrics["problems"])],
        *([["  without a reference answer", count(unknown)]] if unknown else []),
        ["accuracy %", _share(metrics, "exact_match")],
        ["coverage (any candidate is correct) %", _share(metrics, "coverage")],
        [f"coverage by {COVERAGE_AT} candidates %", _share(metrics, f"coverage@{COVERAGE_AT}")],
        *([f"{name} %", _share(metrics, name)] for name in metrics if re.fullmatch(r"pass@\d+", name)),
        ["correct candidates %", percent(metrics["candidate_accuracy"])],
        ["answers not parsed %", percent(metrics["unparsed"])],
        ["Search", ""],
        ["candidates per problem", number(metrics["candidates"], 1)],
        ["  different texts", number(metrics["texts"], 1)],
        ["  different answers", number(metrics["answers"], 1)],
        ["rounds", number(metrics["rounds"]["mean"])],
        ["points that the acquisition function chose %", percent(metrics["decided"])],
        ["Cost", ""],
        ["time", duration(metrics["seconds"].get("total"))],
        *(
            [f"{title}, peak", memory(metrics["peak_bytes"][kind])]
            for kind, title in (("kv", "keys and values"), ("activations", "activations"))
            if metrics["peak_bytes"][kind] is not None
        ),
    ]
    return Table(["", "value"], rows)
