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

from soft_reasoning.build import build_grader, plain
from soft_reasoning.checks import real, whole
from soft_reasoning.launchers.cluster import connect, places
from soft_reasoning.launchers.desk import Desk
from soft_reasoning.launchers.worker import Finished, Worker
from soft_reasoning.scheduler import KINDS, Clock
from soft_reasoning.types import Problem, Result, UserError

log = logging.getLogger(__name__)

DEATHS = 3
"""Times running that a worker may die, with no result in between, before the run gives up."""
PATIENCE = 30.0
"""Seconds without any answer before a line says what is waited for."""


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
        self._address, self._workers, self._cpus, self._gpus = address, workers, cpus, gpus
        self._ray: Any = None
        self._ours = False
        self._crew: list[_Member] = []

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
            count, gpus = places(self._ray.cluster_resources(), self._workers, self._cpus, self._gpus)
            self._hire = self._ray.remote(Worker).options(num_cpus=self._cpus, num_gpus=gpus).remote
            self._crew = [_Member(self._hire()) for _ in range(count)]
        run = (plain(config), list(exemplars))
        return RaySolver(self._ray, self._crew, self._hire, run, problems, build_grader(config))

    def close(self) -> None:
        """Stop the workers, and Ray if it was started here."""
        if self._ray is not None:
            for member in self._crew:
                self._ray.kill(member.actor)
            if self._ours:
                self._ray.shutdown()
            self._ray, self._crew = None, []


@dataclass(eq=False)
class _Member:
    """An actor of the crew, and how often it and those it replaces died since their last result."""

    actor: Any
    deaths: int = 0


class RaySolver:
    """One run on a crew; an ``evaluation.runner.Solver``."""

    def __init__(
        self,
        ray: Any,
        crew: list[_Member],
        hire: Callable[[], Any],
        run: tuple[dict[str, Any], list[Any]],
        problems: Sequence[Problem],
        grader: Any,
    ) -> None:
        self.grader = grader
        self.about: Mapping[str, Any] = {}
        self._ray, self._crew, self._hire, self._run = ray, crew, hire, run
        self._desk = Desk((), workers=1, room=1)
        self._beginning: dict[Any, _Member] = {}
        self._working: dict[Any, _Member] = {}
        self._idle: list[_Member] = []
        self._latest: dict[_Member, Finished] = {}
        for member in crew:
            self._begin(member)
        checked = False
        while not checked:
            while not self._idle:
                _, failure = self._collect()
                if failure is not None:
                    raise failure
            member = self._idle.pop()
            checked = self._value(member.actor.check.remote(problems), member) is not None
        self._idle.append(member)

    def peaks(self) -> dict[str, int]:
        """Return the largest peak of any worker, by kind."""
        peaks: dict[str, int] = {}
        for last in self._latest.values():
            for name, value in last.peaks.items():
                peaks[name] = max(value, peaks.get(name, 0))
        return peaks

    def held(self) -> dict[str, list[int]]:
        """Return nothing: workers do not sample their memory."""
        return {}

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
        self._desk = Desk(problems, workers=len(self._crew), room=self._run[0]["max_live"])
        finished: list[tuple[Problem, Result]] = []
        failure: Exception | None = None
        while True:
            if failure is None:
                self._hand_out()  # workers go on before anything is written
            yield from finished
            self._add_up(clock)
            if on_tick is not None:
                on_tick(clock)
            if failure is not None:
                raise failure
            if not self._desk.left:
                return
            finished, failure = self._collect()

    def _begin(self, member: _Member) -> None:
        self._beginning[member.actor.begin.remote(*self._run)] = member

    def _hand_out(self) -> None:
        members, self._idle = self._idle, []
        for member in members:
            given = self._desk.hand_out(member)
            if self._desk.holds(member):
                self._working[member.actor.work.remote(given)] = member
            else:
                self._idle.append(member)

    def _collect(self) -> tuple[list[tuple[Problem, Result]], Exception | None]:
        """Wait for a worker; return the finished problems, and the failure of a worker if there was one."""
        finished: list[tuple[Problem, Result]] = []
        failure: Exception | None = None
        for ref in self._answered():
            beginning = ref in self._beginning
            member = (self._beginning if beginning else self._working).pop(ref)
            try:
                value = self._value(ref, member)
            except Exception as error:  # raised once the others' results are safe
                failure = error
                continue
            if value is None:
                continue
            self._idle.append(member)
            if beginning:
                self.about = value
            else:
                member.deaths = 0
                self._latest[member] = value
                finished.append((self._desk.finished(member, value.doc_id), value.result))
        return finished, failure

    def _answered(self) -> list[Any]:
        calls = [*self._working, *self._beginning]
        ready, _ = self._ray.wait(calls, timeout=PATIENCE)
        if not ready and not self._working:
            log.warning("waiting for Ray to start a worker and load its engine")
        if not ready:
            self._ray.wait(calls)
        return self._ray.wait(calls, num_returns=len(calls), timeout=0)[0]

    def _value(self, ref: Any, member: _Member) -> Any:
        """The result of a call, or None if its worker died and was replaced."""
        try:
            return self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise UserError(str(error.cause)) from error.cause
            raise
        except self._ray.exceptions.RayError as error:
            self._replace(member, error)
            return None

    def _replace(self, member: _Member, error: Exception) -> None:
        lost = self._desk.lost(member)
        if member.deaths + 1 == DEATHS:
            raise UserError(
                f"expected a worker to live, one died {DEATHS} times running "
                f"({str(error).splitlines()[0]}); if memory ran out, lower max_live or ray.workers"
            ) from error
        log.warning("a worker died; %d problems run again elsewhere", lost)
        self._ray.kill(member.actor)  # in case it lives on out of reach
        heir = _Member(self._hire(), member.deaths + 1)
        self._crew[self._crew.index(member)] = heir
        self._begin(heir)

    def _add_up(self, clock: Clock) -> None:
        clocks = [last.clock for last in self._latest.values()]
        for kind in KINDS:
            clock.seconds[kind] = sum(one.seconds[kind] for one in clocks) / len(self._crew)
        clock.generated_tokens = sum(one.generated_tokens for one in clocks)
        clock.sequences = sum(one.sequences for one in clocks)
        clock.live = sum(map(self._desk.holds, self._crew))
