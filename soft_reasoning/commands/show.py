"""The command ``show`` (or ``report``): a run's results, its tables, or one problem explained."""

from __future__ import annotations

import argparse
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from soft_reasoning.commands.launch import one_line_errors
from soft_reasoning.commands.regrade import grader_of
from soft_reasoning.reports.compare import COMPARISON
from soft_reasoning.reports.exports import write_exports
from soft_reasoning.reports.report import TABLES, summary, write_tables
from soft_reasoning.reports.viewer.run import final_of
from soft_reasoning.runs.files import PAGE, read_manifest, read_records
from soft_reasoning.runs.records import candidates_of
from soft_reasoning.solution import Solution
from soft_reasoning.types import Problem, Result, Usage, UserError


def story_of(folder: Path, name: str) -> Solution:
    """Return the solution of a stored problem.

    Raises:
        UserError: If the run in ``folder`` has not solved it.
    """
    config = read_manifest(folder)["config"]
    record = next((record for record in read_records(folder) if record["doc_id"] == name), None)
    if record is None:
        raise UserError(f"{folder}: expected the id of one of its problems, got {name}; {PAGE} lists them")
    usage = {role: Usage(**counts) for role, counts in record["usage"].items()}
    result = Result(record["answer"], tuple(candidates_of(record)), tuple(record["trace"]), usage)
    problem = Problem(name, record["question"], None, record["answer_type"])
    return Solution.of(result, problem, config["method"]["name"], final_of(config), grader_of(config, ()))


def main(words: Sequence[str]) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="soft-reasoning show",
        description="Shows the results of a run or a comparison and opens its report.html, or explains one "
        "problem: its votes, rounds and the verifier's words.",
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the folder of a run or a comparison")
    parser.add_argument("problem", metavar="PROBLEM", nargs="?", help="the id of a problem")
    parser.add_argument("--no-browser", action="store_true", help="do not open report.html")
    parser.add_argument("--tables", action="store_true", help="write every table as CSV and LaTeX to tables/")
    parser.add_argument("--export", action="store_true", help="write Every Eval Ever's JSON and the hub's "
                        ".eval_results to exports/")  # fmt: skip
    parser.add_argument("--organization", default="unknown", help="who made the run, for --export")
    arguments = parser.parse_args(words)
    with one_line_errors():
        if not arguments.folder.is_dir():
            raise UserError(f"expected the folder of a run, found none at {arguments.folder}; check the path")
        if arguments.problem is not None:
            print(story_of(arguments.folder, arguments.problem).explain())
            return
        if arguments.tables:
            files = write_tables(arguments.folder)
            print(f"{len(files)} tables in {arguments.folder / TABLES}")
            return
        if arguments.export:
            print("\n".join(map(str, write_exports(arguments.folder, arguments.organization))))
            return
        comparison = arguments.folder / COMPARISON
        compared = comparison.is_file()
        print(comparison.read_text(encoding="utf-8") if compared else summary(arguments.folder))
        page = (arguments.folder / PAGE).resolve()
        if page.is_file():
            print(f"\n{page}")
            if not arguments.no_browser:
                webbrowser.open(page.as_uri())
