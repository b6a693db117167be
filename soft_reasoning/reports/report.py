"""The files written about a finished run: results.json, grades.json, report.md and plots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.reports import plots
from soft_reasoning.reports.compare import compare
from soft_reasoning.reports.tables import Table, count, duration, number, percent, save, share
from soft_reasoning.reports.viewer.files import shown
from soft_reasoning.reports.viewer.run import write_run
from soft_reasoning.runs.files import (
    GRADES,
    REPORT,
    RESULTS,
    read_grades,
    read_manifest,
    read_records,
    read_results,
    write_json,
    write_text,
    writing,
)
from soft_reasoning.runs.grades import Outcome, grade
from soft_reasoning.runs.metrics import FIRST, Tally

__all__ = ["compare", "regrade", "summary_table", "write_results"]

EXTRACTION = (
    "An answer that could not be parsed counts as wrong. The run searched and voted under its own extraction "
    "(grader, grader.extraction); under another the texts that gave its final answers are read again."
)

DECIDED = "proposals that the acquisition function decided %"

TABLES = "tables"
"""Inside a run's folder: every table of its report as CSV and LaTeX."""

KINDS = ("engine", "optimiser", "method", "store")


def write_results(
    folder: Path, metrics: Mapping[str, Any], outcomes: Mapping[str, Outcome], grader: AnswerGrader
) -> list[str]:
    """Write everything that is computed from a run's records; return notes on what could not be done."""
    write_json(folder / RESULTS, metrics)
    write_json(folder / GRADES, {name: outcomes[name]._asdict() for name in sorted(outcomes)})
    with writing(folder):
        drawn = _draw(folder, metrics) if plots.available() else {}
    notes = [] if plots.available() else [plots.MISSING]
    manifest = read_manifest(folder)
    tables = tables_of(metrics, manifest)
    for name, table in tables.items():
        save(table, folder / TABLES, name)
    write_text(folder / REPORT, report(metrics, manifest, tables, drawn, notes))
    parts = [shown(table, *SECTIONS[name]) for name, table in tables.items()]
    write_run(folder, _title(manifest["config"]), parts, outcomes.keys(), grader)
    return notes


def regrade(folder: str | Path, grader: AnswerGrader) -> dict[str, Any]:
    """Grade a finished run again: new metrics, report and plots, the same records.

    Only what the run measured is graded: the problems in ``grades.json``. Time and memory stay as in
    ``results.json``.

    Raises:
        UserError: If the folder holds no finished run.
    """
    folder = Path(folder)
    manifest, wanted, before = read_manifest(folder), read_grades(folder), read_results(folder)
    tally = Tally()
    for record in read_records(folder):
        if record["doc_id"] in wanted:
            tally.add(grade(record, grader))
    metrics = tally.metrics(
        seconds=before.get("seconds"),
        peaks=before.get("peak_bytes"),
        means=before.get("mean_bytes"),
        rate=manifest.get("flops"),
        independent=manifest.get("independent", False),
    )
    metrics["grader"] = {"name": grader.name, **asdict(cast(Any, grader))}
    write_results(folder, metrics, tally.outcomes, grader)
    return metrics


def _draw(folder: Path, metrics: Mapping[str, Any]) -> dict[str, str]:
    """Draw the plots that apply; return file names by title."""
    drawn: dict[str, str] = {}
    rounds = metrics["by_round"]
    if len(rounds) > 1 and any(row["accuracy"] is not None for row in rounds):
        drawn["Accuracy and coverage by round"] = "accuracy_by_round.png"
        plots.accuracy_by_round(rounds, folder / "accuracy_by_round.png")
    if len(rounds) > 1 and any(row["reward"] is not None for row in rounds):
        drawn["Reward by round"] = "reward_by_round.png"
        plots.reward_by_round(rounds, folder / "reward_by_round.png")
    if len(metrics["tokens"]) > 1:
        drawn["Tokens by role"] = "tokens.png"
        plots.tokens(metrics["tokens"], metrics["problems"], folder / "tokens.png")
    return drawn


def summary_table(metrics: Mapping[str, Any]) -> str:
    """The final tables of a run, for a terminal."""
    return "\n\n".join(table.text() for table in (_headline(metrics), _tokens(metrics)))


def tables_of(metrics: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Table]:
    """The tables of a run's report by name; those with nothing to show are left out."""
    made_with = _made_with(manifest, metrics.get("grader") or manifest["config"].get("grader"))
    tables = {
        "headline": _headline(metrics),
        "extraction": _by_extraction(metrics),
        "rounds": _by_round(metrics) if metrics["by_round"] else None,
        "difficulty": _by_difficulty(metrics) if metrics["by_difficulty"] else None,
        "verifier": _verifier(metrics) if metrics["verifier"] else None,
        "wrong": _wrong(metrics) if metrics["verifier"] else None,
        "tokens": _tokens(metrics),
        "time": _seconds(metrics),
        "made_with": made_with,
    }
    return {name: table for name, table in tables.items() if table is not None}


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
    "made_with": ("Made with", ""),
}
"""Title and note of each table of a report."""


def report(
    metrics: Mapping[str, Any],
    manifest: Mapping[str, Any],
    tables: Mapping[str, Table],
    drawn: Mapping[str, str],
    notes: Iterable[str],
) -> str:
    """Return report.md: the tables, the plots, and how the run was made."""
    parts = [f"# {_title(manifest['config'])}"]
    for name, table in tables.items():
        title, note = SECTIONS[name]
        parts += [f"## {title}"] if title else []
        parts += [table.markdown(), *([note] if note else [])]
        if name == "time":
            parts.append(_cost(metrics))
        here = ("tokens.png",) if name == "tokens" else ()
        parts += [f"![{t}]({f})" for t, f in drawn.items() if f in here]
        if name == ("rounds" if "rounds" in tables else "extraction"):
            parts += [f"![{t}]({f})" for t, f in drawn.items() if f != "tokens.png"]
    return "\n\n".join([*parts, *notes]) + "\n"


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
        ["rounds", number(metrics["rounds"]["mean"])],
        *(
            [f"  ended after {ended} %", percent(part)]
            for ended, part in metrics["rounds"]["share_ended_after"].items()
        ),
        *([[DECIDED, percent(metrics["decided"])]] if metrics["decided"] is not None else []),
        ["time", duration(metrics["seconds"].get("total"))],
    ]
    return Table(["", "value"], rows)


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


def _by_round(metrics: Mapping[str, Any]) -> Table:
    shown = ["accuracy of candidates %", "coverage %", "mean reward", "best reward", "mean |u|"]
    columns = ["round", "problems", *shown]
    rows = [
        [
            str(row["round"]),
            count(row["problems"]),
            percent(row["accuracy"]),
            percent(row["coverage"]),
            number(row["reward"], 3),
            number(row["best_reward"], 3),
            number(row["length"]),
        ]
        for row in metrics["by_round"]
    ]
    return Table(columns, rows)


def _by_extraction(metrics: Mapping[str, Any]) -> Table:
    columns = ["extraction", "accuracy %", "coverage %", "answers not parsed %", "candidates not parsed %"]
    rows = [
        [
            mode,
            share(graded, "exact_match"),
            share(graded, "coverage"),
            percent(graded["unparsed"]),
            percent(graded["candidate_unparsed"]),
        ]
        for mode, graded in metrics["extraction"].items()
    ]
    return Table(columns, rows)


def _by_difficulty(metrics: Mapping[str, Any]) -> Table:
    rows = [
        [level, count(row["problems"]), share(row, "exact_match"), share(row, "coverage")]
        for level, row in metrics["by_difficulty"].items()
    ]
    return Table(["difficulty", "problems", "accuracy %", "coverage %"], rows)


def _verifier(metrics: Mapping[str, Any]) -> Table:
    shown = metrics["verifier"]
    return Table(["", "%"], [[name.replace("_", " "), percent(value)] for name, value in shown.items()])


def _wrong(metrics: Mapping[str, Any]) -> Table:
    words = {
        "uncovered": "no candidate is right",
        "rejected": "the verifier approved of no right candidate",
        "outvoted": "it approved of a right one, another answer was chosen",
    }
    return Table(["", "% of the problems"], [[words[w], percent(v)] for w, v in metrics["wrong"].items()])


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


def _made_with(manifest: Mapping[str, Any], grader: Mapping[str, Any] | None) -> Table:
    model = manifest.get("model") or {}
    settings = [f"{key}={value}" for key, value in (grader or {}).items() if key != "_target_"]
    facts = {
        "configuration": manifest.get("config_hash"),
        "seed": manifest["config"].get("seed"),
        "grader": " ".join(settings) or None,
        "prompt layout": manifest.get("layout"),
        "commit": manifest.get("git_commit"),
        **{f"model {key}": value for key, value in model.items()},
        "device": manifest.get("device"),
        **(manifest.get("versions") or {}),
    }
    return Table(["", "value"], [[key, str(value)] for key, value in facts.items() if value is not None])
