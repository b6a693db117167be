"""Solves many problems at once and merges their effects into batches.

A method is a generator for one problem. The scheduler advances every active problem until each of them
waits for an effect. Effects of one type are answered together, by the function registered for it
(``effects``). Requests are submitted to the engine. When no other effect waits, a problem continues as soon
as its own requests are complete. A problem's answers depend on its own effects alone. So its result is the
same for any ``max_live``, any order and any other problems, as far as engine and optimiser promise that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any

from soft_reasoning.checks import whole
from soft_reasoning.context import Context
from soft_reasoning.effects import Submitted, grouped, handler_of
from soft_reasoning.engines.abilities import check_abilities
from soft_reasoning.engines.base import Engine
from soft_reasoning.methods.base import Method
from soft_reasoning.types import Generate, Problem, Request, Result, Usage, UserError

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


class _Live:
    """An active problem: its generator, the effect it waits for, and its token counts by role."""

    def __init__(self, problem: Problem, method: Method, context: Context, clock: Clock) -> None:
        self.problem = problem
        self.usage: dict[str, Usage] = {}
        self.effect: Any = None
        self._asked: Request | None = None  # for the first candidate
        self._tokenizer = context.engine.tokenizer
        self._steps, self._clock = method.solve(problem, context), clock

    def advance(self, answer: Any) -> Result | None:
        """Send the effect's answer; return the result if that was the last one."""
        try:
            self.effect = self._steps.send(answer)
        except StopIteration as stop:
            return replace(stop.value, usage=dict(sorted(self.usage.items())), prompt=self._prompt())
        handler_of(self.effect)
        if self._asked is None and isinstance(self.effect, Generate):
            self._asked = next((one for one in self.effect.requests if one.role == "candidate"), None)
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

    def failed(self, error: Exception) -> Exception:
        """``error`` with the problem's name, as a UserError if it is one."""
        if isinstance(error, UserError):
            return UserError(f"problem {self.problem.name}: {error}")
        return ProblemError(f"problem {self.problem.name}: {type(error).__name__}: {error}")


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
    clock = Clock() if clock is None else clock
    source = iter(problems)
    live: list[_Live] = []
    waiting = _Waiting(engine, clock)
    try:
        while True:
            admitted = [
                _Live(problem, method, context, clock) for problem in islice(source, max_live - len(live))
            ]
            live += admitted
            clock.live = len(live)
            if not live:
                return
            if admitted:
                answers = [(one, None) for one in admitted]
            else:
                if on_tick is not None:
                    on_tick(clock)
                answers = waiting.answers(live)
            yield from _advance(answers, live, clock)
    finally:
        waiting.cancel()


def _advance(
    answers: Sequence[tuple[_Live, Any]], live: list[_Live], clock: Clock
) -> Iterator[tuple[Problem, Result]]:
    """Send each answer, yield the finished problems, and then raise the first failure."""
    finished: list[tuple[Problem, Result]] = []
    ended: set[int] = set()
    failure: tuple[_Live, Exception] | None = None
    with clock.measure("method"):
        for one, answer in answers:
            try:
                result = one.advance(answer)
            except Exception as error:
                failure = (one, error)
                break
            if result is not None:
                finished.append((one.problem, result))
                ended.add(id(one))
    live[:] = [one for one in live if id(one) not in ended]
    yield from finished
    if failure is not None:
        one, error = failure
        raise one.failed(error) from error


class _Waiting:
    """Answers effects: at once, or when the engine has completed what was submitted."""

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._submitted: dict[_Live, Submitted] = {}
        self._owners: dict[int, _Live] = {}  # of uncollected tickets
        self._found: dict[int, Any] = {}  # by ticket

    def answers(self, live: Sequence[_Live]) -> list[tuple[_Live, Any]]:
        """Return the next answers, for at least one problem."""
        new = [one for one in live if one not in self._submitted]
        found: list[tuple[_Live, Any]] = []
        for asked in grouped(new, lambda one: type(one.effect)):
            handler = handler_of(asked[0].effect)
            with self._clock.measure(handler.time):
                for one, answer in zip(asked, self._ask(handler.answer, asked), strict=True):
                    if isinstance(answer, Submitted):
                        self._submitted[one] = answer
                        self._owners.update((ticket, one) for ticket in answer.tickets)
                    else:
                        found.append((one, answer))
        found += self._complete(new)  # effects without requests
        while not found:
            found = self._collect()
        return found

    def cancel(self) -> None:
        """Cancel what the engine has not completed."""
        if self._owners:
            self._engine.cancel(list(self._owners))

    def _ask(self, answer: Callable[..., Sequence[Any]], asked: Sequence[_Live]) -> Sequence[Any]:
        """Answers to ``asked``; an error names the first problem that also fails alone."""
        try:
            return answer(asked, self._engine)
        except (UserError, ValueError):
            for one in asked:
                try:
                    [alone] = answer([one], self._engine)
                except (UserError, ValueError) as error:
                    raise one.failed(error) from error
                if isinstance(alone, Submitted):
                    self._engine.cancel(alone.tickets)
            raise

    def _collect(self) -> list[tuple[_Live, Any]]:
        with self._clock.measure("engine"):
            collected = self._engine.collect(list(self._owners))
        if not collected:
            raise RuntimeError(f"engine: expected {len(self._owners)} more completions, got none")
        self._found.update(collected)
        return self._complete({self._owners.pop(ticket): None for ticket, _ in collected})

    def _complete(self, candidates: Iterable[_Live]) -> list[tuple[_Live, Any]]:
        """Answers of those problems in ``candidates`` whose submitted requests are all collected."""
        found = []
        for one in candidates:
            work = self._submitted.get(one)
            if work is not None and all(ticket in self._found for ticket in work.tickets):
                del self._submitted[one]
                found.append((one, work.read([self._found.pop(ticket) for ticket in work.tickets])))
        return found
