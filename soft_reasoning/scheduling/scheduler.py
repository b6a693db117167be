"""Solves many problems at once and merges their effects into batches.

A method is a generator for one problem. The scheduler advances every active problem until each of them
waits for an effect. Effects of one type are answered together, by the function registered for it
(``effects``). Requests are submitted to the engine. When no other effect waits, a problem continues as soon
as its own requests are complete. A problem's answers depend on its own effects alone. So its result is the
same for any ``max_live``, any order and any other problems, as far as engine and optimiser promise that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from soft_reasoning.checks import whole
from soft_reasoning.engines.abilities import check_abilities
from soft_reasoning.engines.base import Engine
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.effects import Submitted, grouped, handler_of
from soft_reasoning.scheduling.job import Clock, Job, Outcome
from soft_reasoning.scheduling.method import Method
from soft_reasoning.types import Problem, Result, Round, UserError

MAX_LIVE = 64
"""Problems advanced together: enough to fill an engine's batch, few enough to bound memory."""


class Scheduler:
    """Advances jobs on one engine and answers their effects in batches. One thread at a time may drive it.

    Args:
        engine: The engine.
        clock: Filled in while solving.
    """

    def __init__(self, engine: Engine, clock: Clock | None = None) -> None:
        self.engine = engine
        self.clock: Clock = Clock() if clock is None else clock
        self.live: list[Job[Any]] = []
        self._waiting = _Waiting(engine, self.clock)

    def add(
        self,
        problem: Problem,
        method: Method,
        context: Context,
        watch: Callable[[Round], None] | None = None,
    ) -> Job[Any]:
        """Take a problem on; ``watch`` is called with every round that is finished."""
        job = Job(problem, method, context, self.clock, watch)
        self.live.append(job)
        return job

    def step(self) -> list[tuple[Job[Any], Outcome]]:
        """Begin the new jobs, or else answer effects, or else let the engine work once; the jobs that ended.

        A job that fails ends with its error; the others go on.

        Raises:
            Exception: An engine's error that belongs to no one job.
        """
        answers: list[tuple[Job[Any], Any]] = [(job, None) for job in self.live if not job.begun]
        ended: list[tuple[Job[Any], Outcome]] = []
        for job, answer in answers or self._waiting.answers(self.live):
            failed = isinstance(answer, Exception)
            outcome = job.failed(answer) if failed else self._advance(job, answer)
            if outcome is not None:
                ended.append((job, outcome))
        gone = {id(job) for job, _ in ended}
        self.live = [job for job in self.live if id(job) not in gone]
        return ended

    def _advance(self, job: Job[Any], answer: Any) -> Outcome | None:
        with self.clock.measure("method"):
            try:
                outcome = job.advance(answer)
                if outcome is None:
                    handler_of(job.effect)
                return outcome
            except Exception as error:
                return job.failed(error)
            except (SystemExit, KeyboardInterrupt) as error:
                if threading.current_thread() is threading.main_thread():
                    raise
                return job.failed(RuntimeError(f"{type(error).__name__}: {error}"))  # of a user's own part

    def drop(self, jobs: Collection[Job[Any]]) -> None:
        """Give up on ``jobs``."""
        self.live = [job for job in self.live if job not in jobs]
        self._waiting.cancel(jobs)


def drive(
    problems: Iterable[Problem],
    method: Method,
    context: Context,
    *,
    engine: Engine | None = None,
    max_live: int = MAX_LIVE,
    clock: Clock | None = None,
    on_tick: Callable[[Clock], None] | None = None,
) -> Iterator[tuple[Problem, Result]]:
    """Solve ``problems``, at most ``max_live`` at a time, and yield each result when it is finished.

    Args:
        problems: The problems, which are read lazily, so ``max_live`` bounds memory.
        method: Solves each of them.
        context: What the method reads.
        engine: The engine; by default ``context.engine``.
        max_live: Most active problems.
        clock: Filled in while solving.
        on_tick: Called with ``clock`` before effects are answered, after finished results were yielded.

    Raises:
        UserError: At once if the method needs an ability that the engine lacks; otherwise for a user's fault,
            and it names the problem.
        ProblemError: For any other error. Both come after the problems that had finished were yielded.
    """
    whole("max_live", max_live, least=1)
    engine = context.engine if engine is None else engine
    check_abilities(method, engine)
    scheduler, source = Scheduler(engine, clock), iter(problems)
    try:
        while True:
            admitted = [
                scheduler.add(problem, method, context)
                for problem in islice(source, max_live - len(scheduler.live))
            ]
            scheduler.clock.live = len(scheduler.live)
            if not scheduler.live:
                return
            if not admitted and on_tick is not None:
                on_tick(scheduler.clock)
            ended = scheduler.step()
            for job, outcome in ended:
                if isinstance(outcome, Result):
                    yield job.problem, outcome
            for _, outcome in ended:
                if isinstance(outcome, Exception):
                    raise outcome
    finally:
        scheduler.drop(scheduler.live)


class _Waiting:
    """Answers effects: at once, or when the engine has completed what was queued for them.

    The answer to an effect that cannot be answered is an exception.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._submitted: dict[Job[Any], Submitted] = {}
        self._owners: dict[int, Job[Any]] = {}  # of tickets in work
        self._outcomes: dict[int, Any] = {}  # by ticket, until all of an effect's are there

    def answers(self, live: Sequence[Job[Any]]) -> list[tuple[Job[Any], Any]]:
        """Return the next answers: those that need no engine, or else what its next step completes."""
        new = [job for job in live if job not in self._submitted]
        answers: list[tuple[Job[Any], Any]] = []
        for jobs in grouped(new, lambda job: type(job.effect)):
            answers += self._ask(jobs)
        answers += self._complete(new)  # effects without requests
        return answers or self._step()

    def cancel(self, jobs: Collection[Job[Any]]) -> None:
        """Cancel what the engine has not completed for ``jobs``."""
        dropped = [ticket for ticket, owner in self._owners.items() if owner in jobs]
        for ticket in dropped:
            del self._owners[ticket]
        for submitted in (self._submitted.pop(job, None) for job in jobs):
            for ticket in submitted.tickets if submitted else ():
                self._outcomes.pop(ticket, None)
        if dropped:
            self._engine.cancel(dropped)

    def _ask(self, jobs: Sequence[Job[Any]]) -> list[tuple[Job[Any], Any]]:
        """The answers given at once. What cannot be answered together is answered one by one."""
        handler = handler_of(jobs[0].effect)
        try:
            with self._clock.measure(handler.time):
                results = handler.answer(jobs, self._engine)
        except (UserError, ValueError) as error:
            if len(jobs) == 1:
                return [(jobs[0], error)]
            return [answer for job in jobs for answer in self._ask([job])]
        answers: list[tuple[Job[Any], Any]] = []
        for job, answer in zip(jobs, results, strict=True):
            if isinstance(answer, Submitted):
                self._submitted[job] = answer
                self._owners.update((ticket, job) for ticket in answer.tickets)
            else:
                answers.append((job, answer))
        return answers

    def _step(self) -> list[tuple[Job[Any], Any]]:
        """Let the engine work once; the answers of the jobs whose last request that completes."""
        with self._clock.measure("engine"):
            outcomes = self._engine.step(self._owners)
        self._outcomes.update(outcomes)
        return self._complete({self._owners.pop(ticket): None for ticket, _ in outcomes})

    def _complete(self, jobs: Iterable[Job[Any]]) -> list[tuple[Job[Any], Any]]:
        """Answers of those of ``jobs`` whose requests are all complete, or of which one has failed."""
        answers: list[tuple[Job[Any], Any]] = []
        for job in jobs:
            submitted = self._submitted.get(job)
            if submitted is None:
                continue
            outcomes = [self._outcomes[ticket] for ticket in submitted.tickets if ticket in self._outcomes]
            failure = next((outcome for outcome in outcomes if isinstance(outcome, Exception)), None)
            if failure is not None:
                self.cancel([job])
                answers.append((job, failure))
            elif len(outcomes) == len(submitted.tickets):
                del self._submitted[job]
                for ticket in submitted.tickets:
                    del self._outcomes[ticket]
                answers.append((job, submitted.read(outcomes)))
        return answers
