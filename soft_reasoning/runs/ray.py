"""Several engines on Ray, one actor each, on this machine or a running cluster.

The calling process loads no model. It assigns problems and collects results, so one process writes the
store. A problem's result depends neither on its worker nor on their number. If a worker dies, another one
solves its problems.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig

from soft_reasoning.checks import real, whole
from soft_reasoning.configuration.build import build_grader, plain
from soft_reasoning.runs.workers import Finished, Worker, WorkQueue, connect, places
from soft_reasoning.scheduling.scheduler import KINDS, Clock
from soft_reasoning.types import Problem, Result, UserError

log: logging.Logger = logging.getLogger(__name__)

DEATHS = 3
"""Deaths of a worker in a row, without a result in between, after which the run fails."""
PATIENCE = 30.0
"""Seconds without an answer after which a line says what the run waits for."""


class RayLauncher:
    """Keeps its workers and their engines from one run to the next.

    Args:
        address: As in ``cluster.connect``.
        workers: As in ``cluster.places``.
        cpus: CPUs of a worker; may be a fraction of one.
        gpus: GPUs of a worker; as in ``cluster.places``, and may be a fraction of one.

    Raises:
        UserError: For a value out of its range.
    """

    def __init__(
        self,
        address: str = "local",
        workers: int | None = None,
        cpus: float = 1,
        gpus: float | None = None,
    ) -> None:
        if workers is not None:
            whole("ray.workers", workers, least=1)
        for name, value in (("cpus", cpus), ("gpus", 0 if gpus is None else gpus)):
            if real(f"ray.{name}", value, least=0) > 1 and value != int(value):
                raise UserError(f"ray.{name}: expected a whole number or a fraction of one, got {value}")
        self._address, self._count, self._cpus, self._gpus = address, workers, cpus, gpus
        self._ray: Any = None
        self._ours = False
        self._workers: list[_WorkerProcess] = []

    def start(
        self, config: DictConfig, problems: Sequence[Problem], exemplars: Sequence[Any] = ()
    ) -> RaySolver:
        """Return a solver once a first worker is ready.

        Raises:
            UserError: Without Ray, a cluster at the address or enough CPUs or GPUs, and if an engine cannot
                be loaded or a prompt is too long.
        """
        if self._ray is None:
            self._ray, self._ours = connect(self._address)
            count, gpus = places(self._ray.cluster_resources(), self._count, self._cpus, self._gpus)
            self._start_worker = self._ray.remote(Worker).options(num_cpus=self._cpus, num_gpus=gpus).remote
            self._workers = [_WorkerProcess(self._start_worker()) for _ in range(count)]
        run = (plain(config), list(exemplars))
        return RaySolver(self._ray, self._workers, self._start_worker, run, problems, build_grader(config))

    def close(self) -> None:
        """Stop the workers, and Ray if it was started here."""
        if self._ray is not None:
            for worker in self._workers:
                self._ray.kill(worker.actor)
            if self._ours:
                self._ray.shutdown()
            self._ray, self._workers = None, []


@dataclass(eq=False)
class _WorkerProcess:
    """A Ray actor, and how often it and those it replaced died since their last result."""

    actor: Any
    deaths: int = 0


class RaySolver:
    """One run on Ray workers; an ``runs.runner.Solver``."""

    def __init__(
        self,
        ray: Any,
        workers: list[_WorkerProcess],
        start_worker: Callable[[], Any],
        run: tuple[dict[str, Any], list[Any]],
        problems: Sequence[Problem],
        grader: Any,
    ) -> None:
        self.grader = grader
        self.about: Mapping[str, Any] = {}
        self._ray, self._workers, self._start_worker, self._run = ray, workers, start_worker, run
        self._queue = WorkQueue((), workers=1, room=1)
        self._beginning: dict[Any, _WorkerProcess] = {}
        self._working: dict[Any, _WorkerProcess] = {}
        self._idle: list[_WorkerProcess] = []
        self._latest: dict[_WorkerProcess, Finished] = {}
        self._held: dict[str, list[int]] = {}
        for worker in workers:
            self._begin(worker)
        checked = False
        while not checked:
            while not self._idle:
                _, failure = self._collect()
                if failure is not None:
                    raise failure
            worker = self._idle.pop()
            checked = self._value(worker.actor.check.remote(problems), worker) is not None
        self._idle.append(worker)

    def peaks(self) -> dict[str, int]:
        """Return the largest peak of any worker, by kind."""
        peaks: dict[str, int] = {}
        for last in self._latest.values():
            for name, value in last.peaks.items():
                peaks[name] = max(value, peaks.get(name, 0))
        return peaks

    def memory_samples(self) -> dict[str, list[int]]:
        """Return [sum of bytes, number of samples] of all workers by kind since the last call."""
        samples, self._held = self._held, {}
        return samples

    def solve(
        self,
        problems: Iterable[Problem],
        *,
        clock: Clock,
        on_tick: Callable[[Clock], None] | None = None,
    ) -> Iterator[tuple[Problem, Result]]:
        """Do what ``Solver.solve`` does.

        Seconds in ``clock`` are the mean over workers, so that they compare with elapsed time. Tokens and
        sequences are totals.
        """
        self._queue = WorkQueue(problems, workers=len(self._workers), room=self._run[0]["max_live"])
        finished: list[tuple[Problem, Result]] = []
        failure: Exception | None = None
        while True:
            if failure is None:
                self._assign()  # workers continue while results are written
            yield from finished
            self._add_up(clock)
            if on_tick is not None:
                on_tick(clock)
            if failure is not None:
                raise failure
            if not self._queue.unfinished:
                return
            finished, failure = self._collect()

    def _begin(self, worker: _WorkerProcess) -> None:
        self._beginning[worker.actor.begin.remote(*self._run)] = worker

    def _assign(self) -> None:
        idle, self._idle = self._idle, []
        for worker in idle:
            given = self._queue.assign(worker)
            if self._queue.assigned(worker):
                self._working[worker.actor.work.remote(given)] = worker
            else:
                self._idle.append(worker)

    def _collect(self) -> tuple[list[tuple[Problem, Result]], Exception | None]:
        """Wait for a worker; return the finished problems, and the failure of a worker if there was one."""
        finished: list[tuple[Problem, Result]] = []
        failure: Exception | None = None
        for ref in self._answered():
            beginning = ref in self._beginning
            worker = (self._beginning if beginning else self._working).pop(ref)
            try:
                value = self._value(ref, worker)
            except Exception as error:  # raised after the others' results are stored
                failure = error
                continue
            if value is None:
                continue
            self._idle.append(worker)
            if beginning:
                self.about = value
            else:
                worker.deaths = 0
                self._latest[worker] = value
                for kind, (total, count) in value.used.items():
                    before = self._held.get(kind, [0, 0])
                    self._held[kind] = [before[0] + total, before[1] + count]
                finished.append((self._queue.finish(worker, value.doc_id), value.result))
        return finished, failure

    def _answered(self) -> list[Any]:
        calls = [*self._working, *self._beginning]
        ready, _ = self._ray.wait(calls, timeout=PATIENCE)
        if not ready and not self._working:
            log.warning("waiting for Ray to start a worker and load its engine")
        if not ready:
            self._ray.wait(calls)
        return self._ray.wait(calls, num_returns=len(calls), timeout=0)[0]

    def _value(self, ref: Any, worker: _WorkerProcess) -> Any:
        """The result of a call, or None if its worker died and was replaced."""
        try:
            return self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise UserError(str(error.cause)) from error.cause
            raise
        except self._ray.exceptions.RayError as error:
            self._replace(worker, error)
            return None

    def _replace(self, worker: _WorkerProcess, error: Exception) -> None:
        lost = self._queue.requeue(worker)
        if worker.deaths + 1 == DEATHS:
            raise UserError(
                f"a worker died {DEATHS} times in a row "
                f"({str(error).splitlines()[0]}); if memory ran out, lower max_live or ray.workers"
            ) from error
        log.warning("a worker died; %d problems run again on others", lost)
        self._ray.kill(worker.actor)  # it may be alive but unreachable
        replacement = _WorkerProcess(self._start_worker(), worker.deaths + 1)
        self._workers[self._workers.index(worker)] = replacement
        self._begin(replacement)

    def _add_up(self, clock: Clock) -> None:
        clocks = [last.clock for last in self._latest.values()]
        for kind in KINDS:
            clock.seconds[kind] = sum(one.seconds[kind] for one in clocks) / len(self._workers)
        clock.generated_tokens = sum(one.generated_tokens for one in clocks)
        clock.sequences = sum(one.sequences for one in clocks)
        clock.live = sum(map(self._queue.assigned, self._workers))
