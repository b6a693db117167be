"""One engine in its own process, and the problems it works on."""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from soft_reasoning.configuration.build import check_lengths, check_unseen
from soft_reasoning.runs.local import LocalLauncher
from soft_reasoning.scheduling.scheduler import Clock
from soft_reasoning.types import Problem, Result, UserError


@dataclass(frozen=True)
class Finished:
    """A problem's result, with the worker's clock and peaks of memory at that time.

    ``used`` are the worker's memory samples since its last result (``Solver.memory_samples``).
    """

    doc_id: str
    result: Result
    clock: Clock
    peaks: Mapping[str, int]
    used: Mapping[str, Sequence[int]]


class Worker:
    """Solves the problems it receives, up to ``max_live`` together, for one run after another."""

    def __init__(self) -> None:
        self._launcher = LocalLauncher()

    def begin(self, config: Mapping[str, Any], exemplars: Sequence[Any]) -> dict[str, Any]:
        """Prepare a run of ``config`` (plain data) and return what the manifest says of the engine."""
        self._local = self._launcher.start(OmegaConf.create(dict(config)), (), exemplars)
        self._inbox = _Inbox()
        self._clock = Clock()
        self._steps: Iterator[tuple[Problem, Result]] = iter(())
        return dict(self._local.about)

    def check(self, problems: Sequence[Problem]) -> bool:
        """Return True.

        Raises:
            UserError: If a prompt is too long, or the method's ``search.prior`` was made on a problem.
        """
        check_lengths(list(problems), self._local.context)
        check_unseen(problems, self._local.method)
        return True

    def work(self, problems: Sequence[Problem]) -> Finished | None:
        """Add ``problems`` and work until one problem is finished; None if none was left.

        They join the batches of those in progress. Raises as ``scheduler.drive`` does.
        """
        self._inbox.waiting.extend(problems)
        done = next(self._steps, None)
        if done is None:
            self._steps = self._local.solve(self._inbox, clock=self._clock)
            done = next(self._steps, None)
        if done is None:
            return None
        problem, result = done
        peaks, used = self._local.peaks(), self._local.memory_samples()
        return Finished(problem.id, result, self._clock, peaks, used)


class _Inbox:
    """Problems not yet started; unlike most iterators it can continue after its end, when more were added."""

    def __init__(self) -> None:
        self.waiting: deque[Problem] = deque()

    def __iter__(self) -> Iterator[Problem]:
        return self

    def __next__(self) -> Problem:
        if not self.waiting:
            raise StopIteration
        return self.waiting.popleft()


REACHED = 5.0
"""Seconds within which a cluster must answer; Ray itself waits for minutes."""


def connect(address: str) -> tuple[Any, bool]:
    """Return Ray connected to ``address``, and whether this call opened the connection.

    ``local`` starts Ray on this machine, ``auto`` finds one that runs on it, anything else is HOST:PORT. An
    open session is used as it is.

    Raises:
        UserError: Without Ray, or if no cluster answers.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Otherwise Ray prints a paragraph for every dead worker, which we report in one line.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed")
    try:
        import ray
    except ImportError as error:
        raise UserError('launcher=ray needs Ray; pip install "soft-reasoning[ray]"') from error
    if ray.is_initialized():
        return ray, False
    options: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        if address not in ("local", "auto"):
            _reach(address)
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"expected a Ray cluster at ray.address={address}, found none; start one there (ray start "
            "--head), or leave ray.address out to run on this machine alone"
        ) from error
    return ray, True


def _reach(address: str) -> None:
    host, _, port = str(address).rpartition(":")
    if not (host and port.isdigit()) or "/" in host:
        raise UserError(f"expected ray.address to be local, auto or HOST:PORT, got {address}")
    socket.create_connection((host, int(port)), timeout=REACHED).close()


def places(
    resources: Mapping[str, float], workers: int | None, cpus: float, gpus: float | None
) -> tuple[int, float]:
    """Return the number of workers and the GPUs of each.

    Args:
        resources: The cluster's resources, by Ray's names.
        workers: How many; None is as many as fit.
        cpus: CPUs of each worker.
        gpus: GPUs of each worker; None is 1 if there are any.

    Raises:
        UserError: If the cluster has too few.
    """
    if gpus is None:
        gpus = 1.0 if resources.get("GPU", 0) >= 1 else 0.0
    room = []
    for name, each in (("GPU", gpus), ("CPU", cpus)):
        if each == 0:
            continue
        there = resources.get(name, 0)
        # A fraction shares one device and is not split between two.
        fits = int(there / each + 1e-9) if each >= 1 else int(there) * int(1 / each + 1e-9)
        wanted = workers or 1
        if fits < wanted:
            raise UserError(
                f"expected {name}s for {wanted} worker{'s' * (wanted > 1)} of {each:g} each, found {there:g} "
                f"in all; lower ray.workers or ray.{name.lower()}s"
            )
        room.append(fits)
    return workers or min(room, default=1), gpus


class WorkQueue:
    """The unfinished problems of a run, waiting or assigned to one of ``workers`` workers.

    A worker has at most ``room`` problems. It is assigned at most its part of half of the waiting ones
    (guided self-scheduling, Polychronopoulos and Kuck 1987). So the first shares are large, the last
    problems are assigned one by one, and a slow worker has few of them.
    """

    def __init__(self, problems: Iterable[Problem], *, workers: int, room: int) -> None:
        self._waiting = deque(problems)
        self._assigned: dict[Hashable, dict[str, Problem]] = {}
        self._workers, self._room = workers, room

    @property
    def unfinished(self) -> int:
        """Number of problems that are not finished."""
        return len(self._waiting) + sum(map(len, self._assigned.values()))

    def assigned(self, worker: Hashable) -> int:
        """Number of problems that ``worker`` has."""
        return len(self._assigned.get(worker, ()))

    def assign(self, worker: Hashable) -> list[Problem]:
        """Assign further problems to ``worker`` and return them."""
        share = -(-len(self._waiting) // (2 * self._workers))
        count = max(0, min(self._room - self.assigned(worker), share))
        given = [self._waiting.popleft() for _ in range(count)]
        self._assigned.setdefault(worker, {}).update((problem.id, problem) for problem in given)
        return given

    def finish(self, worker: Hashable, name: str) -> Problem:
        """Remove the finished problem ``name`` and return it."""
        return self._assigned[worker].pop(name)

    def requeue(self, worker: Hashable) -> int:
        """Return the problems of a dead worker to the end of the queue; say how many they are."""
        lost = self._assigned.pop(worker, {})
        self._waiting.extend(lost.values())
        return len(lost)
