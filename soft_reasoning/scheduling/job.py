"""A problem in work: its generator, the effect it waits for, its token counts and its budget."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic, perf_counter
from typing import Any, Generic, TypeAlias, TypeVar, cast

from soft_reasoning.scheduling.context import Context, Limits
from soft_reasoning.scheduling.method import Method, Steps, check_method
from soft_reasoning.types import Generate, Problem, Request, Result, Round, Usage, UserError

E_co = TypeVar("E_co", covariant=True)

KINDS = ("engine", "optimiser", "method")
"""Kinds of time: the language model, proposals, and the methods' own code."""


class BudgetSpent(Exception):
    """A problem's budget allows no more work. A method that has an answer by then catches it.

    For any other the scheduler ends the problem without an answer.
    """


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


class Job(Generic[E_co]):
    """A problem in work: its generator, the ``effect`` it waits for, token counts by role, and its budget."""

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
        self.effect: E_co = cast(Any, None)
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
            self.effect = cast(Any, self._steps.send(answer))
        except (BudgetSpent, StopIteration) as end:
            result = end.value if isinstance(end, StopIteration) else Result(None, ())
            return replace(result, usage=dict(sorted(self.usage.items())), prompt=self._prompt())
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
