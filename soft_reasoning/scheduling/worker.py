"""One thread that drives an engine for callers in any thread.

An engine is driven by one thread only. Callers hand their problems over, and the worker solves those of all
callers in the same batches. It takes problems from each call in turn, so that a long list does not hold a
single question up.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from soft_reasoning.engines.base import Engine
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.job import Job, Outcome, ProblemError
from soft_reasoning.scheduling.method import Method
from soft_reasoning.scheduling.scheduler import MAX_LIVE, Scheduler
from soft_reasoning.types import Problem, Result, Round, UserError

Update: TypeAlias = tuple[Problem | None, Outcome | Round]
"""A problem with a finished round or its result. None with an error of the whole call, its last word."""

CLOSED = "expected an open SoftReasoner, got a closed one; load it again"


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
    results: dict[str, Result] = field(default_factory=dict[str, Result], init=False)
    generated_tokens: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.todo = deque(self.problems)

    @property
    def complete(self) -> bool:
        """Whether :meth:`take` has got every result."""
        return len(self.results) == len(self.problems)

    def take(self, update: Update, on_round: Callable[[Round], None] | None = None) -> None:
        """Add a result, pass a round on, or raise an error; called in the caller's thread."""
        problem, outcome = update
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, Result):
            assert problem is not None
            self.results[problem.id] = outcome
            self.generated_tokens += sum(usage.generated_tokens for usage in outcome.usage.values())
        elif on_round is not None:
            on_round(outcome)


class Worker:
    """Owns ``engine`` and the thread that drives it.

    The thread starts with the first call and ends with :meth:`close`. Between two steps of the engine it
    takes on the problems of new calls and drops those of cancelled ones.

    Args:
        engine: The engine, which :meth:`close` closes.
        max_live: Most problems solved at a time, of all calls together.
    """

    def __init__(self, engine: Engine, max_live: int = MAX_LIVE) -> None:
        self.engine: Engine = engine
        self.max_live: int = max_live
        self._arrived: SimpleQueue[Call | None] = SimpleQueue()  # None wakes the thread up
        self._calls: deque[Call] = deque()  # with problems to take on
        self._jobs: dict[Job[Any], Call] = {}
        # Guards what follows. Reentrant, since the garbage collector may close a worker anywhere.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._process = os.getpid()
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def submit(self, call: Call) -> None:
        """Begin to solve a call's problems.

        Raises:
            UserError: If the worker is closed, or belongs to the process that this one was forked from.
        """
        if self._process != os.getpid():
            raise UserError(
                "expected the process that loaded the model, got one forked from it, which has no thread to "
                "work in; load SoftReasoner in each process"
            )
        with self._lock:
            if self._closed:
                raise UserError(CLOSED)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="soft_reasoning", daemon=True)
                self._thread.start()
            self._arrived.put(call)

    def cancel(self, call: Call) -> None:
        """Stop solving a call's problems and send it no more updates; a call that has ended is left alone."""
        call.ended = True
        self._arrived.put(None)

    def close(self) -> None:
        """End the thread and close the engine; calls in work get an error."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            thread = self._thread
        self._arrived.put(None)
        if thread is None:
            self.engine.close()
        elif thread is not threading.current_thread():
            thread.join()

    def _work(self) -> None:
        scheduler, reason = Scheduler(self.engine), "it was closed while solving"
        try:
            while not self._closed:
                self._receive(wait=not self._jobs and not self._calls)
                self._drop_ended(scheduler)
                self._admit(scheduler)
                if self._jobs:
                    self._step(scheduler)
        except BaseException as error:
            reason = f"its thread ended by {error!r}"
            raise
        finally:
            with self._lock:
                self._closed = True
            self._receive(wait=False)
            for call in {*self._calls, *self._jobs.values()}:
                self._end(call, UserError(f"expected an open SoftReasoner, and {reason}"))
            scheduler.drop(scheduler.live)
            self.engine.close()

    def _receive(self, wait: bool) -> None:
        """Take the calls that have arrived; ``wait`` for the first one."""
        try:
            while True:
                call = self._arrived.get(block=wait)
                wait = False
                if call is not None:
                    self._begin(call)
        except Empty:
            return

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
        try:
            ended: list[tuple[Job[Any], Outcome]] = scheduler.step()
        except Exception as error:  # of the engine, and of no one problem
            failure = ProblemError(f"{type(error).__name__}: {error}")
            failure.__cause__ = error
            ended = [(job, failure) for job in self._jobs]
            scheduler.drop(scheduler.live)
        for job, outcome in ended:
            call = self._jobs.pop(job)
            if isinstance(outcome, Exception):
                self._end(call, outcome)
            elif not call.ended:
                call.send((job.problem, outcome))

    def _end(self, call: Call, error: Exception) -> None:
        """Send the call its error; nothing after that."""
        if not call.ended:
            call.ended = True
            call.send((None, error))


def _watch(call: Call, problem: Problem, round: Round) -> None:
    if not call.ended:
        call.send((problem, round))
