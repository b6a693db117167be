"""Solves many problems at once and merges their effects into batches.

A method is a generator for one problem. The scheduler advances every active problem until each of them
waits for an effect. Effects of one type and engine are answered together, by the function registered for it
(``effects``). Requests are submitted to the engine. When no other effect waits, a problem continues as soon
as its own requests are complete. A problem's answers depend only on its own effects. So its result is the
same for any ``max_live``, any order and any other problems, as far as engine and optimiser guarantee this.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Any, Generic, TypeAlias, TypeVar

from soft_reasoning.checks import whole
from soft_reasoning.engine.base import Engine
from soft_reasoning.schedule.effects import Submitted, answer_together, grouped
from soft_reasoning.schedule.job import Clock, Job
from soft_reasoning.schedule.method import Context, Method, Steps
from soft_reasoning.types import Problem, Result, Usage, UserError

T = TypeVar("T")

_TURNS = count(1)
"""Turns of the jobs of all schedulers: a request in an engine has its job's, and 0 is no job's."""
MAX_LIVE = 64
"""Problems advanced together: enough for an engine's batch, few enough to bound memory."""

Answered = list[tuple[Job, Any]]
"""Jobs, each with the answer to its effect, or the error if the effect cannot be answered."""


class Scheduler:
    """Advances jobs on one engine and answers their effects in batches. One thread at a time may drive it.

    Args:
        engine: The engine.
        clock: Filled in while solving.
    """

    def __init__(self, engine: Engine, clock: Clock | None = None) -> None:
        self.engine = engine
        self.clock: Clock = Clock() if clock is None else clock
        self.live: list[Job] = []
        self._owners: dict[int, Job] = {}  # of tickets in progress

    def add(self, job: Job) -> None:
        """Add a job; its requests have precedence over those of jobs added later."""
        job.turn = next(_TURNS)
        self.live.append(job)

    def step(self) -> list[Job]:
        """Start the new jobs, or else answer effects, or else run an engine step; return the jobs that ended.

        A job that fails ends with its error; the others continue. Cancelled jobs are dropped first.

        Raises:
            Exception: An error of the engine that belongs to no single job.
        """
        self.drop([job for job in self.live if job.cancelled()])
        answers: Answered = [(job, None) for job in self.live if not job.begun]
        answers = answers or self._answer() or self._work()
        with self.clock.measure("method"):
            for job, answer in answers:
                job.advance(answer)
        ended = [job for job, _ in answers if job.done()]
        self.drop(ended)
        return ended

    def drop(self, jobs: Collection[Job]) -> None:
        """Forget ``jobs``, and cancel what the engine has not completed for them."""
        if not jobs:
            return
        dropped, turns = {*jobs}, {job.turn for job in jobs}
        owned = [ticket for ticket, owner in self._owners.items() if owner in dropped]
        # An interruption may have come before a request had its owner.
        queued = [ticket for ticket, row in [*self.engine.queued.items()] if row.request.turn in turns]
        if tickets := {*owned, *queued}:
            self.engine.cancel(tickets)
        for ticket in owned:
            del self._owners[ticket]
        self.live = [job for job in self.live if job not in dropped]

    def _answer(self) -> Answered:
        """Answer new effects; those whose requests were submitted to the engine are left out."""
        new = [job for job in self.live if job.submitted is None]
        answers: Answered = []
        for jobs in grouped(new, lambda job: (type(job.effect), id(getattr(job.effect, "engine", None)))):
            answers += self._answer_group(jobs)
        return answers + self._complete(new)  # effects without requests

    def _answer_group(self, jobs: Sequence[Job]) -> Answered:
        """The immediate answers. If the group cannot be answered together, each effect is answered alone."""
        try:
            results = answer_together(jobs, self.engine, self.clock)
        except (UserError, ValueError) as error:
            if len(jobs) == 1:
                return [(jobs[0], error)]
            return [answer for job in jobs for answer in self._answer_group([job])]
        answers: Answered = []
        for job, answer in zip(jobs, results, strict=True):
            if isinstance(answer, Submitted):
                job.submitted, job.outcomes = answer, {}
                self._owners.update((ticket, job) for ticket in answer.tickets)
            else:
                answers.append((job, answer))
        return answers

    def _work(self) -> Answered:
        """Run an engine step; return the answers of the jobs whose last request it completes."""
        with self.clock.measure("engine"):
            outcomes = self.engine.step(self._owners)
        owners: dict[Job, None] = {}  # in order
        for ticket, outcome in outcomes:
            job = self._owners.pop(ticket)
            job.outcomes[ticket] = outcome
            owners[job] = None
        return self._complete(owners)

    def _complete(self, jobs: Iterable[Job]) -> Answered:
        """The answers of those ``jobs`` whose requests are all complete, or one of whose requests failed."""
        answers: Answered = []
        for job in jobs:
            if job.submitted is None:
                continue
            tickets, outcomes = job.submitted.tickets, job.outcomes
            failure = next((o for o in outcomes.values() if isinstance(o, Exception)), None)
            if failure is not None:
                answers.append((job, failure))
            elif len(outcomes) == len(tickets):
                answers.append((job, job.submitted.read([outcomes[ticket] for ticket in tickets])))
                job.submitted, job.outcomes = None, {}
        return answers


def drive(
    problems: Iterable[Problem],
    method: Method,
    context: Context,
    *,
    max_live: int = MAX_LIVE,
    clock: Clock | None = None,
    watch: Callable[[Sequence[int]], None] | None = None,
) -> Iterator[tuple[Problem, Result]]:
    """Solve ``problems``, at most ``max_live`` at a time, and yield each result when it is finished.

    Args:
        problems: The problems, which are read lazily, so ``max_live`` bounds memory.
        method: The method that solves them.
        context: The context that the method reads.
        max_live: Maximum number of active problems.
        clock: Filled in while solving.
        watch: Called after every step with the tokens that each unfinished problem has generated so far.

    Raises:
        UserError: For a user's mistake, with the problem's name.
        ProblemError: For any other error. Both are raised after finished problems have been yielded.
    """
    whole("max_live", max_live, least=1)
    scheduler, source = Scheduler(context.engine, clock), iter(problems)
    try:
        while True:
            for problem in islice(source, max_live - len(scheduler.live)):
                scheduler.add(Job(problem, method, context))
            if not scheduler.live:
                return
            ended = scheduler.step()
            for job in ended:
                if job.exception() is None:
                    yield job.problem, job.result()
            for job in ended:
                job.result()  # raises the first error
            if watch is not None:
                watch([job.written for job in scheduler.live])
    finally:
        scheduler.drop(scheduler.live)


Run: TypeAlias = Callable[[Sequence[Problem], Method], Sequence[Result]]
"""Solves problems with a method and returns their results in order."""


class _Each(Generic[T]):
    """A method that runs other steps for each problem and keeps what they return."""

    name = "each"

    def __init__(self, steps: Callable[[Problem, Context], Steps[T]]) -> None:
        self._steps = steps
        self.returned: dict[str, T] = {}

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        self.returned[problem.id] = yield from self._steps(problem, context)
        return Result(None, ())


def run_steps(
    steps: Callable[[Problem, Context], Steps[T]],
    problems: Sequence[Problem],
    context: Context,
    *,
    run: Run | None = None,
    usage: dict[str, Usage] | None = None,
) -> list[T]:
    """Run ``steps`` for each of ``problems`` in the same batches, and return what they return, in order.

    Args:
        steps: Called with a problem and its context; yields effects as a method does.
        problems: The problems.
        context: The context.
        run: Solves problems with a method. None drives the engine in the caller's thread; no other thread may
            then use the engine.
        usage: Token counts by role, to which those of the problems are added.
    """
    method, total = _Each(steps), {} if usage is None else usage
    if run is None:
        results = [result for _, result in drive(problems, method, context)]
    else:
        results = run(problems, method)
    for result in results:
        for role, used in result.usage.items():
            total[role] = total.get(role, Usage()) + used
    return [method.returned[problem.id] for problem in problems]
