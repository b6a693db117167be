"""A run from its problems to its report: resume, solve, store, measure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.engine.completions import StoreFile
from soft_reasoning.judge.final import FinalAnswer
from soft_reasoning.lab.runs.files import (
    GRADES,
    MANIFEST,
    RESULTS,
    read_json,
    write_json,
    write_text,
)
from soft_reasoning.lab.runs.grading import final_rule, grade
from soft_reasoning.lab.runs.metrics import measure
from soft_reasoning.lab.runs.records import Graded, Record, read_records
from soft_reasoning.lab.runs.signals import check_signals
from soft_reasoning.lab.runs.store import Store
from soft_reasoning.lab.runs.tracking import Tracker, follow_run
from soft_reasoning.prompts import Exemplar
from soft_reasoning.schedule.job import Clock
from soft_reasoning.schedule.method import Method
from soft_reasoning.schedule.progress import Progress
from soft_reasoning.types import Problem, Result, Usage, UserError


class Solver(Protocol):
    """Solves problems with one method, in this process or elsewhere.

    ``about`` holds entries of the manifest: model, device, whether candidates are ``independent`` samples.
    """

    about: Mapping[str, Any]
    grader: AnswerGrader

    def solve(
        self,
        problems: Iterable[Problem],
        clock: Clock,
        completions: StoreFile | None = None,
        watch: Callable[[Sequence[int]], None] | None = None,
    ) -> Iterator[tuple[Problem, Result]]:
        """Yield each problem once with its result, in order of completion, as ``scheduler.drive`` does.

        Engines take ``completions`` from a store and add theirs to it. ``watch`` is called from time to time
        with the tokens that each unfinished problem has generated so far, if they are known.
        """
        ...

    def peaks(self) -> Mapping[str, int]:
        """Return the peak bytes of an engine so far, by kind; empty if unknown."""
        ...


class Launcher(Protocol):
    """Starts solvers and keeps their engines between runs."""

    def start(
        self,
        config: Mapping[str, Any],
        problems: Sequence[Problem],
        exemplars: Sequence[Exemplar] = (),
        method: Method | None = None,
    ) -> Solver:
        """Return a solver for ``config``; engines are reused if the next configuration allows it.

        ``method`` is that of ``config``, if it is built already; workers elsewhere build their own.

        Raises:
            UserError: If a prompt is too long.
        """
        ...

    def close(self) -> None:
        """Release engines and processes."""
        ...


@dataclass(frozen=True)
class Summary:
    """A finished run: its folder and its metrics (as in ``results.json``)."""

    folder: Path
    metrics: Mapping[str, Any]


def run(
    problems: Iterable[Problem],
    solver: Solver,
    folder: str | Path,
    config: Mapping[str, Any],
    *,
    words: Sequence[str] = (),
    chosen: Mapping[str, str] | None = None,
    fresh: bool = False,
    progress: bool = True,
    tracker: Tracker | None = None,
    report: Callable[[Path], Iterable[str]] | None = None,
) -> Summary:
    """Solve ``problems`` into ``folder``, resuming an earlier run of the same ``config``.

    Every finished problem is stored before it counts, so an interrupted run does not lose it. Completions of
    unfinished problems are in the store that ``config`` names as ``cache``.

    Args:
        problems: The problems, with distinct ids.
        solver: Solves the problems.
        folder: The run's folder.
        config: The configuration as plain data.
        words: The options of the run's command.
        chosen: The name of each group's choice, by which tables distinguish runs.
        fresh: Whether to start over.
        progress: Whether to show progress.
        tracker: Follows the run.
        report: Writes the report into the finished folder and returns notes, before ``tracker`` ends.

    Raises:
        UserError: If ``Store``, ``solver`` or ``tracker`` raises it, if there are no problems, or if
            ``folder`` holds a problem that has changed or is not among ``problems``.
    """
    problems = list(problems)
    if not problems:
        raise UserError("expected at least one problem, got none; check dataset.path and limit")
    display, final = Progress(len(problems), enabled=progress), final_rule(config)

    def watch(written: Sequence[int]) -> None:
        check_signals()
        display.work(written)

    with (
        Store(folder, config, words=words, chosen=chosen, fresh=fresh, about=solver.about) as store,
        follow_run(tracker, store.folder, config, display.say) as log,
    ):
        for note in ([solver.about["loaded"]] if progress and "loaded" in solver.about else []) + store.notes:
            display.say(note)
        rows = _grade(store.records, solver.grader, final)
        check_stored(store, problems)
        for row in rows:
            _count(row, display)
        if display.done:
            display.say(f"{display.done} of {len(problems)} problems are done; continuing in {store.folder}")
        done = {row.id for row in rows}
        todo = [problem for problem in problems if problem.id not in done]
        own = store.folder if store.locked else None  # SQLite needs locks
        completions = StoreFile.of(config.get("cache"), config.get("cache_gb", 1.0), own)
        if todo and completions is not None and completions.path.exists():
            display.say(f"completions that are stored in {completions.path} are not generated again")
        try:
            with display:
                for row in _solve(todo, solver, store, completions, final, watch) if todo else ():
                    rows.append(row)
                    _count(row, display)
                    display.show()
                    log(display.figures(), display.done)
        except BaseException:
            if display.done:
                stored = f"{display.done} of {len(problems)} problems are stored in {store.folder}"
                display.say(f"stopped: {stored}; the same command continues")
            raise
        metrics = _measure(rows, solver.grader, store.costs, solver.about)
        store.update_config()
        write_results(store.folder, metrics, rows)
        for note in report(store.folder) if report is not None else ():
            display.say(note)
    return Summary(store.folder, metrics)


def _grade(records: Iterable[Record], grader: AnswerGrader, final: FinalAnswer | None) -> list[Graded]:
    rows: list[Graded] = []
    for record in records:
        rows.append(grade(record, grader, final))
        check_signals()
    return rows


def _count(row: Graded, display: Progress) -> None:
    usage = sum(row.usage.values(), Usage())
    display.count(
        usage.generated_tokens,
        read=row.problem.answer is not None,
        correct=row.problem.correct,
        covered=row.problem.covered,
        replayed=usage.replayed_tokens,
    )


def _measure(
    rows: Sequence[Graded], grader: AnswerGrader, costs: Mapping[str, Any], about: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the metrics of a run, with the grader's settings."""
    metrics = measure(rows, costs=costs, rate=about.get("flops"), independent=about.get("independent", False))
    values = {key: getattr(value, "__qualname__", value) for key, value in vars(grader).items()}
    plain = {key: value for key, value in values.items() if isinstance(value, str | float | int | None)}
    return metrics | {"grader": {"name": grader.name, **plain}}


def _solve(
    problems: Iterable[Problem],
    solver: Solver,
    store: Store,
    completions: StoreFile | None,
    final: FinalAnswer | None,
    watch: Callable[[Sequence[int]], None],
) -> Iterator[Graded]:
    """Solve ``problems`` and yield each graded problem when its record is on the disk."""
    clock, last = Clock(), perf_counter()
    for problem, result in solver.solve(problems, clock, completions, watch):
        record = Record.of(problem, result, solver.grader)
        with clock.measure("store"):
            store.append(record)
        time = perf_counter()
        store.add_costs(clock.taken() | {"total": time - last}, solver.peaks())
        last = time
        yield grade(record, solver.grader, final)


def check_stored(store: Store, problems: Sequence[Problem]) -> None:
    """Check that the stored problems are among ``problems``, since costs include every solved problem.

    Raises:
        UserError: If a stored problem is not among them, or has changed.
    """
    by_id = {problem.id: problem for problem in problems}
    fix = "start over with fresh=true, or choose another folder with hydra.run.dir="
    for stored in (record.problem for record in store.records):
        problem = by_id.get(stored.id)
        if problem is None:
            raise UserError(
                f"{store.folder} holds problem {stored.name}, which this run does not have; raise "
                f"limit, {fix}"
            )
        parts = {"question": "question", "answer_type": "answer type", "gold": "reference answer"}
        changed = [part for name, part in parts.items() if getattr(stored, name) != getattr(problem, name)]
        if changed:
            raise UserError(
                f"{store.folder} holds problem {stored.name} with another {' and '.join(changed)}; "
                f"restore the data, {fix}"
            )


def write_results(folder: Path, metrics: Mapping[str, Any], rows: Iterable[Graded]) -> None:
    """Write the metrics of a run, and each problem's outcome by its id."""
    write_json(folder / RESULTS, metrics)
    outcomes = {row.id: asdict(row.outcome) for row in rows}
    lines = [f"{json.dumps(name)}: {json.dumps(outcomes[name])}" for name in sorted(outcomes)]
    write_text(folder / GRADES, "{\n" + ",\n".join(lines) + "\n}\n")


def regrade(folder: str | Path, grader: AnswerGrader) -> dict[str, Any]:
    """Grade a finished run again: new metrics, the same records.

    Only the problems in ``grades.json`` are graded, those that the run's results are about. Time and memory
    stay as in ``results.json``.

    Raises:
        UserError: If the folder holds no finished run.
    """
    folder = Path(folder)
    manifest, ids, results = (read_json(folder / name) for name in (MANIFEST, GRADES, RESULTS))
    final = final_rule(manifest["config"])
    rows = _grade([record for record in read_records(folder) if record.problem.id in ids], grader, final)
    metrics = _measure(rows, grader, results, manifest)
    write_results(folder, metrics, rows)
    return metrics
