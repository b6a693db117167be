"""A run from its problems to its report: resume, solve, store, measure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter
from typing import Protocol

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.configuration.context import (
    SecondModels,
    build_context,
    build_engine,
    build_method,
    check_problems,
    check_wording,
)
from soft_reasoning.engine.base import Engine
from soft_reasoning.engine.completions import StoreFile, replaying
from soft_reasoning.engine.paths import weights_fingerprint
from soft_reasoning.lab.runs.files import GRADES, MANIFEST, RESULTS, Json, read_json, write_json, write_text
from soft_reasoning.lab.runs.grading import final_rule, grade
from soft_reasoning.lab.runs.manifest import build_manifest, describe_engine
from soft_reasoning.lab.runs.metrics import measure
from soft_reasoning.lab.runs.records import START_OVER, Graded, Record, Store, read_records
from soft_reasoning.prompts import Exemplar
from soft_reasoning.schedule.job import Clock
from soft_reasoning.schedule.method import Context, Method
from soft_reasoning.schedule.progress import Progress
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import Problem, Result, Usage, UserError

ENGINE = ("model", "device", "batch_invariant", "layout", "independent")
"""The manifest's entries that a launcher states."""


class Launcher(Protocol):
    """Solves the problems of runs, one run after the other, and keeps its engines between them."""

    def start(self, config: Json, problems: Sequence[Problem], exemplars: Sequence[Exemplar] = ()) -> Json:
        """Prepare a run of ``config``; an engine is reused if the configuration allows it.

        Returns:
            Entries of the manifest, those of :func:`describe_run`.

        Raises:
            UserError: If a prompt is too long.
        """
        ...

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

    def close(self) -> None:
        """Release engines and processes."""
        ...


class LocalLauncher:
    """Solves in this process, and keeps its engine until a configuration needs another one.

    ``method`` and ``context`` are those of the run that was started last.
    """

    method: Method
    context: Context
    max_live: int

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._settings: Json | None = None
        self._models = SecondModels()

    def start(self, config: Json, problems: Sequence[Problem], exemplars: Sequence[Exemplar] = ()) -> Json:
        """As ``Launcher.start``."""
        method, settings = build_method(config), config["engine"]
        check_wording(config["prompt"], method)
        if self._engine is None or self._settings != settings:
            self._close_engine()
            self._engine, self._settings = build_engine(config), settings
        else:
            self._engine.begin_run()
        self._models.begin_run()
        context = build_context(config, self._engine, exemplars, self._models, method)
        check_problems(problems, context)
        self.method, self.context, self.max_live = method, context, config["max_live"]
        return describe_run(method, context)

    def solve(
        self,
        problems: Iterable[Problem],
        clock: Clock,
        completions: StoreFile | None = None,
        watch: Callable[[Sequence[int]], None] | None = None,
    ) -> Iterator[tuple[Problem, Result]]:
        """As ``Launcher.solve``."""
        with replaying(completions, self.context.engines):
            yield from drive(
                problems, self.method, self.context, max_live=self.max_live, clock=clock, watch=watch
            )

    def peaks(self) -> Mapping[str, int]:
        return self.context.engine.peak_bytes

    def close(self) -> None:
        """Release all models."""
        self._close_engine()
        self._models.close()

    def _close_engine(self) -> None:
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def run(
    problems: Iterable[Problem],
    launcher: Launcher,
    grader: AnswerGrader,
    folder: str | Path,
    config: Json,
    *,
    exemplars: Sequence[Exemplar] = (),
    about: Json | None = None,
) -> Json:
    """Solve ``problems`` into ``folder``, resuming an earlier run of the same ``config``.

    Every finished problem is stored before it counts, so an interrupted run does not lose it. Completions of
    unfinished problems are in the store that ``config`` names as ``cache``.

    Args:
        problems: The problems, one or more, with distinct ids.
        launcher: Solves; not started if the folder holds a record of every problem.
        grader: Grades answers.
        folder: The run's folder.
        config: The configuration as plain data; ``fresh`` starts over, and ``progress`` shows progress.
        exemplars: The exemplars of the prompt.
        about: Entries of the manifest about the command (:func:`build_manifest`).

    Returns:
        The metrics, as in ``results.json``.

    Raises:
        UserError: If ``Store`` or ``launcher`` raises it, or if ``folder`` holds a problem that has changed
            or is not among ``problems``.
    """
    problems = [replace(problem, place=place) for place, problem in enumerate(problems)]
    final, rows, progress = final_rule(config), list[Graded](), bool(config.get("progress", True))
    display = Progress(len(problems), enabled=progress)

    def count(record: Record) -> None:
        rows.append(row := grade(record, grader, final))
        used, read = sum(record.result.usage.values(), Usage()), row.answer is not None
        display.count(used.generated_tokens, read=read, correct=row.correct, replayed=used.replayed_tokens)

    with Store(Path(folder), fresh=config.get("fresh", False)) as store:
        stored = {record.problem.id for record in store.records}
        todo = [problem for problem in problems if problem.id not in stored]
        engine = launcher.start(config, problems, exemplars) if todo else describe_stored(store.manifest)
        manifest = build_manifest(config, {**(about or {}), **engine})
        store.begin(manifest)
        check_stored(store, problems)
        for note in ([engine["loaded"]] if todo and progress else []) + store.notes:
            display.say(note)
        for record in store.records:
            count(record)
        with display:
            for record in _solve(todo, launcher, grader, store, config, display) if todo else ():
                count(record)
                display.show()
        metrics = _measure(rows, grader, store.costs, engine)
        store.update_manifest(manifest)
        write_results(store.folder, metrics, rows)
    return metrics


def _solve(
    problems: Iterable[Problem],
    launcher: Launcher,
    grader: AnswerGrader,
    store: Store,
    config: Json,
    display: Progress,
) -> Iterator[Record]:
    """Solve ``problems``, and yield each record when it is on the disk."""
    if display.done:
        display.say(f"{display.done} of {display.total} problems are done; continuing in {store.folder}")
    own = store.folder if store.locked else None  # SQLite needs locks
    completions = StoreFile.of(config.get("cache"), config.get("cache_gb", 1.0), own)
    if completions is not None and completions.path.exists():
        display.say(f"completions that are stored in {completions.path} are not generated again")
    clock, last = Clock(), perf_counter()
    try:
        for problem, result in launcher.solve(problems, clock, completions, display.work):
            record = Record.new(problem, result, grader)
            with clock.measure("store"):
                store.append(record)
            time = perf_counter()
            store.add_costs(clock.taken() | {"total": time - last}, launcher.peaks())
            last = time
            yield record
    except BaseException:
        if display.done:
            done = f"{display.done} of {display.total} problems are stored in {store.folder}"
            display.say(f"stopped: {done}; the same command continues")
        raise


def describe_run(method: Method, context: Context) -> Json:
    """Return the manifest's entries about the engine and the method."""
    return {
        **describe_engine(context.engine),
        "layout": context.prompts.layout,
        "independent": bool(getattr(method, "independent", False)),
    }


def describe_stored(manifest: Json) -> Json:
    """Return what the launcher of a stored run stated, from its ``manifest``.

    The weights are described anew, so :class:`~soft_reasoning.lab.runs.records.Store` refuses others.
    """
    about = {name: manifest[name] for name in ENGINE if name in manifest}
    model = about.get("model") or {}
    if model.get("weights") and not model.get("served"):
        about["model"] = model | {"weights": weights_fingerprint(model["path"], None)}
    return about


def check_stored(store: Store, problems: Sequence[Problem]) -> None:
    """Check that the stored problems are among ``problems``, since costs include every solved problem.

    Raises:
        UserError: If a stored problem is not among them, or has changed.
    """
    by_id = {problem.id: problem for problem in problems}
    for record in store.records:
        name, problem = record.problem.name, by_id.get(record.problem.id)
        if problem is None:
            raise UserError(
                f"{store.folder} holds problem {name}, which this run lacks; raise limit, {START_OVER}"
            )
        parts = ("question", "answer_type", "gold")
        if any(getattr(record.problem, part) != getattr(problem, part) for part in parts):
            raise UserError(
                f"{store.folder} holds problem {name} with another question, type or reference answer; "
                f"restore the data, {START_OVER}"
            )


def _measure(rows: Sequence[Graded], grader: AnswerGrader, costs: Json, about: Json) -> Json:
    """Return the metrics of a run, with the grader's settings."""
    metrics = measure(rows, costs=costs, independent=about.get("independent", False))
    values = {key: getattr(value, "__qualname__", value) for key, value in vars(grader).items()}
    plain = {key: value for key, value in values.items() if isinstance(value, str | float | int | None)}
    return {**metrics, "grader": {"name": grader.name, **plain}}


def write_results(folder: Path, metrics: Json, rows: Iterable[Graded]) -> None:
    """Write the metrics of a run, and its graded problems by their ids."""
    write_json(folder / RESULTS, metrics)
    graded = {row.id: asdict(row) for row in rows}
    lines = [f"{json.dumps(name)}: {json.dumps(graded[name])}" for name in sorted(graded)]
    write_text(folder / GRADES, "{\n" + ",\n".join(lines) + "\n}\n")


def regrade(folder: str | Path, grader: AnswerGrader) -> Json:
    """Grade a finished run again: new metrics, the same records.

    Only the problems in ``grades.json`` are graded, those that the run's results are about. Time and memory
    stay as in ``results.json``.

    Raises:
        UserError: If the folder holds no finished run.
    """
    folder = Path(folder)
    manifest, ids, results = (read_json(folder / name) for name in (MANIFEST, GRADES, RESULTS))
    records, final = read_records(folder), final_rule(manifest["config"])
    rows = [grade(record, grader, final) for record in records if record.problem.id in ids]
    metrics = _measure(rows, grader, results, manifest)
    write_results(folder, metrics, rows)
    return metrics
