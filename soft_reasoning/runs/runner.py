"""A run from its problems to its report: resume, solve, store, measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol, cast

from omegaconf import DictConfig

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.checks import ids
from soft_reasoning.runs.files import (
    GRADES,
    RESULTS,
    Costs,
    read_costs,
    read_grades,
    read_manifest,
    read_records,
    read_results,
    write_json,
)
from soft_reasoning.runs.manifest import IGNORED
from soft_reasoning.runs.metrics import measure
from soft_reasoning.runs.progress import Progress
from soft_reasoning.runs.records import Graded, grade, record_of
from soft_reasoning.runs.store import Store
from soft_reasoning.runs.tracking import Followed, Tracker
from soft_reasoning.scheduling.job import Clock
from soft_reasoning.types import Problem, Result, UserError, shortened


class Solver(Protocol):
    """Solves problems with one method, in this process or elsewhere."""

    @property
    def about(self) -> Mapping[str, Any]:
        """Entries of the manifest: model, device, and whether candidates are ``independent`` samples."""
        ...

    @property
    def grader(self) -> AnswerGrader:
        """Reads and compares answers."""
        ...

    def solve(
        self,
        problems: Iterable[Problem],
        *,
        clock: Clock,
        on_tick: Callable[[Clock], None] | None = None,
    ) -> Iterator[tuple[Problem, Result]]:
        """Yield each problem once with its result, in the order they finish, as ``scheduler.drive`` does."""
        ...

    def peaks(self) -> Mapping[str, int]:
        """Return the most bytes that an engine has used so far, by kind; empty if unknown."""
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
    ignore: Sequence[str] = IGNORED,
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
        ignore: Keys of ``config`` that change no result.
        tracker: Follows the run.
        report: Writes what is read from the finished folder, and returns notes, before ``tracker`` gets it.

    Raises:
        UserError: For what ``Store``, ``solver`` and ``tracker`` refuse, for no problems or repeated ids, and
            if ``folder`` holds a problem that has changed or is not among ``problems``.
    """
    problems = list(problems)
    if not problems:
        raise UserError("expected at least one problem, got none; check dataset.path and limit")
    ids((f"problem {number}", problem.id) for number, problem in enumerate(problems, start=1))
    about = solver.about
    shown = Progress(len(problems), enabled=progress)
    with (
        Store(folder, config, ignore=ignore, fresh=fresh, about=about) as store,
        Followed(tracker, store.folder, config, shown.say) as followed,
    ):
        for note in store.notes:
            shown.say(note)
        rows = list(_stored(store, problems, solver.grader))
        for row in rows:
            shown.count(row)
        if shown.done:
            shown.say(f"{shown.done} of {len(problems)} problems are done; continuing in {store.folder}")
        try:
            with shown:
                todo = [problem for problem in problems if problem.id not in store.done]
                _solve(todo, solver, store, rows, shown, followed)
        except BaseException as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            if shown.done:
                stored = f"{shown.done} of {len(problems)} problems are stored in {store.folder}"
                shown.say(
                    f"interrupted: {stored}"
                    if interrupted
                    else f"stopped: {stored}; the same command continues"
                )
            raise
        metrics = measure(
            rows, costs=read_costs(store.folder), rate=about.get("flops"), independent=about["independent"]
        )
        store.measured()
        write_results(store.folder, metrics, rows)
        for note in report(store.folder) if report is not None else ():
            shown.say(note)
        followed.finish(metrics)
    return Summary(store.folder, metrics)


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


def _stored(store: Store, problems: Sequence[Problem], grader: AnswerGrader) -> Iterator[Graded]:
    """Yield the stored problems, graded.

    Raises:
        UserError: If a stored problem has changed or is not among ``problems``, since the time and memory
            of a run are those of all that it solved.
    """
    wanted = {problem.id: problem for problem in problems}
    fix = "start over with fresh=true, or choose another folder with hydra.run.dir="
    for name, before in store.done.items():
        if name not in wanted:
            raise UserError(
                f"{store.folder} holds problem {shortened(name)}, which this run does not take; "
                f"raise limit, {fix}"
            )
        now = wanted[name].question, wanted[name].answer_type, wanted[name].gold
        parts = zip(("question", "answer type", "reference answer"), before, now, strict=True)
        if changed := " and ".join(part for part, old, new in parts if old != new):
            raise UserError(
                f"{store.folder} holds problem {shortened(name)} with another {changed}; "
                f"restore the data, {fix}"
            )
    for record in read_records(store.folder):
        yield grade(record, grader)


def _solve(
    todo: Sequence[Problem],
    solver: Solver,
    store: Store,
    rows: list[Graded],
    shown: Progress,
    followed: Followed,
) -> None:
    """Solve ``todo``; the results of one step are on disk before the next step and before they count."""
    clock = Clock()
    recorded: dict[str, float] = {}
    finished: list[Graded] = []
    began = perf_counter()

    def settle(clock: Clock) -> None:
        nonlocal recorded
        if finished:
            with clock.measure("store"):
                store.sync()
            now = {**clock.seconds, "total": perf_counter() - began}
            spent = {kind: value - recorded.get(kind, 0.0) for kind, value in now.items()}
            store.add_seconds(spent, solver.peaks())
            recorded = now
        for row in finished:
            rows.append(row)
            shown.count(row)
        if finished:
            followed.log(shown.figures(), shown.done)
        finished.clear()
        shown.show(clock)

    try:
        for problem, result in solver.solve(todo, clock=clock, on_tick=settle):
            record = record_of(problem, result, solver.grader)
            with clock.measure("store"):
                store.append(record)
            finished.append(grade(record, solver.grader))
    finally:
        settle(clock)


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
    metrics = measure(
        rows,
        costs=Costs(before.get("seconds") or {}, before.get("peak_bytes") or {}),
        rate=manifest.get("flops"),
        independent=manifest.get("independent", False),
    )
    metrics["grader"] = {"name": grader.name, **asdict(cast(Any, grader))}
    write_results(folder, metrics, rows)
    return metrics
