"""Several engines on Ray, each in its own actor, on this machine or a running cluster.

The calling process loads no model: it sends problems to the workers and collects results, so a single process
writes the store. A problem's result depends neither on its worker nor on the number of workers. Ray restarts
a worker that dies and starts its problems again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from soft_reasoning.checks import OptionError, real, whole
from soft_reasoning.engine.completions import StoreFile, replaying
from soft_reasoning.lab.runs.files import Json
from soft_reasoning.lab.runs.runner import LocalLauncher
from soft_reasoning.prompts import Exemplar
from soft_reasoning.schedule.job import Clock, Job
from soft_reasoning.schedule.scheduler import Scheduler
from soft_reasoning.types import Problem, Result, UserError

RESTARTS = 3
"""How often Ray restarts a dead worker; the next death ends the run."""
REACHED = 5.0
"""Timeout in seconds for a cluster's first response; Ray itself waits for minutes."""


class RayActor:
    """An engine in a separate process, reused by the next run if its configuration allows it.

    It is an actor with an event loop, in which its problems are solved together. Every call has the run's
    configuration as an argument, so a restarted worker can continue.
    """

    def __init__(self) -> None:
        self._launcher = LocalLauncher()
        self._config: Json | None = None
        self._completions: StoreFile | None = None
        self._replaying = ExitStack()

    async def begin(
        self, config: Json, exemplars: Sequence[Exemplar], problems: Sequence[Problem] = ()
    ) -> Json:
        """Prepare a run of ``problems``, or continue one, and return the manifest's entries about the engine.

        Raises:
            UserError: If a prompt is too long.
        """
        if problems or config != self._config:
            self._replaying.close()
            self._completions = None
            self._about = self._launcher.start(config, problems, exemplars)
            self._scheduler, self._config = Scheduler(self._launcher.context.engine), config
        return self._about

    async def solve(
        self,
        config: Json,
        exemplars: Sequence[Exemplar],
        problem: Problem,
        completions: StoreFile | None = None,
    ) -> tuple[Problem, Result]:
        """Return the problem and its result; the engine has the store of ``completions``."""
        await self.begin(config, exemplars)
        context = self._launcher.context
        if completions != self._completions:
            self._replaying.close()
            self._replaying.enter_context(replaying(completions, context.engines))
            self._completions = completions
        job, scheduler = Job(problem, self._launcher.method, context), self._scheduler
        try:
            scheduler.add(job)
            while not job.done():  # each call of ``solve`` advances all jobs in its turn
                scheduler.step()
                await asyncio.sleep(0)
            return problem, job.result()
        finally:
            scheduler.drop([job])


class RayLauncher:
    """Solves on workers, and keeps them and their engines from one run to the next.

    It is a ``runs.runner.Launcher``. Times by kind and memory are not measured.

    Args:
        address: As in :func:`connect`.
        workers: As in :func:`plan_workers`.
        cpus: CPUs of a worker; may be a fraction below 1.
        gpus: GPUs of a worker, as in :func:`plan_workers`; may be a fraction below 1.

    Raises:
        UserError: For a value out of its range.
    """

    def __init__(
        self, address: str = "local", workers: int | None = None, cpus: float = 1, gpus: float | None = None
    ) -> None:
        if workers is not None:
            whole("workers", workers, least=1)
        for name, value in (("cpus", cpus), ("gpus", 0 if gpus is None else gpus)):
            if real(name, value, least=0) > 1 and value != int(value):
                raise OptionError(name, f"expected a whole number or a fraction of one, got {value}")
        self._address, self._count, self._cpus, self._gpus = address, workers, cpus, gpus
        self._ray: Any = None
        self._started_ray = False
        self._workers: list[Any] = []

    def start(self, config: Json, problems: Sequence[Problem], exemplars: Sequence[Exemplar] = ()) -> Json:
        """As ``Launcher.start``; returns when the first worker is ready.

        Raises:
            UserError: Without Ray, a cluster at the address or enough CPUs or GPUs, and if an engine cannot
                be loaded or a prompt is too long.
        """
        if self._ray is None:
            self._ray, self._started_ray = connect(self._address)
            number, gpus = plan_workers(self._ray.cluster_resources(), self._count, self._cpus, self._gpus)
            actor = self._ray.remote(RayActor).options(
                num_cpus=self._cpus, num_gpus=gpus, max_restarts=RESTARTS, max_task_retries=-1
            )
            self._workers = [actor.remote() for _ in range(number)]
        self._run = self._ray.put(dict(config)), self._ray.put(list(exemplars))
        self._max_live = config["max_live"]
        with self._errors():
            starting = [worker.begin.remote(*self._run, problems) for worker in self._workers]
            ready, _ = self._ray.wait(starting)
            return self._ray.get(ready[0])

    def solve(
        self,
        problems: Iterable[Problem],
        clock: Clock,
        completions: StoreFile | None = None,
        watch: Callable[[Sequence[int]], None] | None = None,
    ) -> Iterator[tuple[Problem, Result]]:
        """As ``Launcher.solve``, without ``watch``: a worker reports a problem's tokens when it is finished.

        A store in the run's folder is open only to workers on its machine.
        """
        from ray.util import ActorPool

        def submit(worker: Any, problem: Problem) -> Any:
            return worker.solve.remote(*self._run, problem, completions)

        pool: Any = ActorPool(self._workers * self._max_live)  # a worker has ``max_live`` problems at a time
        with self._errors():
            try:
                yield from pool.map_unordered(submit, problems)
            finally:
                for unfinished in pool._future_to_actor:
                    self._ray.cancel(unfinished)

    def peaks(self) -> Mapping[str, int]:
        return {}

    def close(self) -> None:
        """Stop the workers, and Ray if it was started here."""
        if self._ray is not None:
            for worker in self._workers:
                self._ray.kill(worker)
            if self._started_ray:
                self._ray.shutdown()
            self._ray, self._workers = None, []

    @contextmanager
    def _errors(self) -> Generator[None]:
        """Raise a worker's UserError as a UserError, and another if a worker died too often."""
        try:
            yield
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise UserError(str(error.cause)) from error.cause
            raise
        except self._ray.exceptions.RayActorError as error:
            raise UserError(
                f"a worker died more than {RESTARTS} times ({str(error).splitlines()[0]}); if memory ran "
                "out, lower max_live or launcher.workers"
            ) from error


def connect(address: str) -> tuple[Any, bool]:
    """Return Ray connected to ``address``, and whether this call opened the connection.

    ``local`` starts Ray on this machine, ``auto`` finds a running Ray on it, anything else is HOST:PORT. An
    open session is used as it is.

    Raises:
        UserError: Without Ray, or if no cluster answers.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Otherwise Ray prints a paragraph for every dead worker; our error message has one line.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "A worker died or was killed")
    try:
        import ray
    except ImportError as error:
        raise UserError("launcher=ray: expected the package ray, found none; pip install ray") from error
    if ray.is_initialized():
        return ray, False
    try:
        if address not in ("local", "auto"):
            host, _, port = str(address).rpartition(":")
            socket.create_connection((host, int(port)), timeout=REACHED).close()
        dashboard = False if address == "local" else None  # None is its default
        ray.init(address, logging_level=logging.ERROR, log_to_driver=False, include_dashboard=dashboard)
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        raise UserError(
            f"expected a Ray cluster at launcher.address={address} (HOST:PORT), found none; start one there "
            "(ray start --head), or leave launcher.address out to run on this machine alone"
        ) from error
    return ray, True


def plan_workers(
    resources: Mapping[str, float], workers: int | None, cpus: float, gpus: float | None
) -> tuple[int, float]:
    """Return the number of workers and the GPUs of each.

    Args:
        resources: The cluster's resources, by Ray's names.
        workers: Number of workers; None is as many as fit.
        cpus: CPUs of each worker.
        gpus: GPUs of each worker; None is 1 if there are any.

    Raises:
        UserError: If the cluster has too few.
    """
    if gpus is None:
        gpus = 1.0 if resources.get("GPU", 0) >= 1 else 0.0
    room = {}
    for name, each in (("GPU", gpus), ("CPU", cpus)):
        total = resources.get(name, 0)
        if each:  # a fraction shares one device and is not split between two
            room[name] = int(total / each + 1e-9) if each >= 1 else int(total) * int(1 / each + 1e-9)
    fits = min(room.values(), default=workers or 1)
    if fits < (workers or 1):
        available = ", ".join(f"{resources.get(name, 0):g} {name}s" for name in room)
        raise UserError(
            f"expected room for {workers or 1} workers of {cpus:g} CPUs and {gpus:g} GPUs, got {available}; "
            "lower launcher.workers, launcher.cpus or launcher.gpus"
        )
    return workers or fits, gpus
