"""A run from its problems to its report: resume, solve, store, measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol, cast

from omegaconf import DictConfig

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.runs.files import (
    GRADES,
    RESULTS,
    read_grades,
    read_manifest,
    read_records,
    read_results,
    write_json,
)
from soft_reasoning.runs.metrics import measure
from soft_reasoning.runs.progress import Progress
from soft_reasoning.runs.records import Graded, grade, problem_of, record_of
from soft_reasoning.runs.store import Store
from soft_reasoning.runs.tracking import Tracker, followed
from soft_reasoning.scheduling.job import Clock
from soft_reasoning.types import Problem, Result, UserError


class Solver(Protocol):
    """Solves problems with one method, in this process or elsewhere.

    ``about`` holds entries of the manifest: model, device, whether candidates are ``independent`` samples.
    """

    about: Mapping[str, Any]
    grader: AnswerGrader

    def solve(self, problems: Iterable[Problem], clock: Clock) -> Iterator[tuple[Problem, Result]]:
        """Yield each problem once with its result, in the order they finish, as ``scheduler.drive`` does."""
        ...

    def peaks(self) -> Mapping[str, int]:
        """Return the most bytes that an engine has used so far, by kind; empty if unknown."""
        ...


class Launcher(Protocol):
    """Starts solvers and keeps their engines between runs."""

    def start(self, config: DictConfig, problems: Sequence[Problem], exemplars: Sequence[Any] = ()) -> Solver:
        """Return a solver for ``config``; engines are reused if the next configuration allows it.

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
    fresh: bool = False,
    progress: bool = True,
    tracker: Tracker | None = None,
    report: Callable[[Path], Iterable[str]] | None = None,
) -> Summary:
    """Solve ``problems`` into ``folder``, resuming an earlier run of the same ``config``.

    Every finished problem is stored before it counts, so an interrupted run loses none.

    Args:
        problems: The problems, with distinct ids.
        solver: What solves them.
        folder: The run's folder.
        config: The configuration as plain data.
        fresh: Whether to start over.
        progress: Whether to show progress.
        tracker: Follows the run.
        report: Writes what is read from the finished folder, and returns notes, before ``tracker`` gets it.

    Raises:
        UserError: For what ``Store``, ``solver`` and ``tracker`` refuse, for no problems, and
            if ``folder`` holds a problem that has changed or is not among ``problems``.
    """
    problems = list(problems)
    if not problems:
        raise UserError("expected at least one problem, got none; check dataset.path and limit")
    shown = Progress(len(problems), enabled=progress)
    with (
        Store(folder, config, fresh=fresh, about=solver.about) as store,
        followed(tracker, store.folder, config, shown.say) as log,
    ):
        for note in store.notes:
            shown.say(note)
        rows = [grade(record, solver.grader) for record in store.records]
        check_stored(store, problems)
        for row in rows:
            shown.count(row)
        if shown.done:
            shown.say(f"{shown.done} of {len(problems)} problems are done; continuing in {store.folder}")
        done = {row.problem["doc_id"] for row in rows}
        todo = [problem for problem in problems if problem.id not in done]
        try:
            with shown:
                for row in _solve(todo, solver, store):
                    rows.append(row)
                    shown.count(row)
                    shown.show()
                    log(shown.figures(), shown.done)
        except BaseException:
            if shown.done:
                stored = f"{shown.done} of {len(problems)} problems are stored in {store.folder}"
                shown.say(f"stopped: {stored}; the same command continues")
            raise
        rate, independent = solver.about.get("flops"), solver.about["independent"]
        metrics = measure(rows, costs=store.costs, rate=rate, independent=independent)
        store.measured()
        write_results(store.folder, metrics, rows)
        for note in report(store.folder) if report is not None else ():
            shown.say(note)
    return Summary(store.folder, metrics)


def _solve(problems: Iterable[Problem], solver: Solver, store: Store) -> Iterator[Graded]:
    """Solve ``problems`` and yield each, graded, once its record is on the disk."""
    clock, last = Clock(), perf_counter()
    for problem, result in solver.solve(problems, clock):
        record = record_of(problem, result, solver.grader)
        with clock.measure("store"):
            store.append(record)
        now = perf_counter()
        store.add_costs(clock.taken() | {"total": now - last}, solver.peaks())
        last = now
        yield grade(record, solver.grader)


def check_stored(store: Store, problems: Sequence[Problem]) -> None:
    """Check that the stored problems are among ``problems``: costs are those of all that a run solved.

    Raises:
        UserError: If one is not, or has changed.
    """
    wanted = {problem.id: problem for problem in problems}
    fix = "start over with fresh=true, or choose another folder with hydra.run.dir="
    for before in map(problem_of, store.records):
        now = wanted.get(before.id)
        if now is None:
            raise UserError(
                f"{store.folder} holds problem {before.name}, which this run does not take; raise "
                f"limit, {fix}"
            )
        parts = {"question": "question", "answer_type": "answer type", "gold": "reference answer"}
        changed = [part for name, part in parts.items() if getattr(before, name) != getattr(now, name)]
        if changed:
            raise UserError(
                f"{store.folder} holds problem {before.name} with another {' and '.join(changed)}; "
                f"restore the data, {fix}"
            )


def write_results(folder: Path, metrics: Mapping[str, Any], rows: Iterable[Graded]) -> None:
    """Write the metrics of a run, and the outcome of each problem by its id."""
    write_json(folder / RESULTS, metrics)
    outcomes = {
        row.problem["doc_id"]: {
            name: row.problem[name] for name in ("correct", "covered", "answer", "difficulty")
        }
        for row in rows
    }
    write_json(folder / GRADES, dict(sorted(outcomes.items())))


def regrade(folder: str | Path, grader: AnswerGrader) -> dict[str, Any]:
    """Grade a finished run again: new metrics, the same records.

    Only what the run measured is graded: the problems in ``grades.json``. Time and memory stay as in
    ``results.json``.

    Raises:
        UserError: If the folder holds no finished run.
    """
    folder = Path(folder)
    manifest, wanted, before = read_manifest(folder), read_grades(folder), read_results(folder)
    rows = [grade(record, grader) for record in read_records(folder) if record["doc_id"] in wanted]
    rate, independent = manifest.get("flops"), manifest.get("independent", False)
    metrics = measure(rows, costs=before, rate=rate, independent=independent)
    metrics["grader"] = {"name": grader.name, **asdict(cast(Any, grader))}
    write_results(folder, metrics, rows)
    return metrics
