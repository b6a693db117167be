"""The commands for finished runs, which need no model: ``regrade`` and ``show``."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.checks import shortened
from soft_reasoning.cli.launch import one_line_errors
from soft_reasoning.configuration.context import Config
from soft_reasoning.configuration.parts import Setting, make
from soft_reasoning.configuration.registry import GRADERS
from soft_reasoning.lab.reports.comparison import combine, finished_runs
from soft_reasoning.lab.reports.report import summary, write_report, write_tables
from soft_reasoning.lab.runs.files import COMPARISON, MANIFEST, PAGE, read_json
from soft_reasoning.lab.runs.grading import final_rule
from soft_reasoning.lab.runs.manifest import method_name
from soft_reasoning.lab.runs.records import in_order, read_records
from soft_reasoning.lab.runs.runner import regrade
from soft_reasoning.solution import Solution
from soft_reasoning.types import UserError

PREFIX, CHOICE, TARGET = "grader.", "grader=", "_target_"
USAGE = """\
Grades a finished run again from its stored records (samples.jsonl, which stays as it is) and generates
nothing. It writes results.json, grades.json, report.md, report.html and the plots. Given the folder of a
comparison or a sweep, it grades all its runs and writes the tables. Without changes the grader is the run's.

  grader=NAME                         another grader: default, released, lm_eval_strict, lm_eval_flexible or
                                      math_verify
  grader.extraction=strict|flexible   how the default grader reads the stored texts
  grader.absolute=0.01                numbers are equal if they differ by at most this ...
  grader.relative=0                   ... or by at most this share of the larger one

If the reading differs from the run's, every candidate is read again. The search, its rewards and the texts
that gave the final answer stay the same. The command that made the run restores the first grades."""


def build_grader(config: Config, changes: Sequence[str] = ()) -> AnswerGrader:
    """Return the grader of a run's ``config`` under ``changes`` (``grader=NAME``, ``grader.key=value``).

    A run's folder is data: only plain values of a shipped grader are read from it.

    Raises:
        UserError: For a grader from outside the package, an unknown key, or a wrong value.
    """
    stored: Any = config.get("grader", Setting().node("grader"))
    for change in changes:
        if change.startswith(CHOICE):
            stored = Setting().node("grader", change.removeprefix(CHOICE))
    kinds = {chosen.target.__name__: chosen.target for chosen in GRADERS.values() if callable(chosen.target)}
    kind = kinds.get(str(stored.get(TARGET)).rpartition(".")[2]) if isinstance(stored, Mapping) else None
    plain = kind and all(isinstance(value, str | float | int | None) for value in stored.values())
    if not plain or stored.get("same"):  # ``same`` names code
        raise UserError(
            f"{MANIFEST}: grader: expected the plain settings of a grader of this package, got "
            f"{stored!r:.200}; use grader=NAME grader.key=value"
        )
    typed = [change.removeprefix(PREFIX).partition("=") for change in changes if change.startswith(PREFIX)]
    values = {key: yaml.safe_load(value) for key, _, value in typed}
    return make({**stored, TARGET: kind, **values}, "grader")


def regrade_main(words: Sequence[str]) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="soft-reasoning regrade",
        description=USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="a finished run, a comparison or a sweep")
    parser.add_argument("changes", nargs="*", metavar="grader.key=value", help="changes of the grader")
    arguments = parser.parse_args(words)
    folder: Path = arguments.run
    with one_line_errors():
        for change in arguments.changes:
            if not change.startswith((PREFIX, CHOICE)) or "=" not in change:
                raise UserError(f"expected grader=NAME or grader.key=value, got {change}; see --help")
        if not folder.is_dir():
            raise UserError(f"expected the folder of a finished run, found none at {folder}; check the path")
        runs = [] if (folder / MANIFEST).is_file() else finished_runs(folder)
        for run in runs or [folder]:
            regrade(run, build_grader(read_json(run / MANIFEST)["config"], arguments.changes))
            for note in write_report(run):
                print(note, file=sys.stderr)
        if runs:
            combine(folder)
        else:
            print(f"{summary(folder)}\n\n{folder / PAGE}")


def read_solution(folder: Path, name: str) -> Solution:
    """Return the solution of a stored problem, by its id or its place in the summary.

    Raises:
        UserError: If the run in ``folder`` has not solved the problem.
    """
    config = read_json(folder / MANIFEST)["config"]
    records = in_order(read_records(folder))
    named = {str(record.problem.place): record for record in records}
    named |= {record.problem.id: record for record in records}
    if (record := named.get(name)) is None:
        raise UserError(
            f"{folder}: expected one of its {len(records)} problems, a place from 0 on or an id such as "
            f"{shortened(records[0].problem.id) if records else 'none'}, got {name}"
        )
    grader, final = build_grader(config), final_rule(config)
    return Solution.of(record.result, record.problem, method_name(config), final, grader)


def show_main(words: Sequence[str]) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="soft-reasoning show",
        description="Shows the results of a run, a comparison or a sweep, and opens a run's report.html. "
        "With PROBLEM it explains one problem: its votes, its rounds and the verifier's words.",
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a run, a comparison or a sweep")
    place = "the place of a problem in the summary, from 0, or its id"
    parser.add_argument("problem", metavar="PROBLEM", nargs="?", help=place)
    parser.add_argument("--no-browser", action="store_true", help="do not open report.html")
    tables = "write every table of a run to its folder tables/ as CSV and LaTeX"
    parser.add_argument("--tables", action="store_true", help=tables)
    arguments = parser.parse_args(words)
    with one_line_errors():
        if not arguments.folder.is_dir():
            raise UserError(f"expected the folder of a run, found none at {arguments.folder}; check the path")
        if arguments.problem is not None:
            print(read_solution(arguments.folder, arguments.problem).explain())
            return
        if arguments.tables:
            print(write_tables(arguments.folder))
            return
        page = arguments.folder / COMPARISON
        print(page.read_text(encoding="utf-8") if page.is_file() else summary(arguments.folder))
        page = (arguments.folder / PAGE).resolve()
        if page.is_file():
            print(f"\n{page}")
            if not arguments.no_browser:
                webbrowser.open(page.as_uri())
