"""One thread that drives an engine for callers in any thread.

An engine is driven by one thread only. Callers submit jobs, which are futures, and the thread solves the jobs
of all callers in the same batches. It takes jobs from each call in turn, so that a long list does not delay a
single question.
"""

from __future__ import annotations

import atexit
import threading
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from soft_reasoning.engine.base import Engine
from soft_reasoning.schedule.job import Job, ProblemError
from soft_reasoning.schedule.scheduler import MAX_LIVE, Scheduler
from soft_reasoning.types import UserError

CLOSED = "expected an open SoftReasoner, got a closed one; load it again"
FORKED = (
    "expected the process that loaded the model, got one forked from it, which lacks the model's thread; "
    "load SoftReasoner in each process"
)


class EngineThread:
    """Owns the thread that drives ``engine``, which ends with :meth:`close`.

    Between two steps of the engine it adds new jobs and drops cancelled jobs.

    Args:
        engine: The engine.
        max_live: Maximum number of problems solved at a time, over all calls.
        free: Called at the end of the thread; by default it closes the engine.
    """

    def __init__(
        self, engine: Engine, max_live: int = MAX_LIVE, free: Callable[[], None] | None = None
    ) -> None:
        self.engine: Engine = engine
        self._free: Callable[[], None] = free or engine.close
        self.max_live: int = max_live
        self._arrived: SimpleQueue[tuple[Sequence[Job], Callable[[], None]]] = SimpleQueue()
        self._calls: deque[deque[Job]] = deque()  # for each call the jobs that are not started
        # Guards ``_closed``. Reentrant, since the garbage collector may call :meth:`end` anywhere.
        self._lock = threading.RLock()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="soft_reasoning", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def submit(self, jobs: Sequence[Job], check: Callable[[], None]) -> None:
        """Start to solve the jobs of a call; an error of ``check``, called in the thread, ends all of them.

        Raises:
            UserError: If the thread is closed, or belongs to the parent of a forked process.
        """
        if not (self._closed or self._thread.is_alive()):
            raise UserError(FORKED)
        with self._lock:
            if self._closed:
                raise UserError(CLOSED)
            self._arrived.put((jobs, check))

    def end(self) -> None:
        """Have the thread close the engine and end; jobs in progress get an error.

        It waits for nothing: the garbage collector may call it where a lock is held that the thread needs.
        """
        with self._lock:
            self._closed = True
        self._arrived.put(((), lambda: None))  # wakes the thread up

    def close(self) -> None:
        """:meth:`end`, and wait until the engine is closed."""
        self.end()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _work(self) -> None:
        scheduler, reason = Scheduler(self.engine), "it was closed while solving"
        try:
            while not self._closed:
                self._receive(wait=not scheduler.live and not self._calls)
                self._admit(scheduler)
                if scheduler.live:
                    self._step(scheduler)
        except BaseException as error:
            reason = f"its thread ended by {error!r}"
            raise
        finally:
            with self._lock:
                self._closed = True
            self._receive(wait=False)
            unfinished = [*scheduler.live, *(job for jobs in self._calls for job in jobs)]
            scheduler.drop(scheduler.live)
            _end(unfinished, UserError(f"expected an open SoftReasoner, and {reason}"))
            self._free()
            atexit.unregister(self.close)

    def _receive(self, wait: bool) -> None:
        """Take new calls whose checks pass; with ``wait`` block until the first call."""
        while wait or not self._arrived.empty():
            jobs, check = self._arrived.get()
            wait = False
            try:
                check()
            except Exception as error:
                _end(jobs, error)
            else:
                self._calls += [deque(jobs)] if jobs else []

    def _admit(self, scheduler: Scheduler) -> None:
        while self._calls and len(scheduler.live) < self.max_live:
            jobs = self._calls.popleft()
            if not (job := jobs.popleft()).cancelled():
                scheduler.add(job)
            if jobs:
                self._calls.append(jobs)

    def _step(self, scheduler: Scheduler) -> None:
        try:
            scheduler.step()
        except Exception as error:  # an error of the engine, not of a single problem
            failure = ProblemError(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            failed = scheduler.live
            scheduler.drop(failed)
            _end(failed, failure)


def _end(jobs: Sequence[Job], error: Exception) -> None:
    for job in jobs:
        job.end(error)
