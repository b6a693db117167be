"""One thread that drives an engine for callers in any thread.

An engine is driven by one thread only. Callers hand their problems over, and the worker solves those of all
callers in the same batches. It takes problems from each call in turn, so that a long list does not hold a
single question up.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import TypeAlias

from soft_reasoning.context import Context
from soft_reasoning.engines.base import Engine
from soft_reasoning.methods.base import Method
from soft_reasoning.scheduler import MAX_LIVE, Job, Outcome, ProblemError, Scheduler
from soft_reasoning.types import Problem, Round, UserError

Update: TypeAlias = tuple[Problem | None, Outcome | Round]
"""A problem with a finished round or its result. None with an error of the whole call, its last word."""

CLOSED = "expected an open SoftReasoner, got a closed one; load it again"


class _Abandoned(BaseException):
    """Raised in the worker's thread when nobody waits for the batch in work any more."""


@dataclass(eq=False)
class Call:
    """Problems that one caller wants solved.

    Attributes:
        problems: The problems.
        method: Solves them.
        context: What the method reads; its engine is the worker's.
        check: Called first, in the worker's thread; what it raises is sent to the caller.
        send: Called with every update, in the worker's thread. It must not raise.
    """

    problems: Sequence[Problem]
    method: Method
    context: Context
    check: Callable[[], None]
    send: Callable[[Update], None]
    ended: bool = field(default=False, init=False)
    todo: deque[Problem] = field(init=False)

    def __post_init__(self) -> None:
        self.todo = deque(self.problems)


class Worker:
    """Owns ``engine`` and the thread that drives it.

    The thread starts with the first call and ends with :meth:`close`. Callers often come back after an
    answer. So when nothing is in work and a call arrives, it waits for as many more as ended last, for at
    most ``gather_seconds``.

    Args:
        engine: The engine, which :meth:`close` closes.
        max_live: Most problems solved at a time, of all calls together.
    """

    def __init__(self, engine: Engine, max_live: int = MAX_LIVE) -> None:
        self.engine: Engine = engine
        self.max_live: int = max_live
        self.gather_seconds: float = 0.0
        self._arrived: SimpleQueue[Call | None] = SimpleQueue()  # None wakes the thread up
        self._calls: deque[Call] = deque()  # with problems to take on
        self._jobs: dict[Job, Call] = {}
        self._ended_last = 0  # calls, in the last step
        # Guards what follows. Reentrant, since the garbage collector may close a worker anywhere.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._stepping = self._interrupted = False

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def submit(self, call: Call) -> None:
        """Begin to solve a call's problems.

        Raises:
            UserError: If the worker is closed.
        """
        with self._lock:
            if self._closed:
                raise UserError(CLOSED)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="soft_reasoning", daemon=True)
                self._thread.start()
            self._arrived.put(call)

    def cancel(self, call: Call) -> None:
        """Stop solving a call's problems and send it no more updates; a call that has ended is left alone."""
        with self._lock:
            call.ended = True
            self._interrupt()
        self._arrived.put(None)

    def close(self) -> None:
        """End the thread and close the engine; calls in work get an error."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            thread = self._thread
            self._interrupt()
        self._arrived.put(None)
        if thread is None:
            self.engine.close()
        elif thread is not threading.current_thread():
            thread.join()

    def _interrupt(self) -> None:
        """Interrupt the step in work if nobody needs it; holds the lock."""
        needed = not self._closed and not all(call.ended for call in self._jobs.values())
        if self._stepping and not needed and not self._interrupted:
            assert self._thread is not None and self._thread.ident is not None
            self._interrupted = True
            _raise_in(self._thread.ident, _Abandoned)

    def _work(self) -> None:
        scheduler = Scheduler(self.engine)
        try:
            while not self._closed:
                self._receive(wait=not self._jobs and not self._calls)
                self._drop_ended(scheduler)
                self._admit(scheduler)
                if self._jobs:
                    self._step(scheduler)
        finally:
            with self._lock:
                self._closed = True
            self._receive(wait=False)
            for call in {*self._calls, *self._jobs.values()}:
                self._end(call, UserError("expected an open SoftReasoner, and it was closed while solving"))
            scheduler.drop(scheduler.live)
            self.engine.close()

    def _receive(self, wait: bool) -> None:
        """Take the calls that have arrived; ``wait`` for one, and for callers whose calls ended last."""
        self._receive_within(0.0)
        if not wait or self._closed:
            return
        expected = min(len(self._calls) + self._ended_last, self.max_live)
        if not self._calls:
            self._take(self._arrived.get())
        ends = time.monotonic() + self.gather_seconds
        while len(self._calls) < expected and not self._closed and time.monotonic() < ends:
            self._receive_within(ends - time.monotonic())

    def _receive_within(self, seconds: float) -> None:
        """Take a call that arrives within ``seconds``, and all others that have arrived."""
        try:
            while True:
                self._take(
                    self._arrived.get(timeout=seconds) if seconds > 0 else self._arrived.get(block=False)
                )
                seconds = 0.0
        except Empty:
            return

    def _take(self, call: Call | None) -> None:
        if call is not None:
            self._begin(call)

    def _begin(self, call: Call) -> None:
        try:
            call.check()
        except Exception as error:
            self._end(call, error)
        else:
            self._calls.append(call)

    def _drop_ended(self, scheduler: Scheduler) -> None:
        gone = [job for job, call in self._jobs.items() if call.ended]
        scheduler.drop(gone)
        for job in gone:
            del self._jobs[job]
        self._calls = deque(call for call in self._calls if not call.ended and call.todo)

    def _admit(self, scheduler: Scheduler) -> None:
        while self._calls and len(self._jobs) < self.max_live:
            call = self._calls.popleft()
            problem = call.todo.popleft()
            job = scheduler.add(problem, call.method, call.context, partial(_watch, call, problem))
            self._jobs[job] = call
            if call.todo:
                self._calls.append(call)

    def _step(self, scheduler: Scheduler) -> None:
        """Let the scheduler work, and send the callers what has ended."""
        ended: list[tuple[Job, Outcome]] = []
        try:
            with self._lock:
                self._stepping = True
            try:
                ended = scheduler.step()
            except Exception as error:  # of the engine, and of no one problem
                failed = [(job, ProblemError(f"{type(error).__name__}: {error}")) for job in self._jobs]
                for _, one in failed:
                    one.__cause__ = error
                ended = [*failed]
                scheduler.drop(scheduler.live)
            with self._lock:
                self._stepping = False
                if self._interrupted:  # on its way, or lost in a destructor, which may raise nothing
                    _raise_in(threading.get_ident(), None)
        except _Abandoned:
            scheduler.drop(scheduler.live)
        with self._lock:
            self._stepping = self._interrupted = False
        calls = [self._jobs.pop(job) for job, _ in ended]
        for call, (job, outcome) in zip(calls, ended, strict=True):
            if isinstance(outcome, Exception):
                self._end(call, outcome)
            elif not call.ended:
                call.send((job.problem, outcome))
        found = {id(call) for call in calls if not call.ended and not call.todo}
        self._ended_last = len(found - {id(call) for call in self._jobs.values()})

    def _end(self, call: Call, error: Exception) -> None:
        """Send the call its error; nothing after that."""
        if not call.ended:
            call.ended = True
            call.send((None, error))


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    """Have ``kind`` raised in a thread; None takes back what is not raised yet."""
    given = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), given)


def _watch(call: Call, problem: Problem, round: Round) -> None:
    if not call.ended:
        call.send((problem, round))
