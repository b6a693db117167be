"""Solves many problems at once and merges their effects into batches.

A method is a generator for one problem. The scheduler advances every active problem until each of them
waits for an effect. Effects of one type are answered together, by the function registered for it
(``effects``). Requests are submitted to the engine. When no other effect waits, a problem continues as soon
as its own requests are complete. A problem's answers depend on its own effects alone. So its result is the
same for any ``max_live``, any order and any other problems, as far as engine and optimiser promise that.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from time import monotonic, perf_counter
from typing import Any, TypeAlias

from soft_reasoning.checks import whole
from soft_reasoning.engines.abilities import check_abilities
from soft_reasoning.engines.base import Engine
from soft_reasoning.scheduling.context import Context, Limits
from soft_reasoning.scheduling.effects import BudgetSpent, Submitted, grouped, handler_of
from soft_reasoning.scheduling.method import Method, Steps, check_method
from soft_reasoning.types import Generate, Problem, Request, Result, Round, Usage, UserError

MAX_LIVE = 64
"""Problems advanced together: enough to fill an engine's batch, few enough to bound memory."""

KINDS = ("engine", "optimiser", "method")
"""Kinds of time: the language model, proposals, and the methods' own code."""


class ProblemError(RuntimeError):
    """A fault of ours while solving one problem, which it names; its cause is the original error."""


@dataclass
class Clock:
    """Seconds of a drive by kind, and what its engine generated so far."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    generated_tokens: int = 0
    sequences: int = 0
    live: int = 0

    @contextmanager
    def measure(self, kind: str) -> Iterator[None]:
        """Add the time spent inside to ``seconds[kind]``, even if it ends in an exception."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[kind] = self.seconds.get(kind, 0.0) + perf_counter() - start


class Job:
    """A problem in work: its generator, the effect it waits for, token counts by role, and its budget."""

    def __init__(
        self,
        problem: Problem,
        method: Method,
        context: Context,
        clock: Clock,
        watch: Callable[[Round], None] | None,
    ) -> None:
        self.problem = problem
        self.usage: dict[str, Usage] = {}
        self.effect: Any = None
        self.begun: bool = False
        self._asked: Request | None = None  # for the first candidate
        self._tokenizer = context.engine.tokenizer
        self._watch = watch
        self._limits, self._generated = context.limits, 0
        seconds = self._limits.max_seconds
        self._deadline = None if seconds is None else monotonic() + seconds
        self._start, self._clock = partial(begun, method, problem, context), clock

    def advance(self, answer: Any) -> Result | None:
        """Send the effect's answer; return the result if that was the last one."""
        if not self.begun:
            self.begun, self._steps = True, self._start()
        try:
            self.effect = self._steps.send(answer)
        except BudgetSpent:
            return Result(None, (), usage=dict(sorted(self.usage.items())), prompt=self._prompt())
        except StopIteration as stop:
            return replace(stop.value, usage=dict(sorted(self.usage.items())), prompt=self._prompt())
        handler_of(self.effect)
        if self._asked is None and isinstance(self.effect, Generate):
            self._asked = next(
                (request for request in self.effect.requests if request.role == "candidate"), None
            )
        return None

    def _prompt(self) -> tuple[str, ...]:
        if self._asked is None:
            return ()
        ids, at = self._asked.prompt_ids, self._asked.position
        parts = (ids,) if self._asked.soft is None else (ids[:at], ids[at:])
        decode = partial(self._tokenizer.decode, clean_up_tokenization_spaces=False)
        return tuple(decode(list(part)) for part in parts)

    def count(self, role: str, usage: Usage) -> None:
        """Add ``usage`` to the problem's, under ``role``, and to the clock's."""
        self.usage[role] = self.usage.get(role, Usage()) + usage
        self._clock.sequences += usage.sequences
        self._clock.generated_tokens += usage.generated_tokens
        self._generated += usage.generated_tokens

    def watch(self, round: Round) -> None:
        """Pass a finished round on to who watches."""
        if self._watch is not None:
            self._watch(round)

    def spent(self, least: int) -> str | None:
        """Return which budget cannot pay for ``least`` more tokens: "tokens", "seconds" or None."""
        most = self._limits.max_tokens
        if most is not None and most - self._generated < least:
            return "tokens"
        return "seconds" if self._deadline is not None and monotonic() >= self._deadline else None

    def bounded(self, requests: Sequence[Request]) -> list[Request] | None:
        """Return ``requests`` within what is left of the budget, shared equally; None if nothing is."""
        if self._limits == Limits() or not requests:
            return list(requests)
        writing = sum(request.max_new_tokens > 0 for request in requests)
        if self.spent(max(writing, 1)) is not None:
            return None
        most, deadline = self._limits.max_tokens, self._deadline
        share = max(request.max_new_tokens for request in requests)
        if most is not None and writing:
            share = (most - self._generated) // writing
        return [
            replace(request, max_new_tokens=min(request.max_new_tokens, share), deadline=deadline)
            for request in requests
        ]

    def failed(self, error: Exception) -> Exception:
        """``error`` with the problem's name, as a UserError if it is one; its cause is ``error``."""
        text = f"problem {self.problem.name}: "
        if isinstance(error, UserError):
            named: Exception = UserError(f"{text}{error}")
        else:
            named = ProblemError(f"{text}{type(error).__name__}: {error}")
        named.__cause__ = error
        return named


def begun(method: Method, problem: Problem, context: Context) -> Steps[Result]:
    """Return the generator of ``method`` for a problem.

    Raises:
        UserError: If it is no method, or yields no effects.
    """
    check_method(method)
    steps: Any = method.solve(problem, context)
    if not isinstance(steps, Generator):
        raise UserError(
            f"method: expected solve(problem, context) to yield effects, got {type(steps).__name__} from "
            f"{type(method).__name__}.solve; a method without effects ends in a yield that is not reached"
        )
    return steps


Outcome: TypeAlias = Result | Exception
"""How a job ends."""


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
        self._waiting = _Waiting(engine, self.clock)

    def add(
        self,
        problem: Problem,
        method: Method,
        context: Context,
        watch: Callable[[Round], None] | None = None,
    ) -> Job:
        """Take a problem on; ``watch`` is called with every round that is finished."""
        job = Job(problem, method, context, self.clock, watch)
        self.live.append(job)
        return job

    def step(self) -> list[tuple[Job, Outcome]]:
        """Begin the new jobs, or else answer effects, or else let the engine work once; the jobs that ended.

        A job that fails ends with its error; the others go on.

        Raises:
            Exception: An engine's error that belongs to no one job.
        """
        answers: list[tuple[Job, Any]] = [(job, None) for job in self.live if not job.begun]
        ended: list[tuple[Job, Outcome]] = []
        for job, answer in answers or self._waiting.answers(self.live):
            failed = isinstance(answer, Exception)
            outcome = job.failed(answer) if failed else self._advance(job, answer)
            if outcome is not None:
                ended.append((job, outcome))
        gone = {id(job) for job, _ in ended}
        self.live = [job for job in self.live if id(job) not in gone]
        return ended

    def _advance(self, job: Job, answer: Any) -> Outcome | None:
        with self.clock.measure("method"):
            try:
                return job.advance(answer)
            except Exception as error:
                return job.failed(error)
            except (SystemExit, KeyboardInterrupt) as error:
                if threading.current_thread() is threading.main_thread():
                    raise
                return job.failed(RuntimeError(f"{type(error).__name__}: {error}"))  # of a user's own part

    def drop(self, jobs: Collection[Job]) -> None:
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
        self._submitted: dict[Job, Submitted] = {}
        self._owners: dict[int, Job] = {}  # of tickets in work
        self._outcomes: dict[int, Any] = {}  # by ticket, until all of an effect's are there

    def answers(self, live: Sequence[Job]) -> list[tuple[Job, Any]]:
        """Return the next answers: those that need no engine, or else what its next step completes."""
        new = [job for job in live if job not in self._submitted]
        answers: list[tuple[Job, Any]] = []
        for jobs in grouped(new, lambda job: type(job.effect)):
            answers += self._ask(jobs)
        answers += self._complete(new)  # effects without requests
        return answers or self._step()

    def cancel(self, jobs: Collection[Job]) -> None:
        """Cancel what the engine has not completed for ``jobs``."""
        dropped = [ticket for ticket, owner in self._owners.items() if owner in jobs]
        for ticket in dropped:
            del self._owners[ticket]
        for submitted in (self._submitted.pop(job, None) for job in jobs):
            for ticket in submitted.tickets if submitted else ():
                self._outcomes.pop(ticket, None)
        if dropped:
            self._engine.cancel(dropped)

    def _ask(self, jobs: Sequence[Job]) -> list[tuple[Job, Any]]:
        """The answers given at once. What cannot be answered together is answered one by one."""
        handler = handler_of(jobs[0].effect)
        try:
            with self._clock.measure(handler.time):
                results = handler.answer(jobs, self._engine)
        except (UserError, ValueError) as error:
            if len(jobs) == 1:
                return [(jobs[0], error)]
            return [answer for job in jobs for answer in self._ask([job])]
        answers: list[tuple[Job, Any]] = []
        for job, answer in zip(jobs, results, strict=True):
            if isinstance(answer, Submitted):
                self._submitted[job] = answer
                self._owners.update((ticket, job) for ticket in answer.tickets)
            else:
                answers.append((job, answer))
        return answers

    def _step(self) -> list[tuple[Job, Any]]:
        """Let the engine work once; the answers of the jobs whose last request that completes."""
        with self._clock.measure("engine"):
            outcomes = self._engine.step(self._owners)
        self._outcomes.update(outcomes)
        return self._complete({self._owners.pop(ticket): None for ticket, _ in outcomes})

    def _complete(self, jobs: Iterable[Job]) -> list[tuple[Job, Any]]:
        """Answers of those of ``jobs`` whose requests are all complete, or of which one has failed."""
        answers: list[tuple[Job, Any]] = []
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
