"""A problem in work: its generator, the effect it waits for, its token counts and its budget."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import monotonic, perf_counter
from typing import Any, Generic, TypeVar, cast

from soft_reasoning.scheduling.context import Context, Limits
from soft_reasoning.scheduling.method import Method, Steps, check_method
from soft_reasoning.types import Generate, Problem, Request, Result, Round, Usage, UserError

E_co = TypeVar("E_co", covariant=True)


class BudgetSpent(Exception):
    """A problem's budget allows no more work. A method that has an answer by then catches it.

    For any other the scheduler ends the problem without an answer.
    """


class ProblemError(RuntimeError):
    """A fault of ours while solving one problem, which it names; its cause is the original error."""


class Clock:
    """Seconds by kind: the model (``engine``), proposals (``optimiser``), code of methods (``method``)."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def measure(self, kind: str) -> Iterator[None]:
        """Add the time spent inside to ``seconds[kind]``, even if it ends in an exception."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[kind] += perf_counter() - start

    def taken(self) -> dict[str, float]:
        """Return the seconds since the last call."""
        seconds, self.seconds = self.seconds, defaultdict(float)
        return dict(seconds)


class Job(Future[Result], Generic[E_co]):
    """The future of a problem's result; a scheduler drops it once it is cancelled.

    Args:
        problem: The problem.
        method: Solves it.
        context: What the method reads.
        watch: Called with every finished round, in the scheduler's thread. It must not raise.

    Attributes:
        effect: What the method waits for.
        usage: Token counts by role.
        submitted: The placeholder for the effect's answer, while the engine works on it.
        outcomes: Its requests that are complete, by ticket.
    """

    def __init__(
        self,
        problem: Problem,
        method: Method,
        context: Context,
        watch: Callable[[Round], None] | None = None,
    ) -> None:
        super().__init__()
        self.problem, self.method, self.context, self.watch = problem, method, context, watch
        self.usage: dict[str, Usage] = {}
        self.effect: E_co = cast(Any, None)
        self.submitted: Any = None
        self.outcomes: dict[int, Any] = {}
        self.generated: int = 0
        self._steps: Steps[Result] | None = None
        self._asked: Request | None = None  # for the first candidate
        self._deadline: float | None = None

    @property
    def begun(self) -> bool:
        """Whether the method was started."""
        return self._steps is not None

    def advance(self, answer: Any) -> None:
        """Send the effect's answer, or begin; an answer that is an exception ends the job."""
        try:
            if isinstance(answer, Exception):
                raise answer
            if (result := self._next(answer)) is not None:
                self.end(result)
        except Exception as error:
            self.end(self._named(error))
        except (SystemExit, KeyboardInterrupt) as error:
            if threading.current_thread() is threading.main_thread():
                raise
            self.end(self._named(RuntimeError(f"{type(error).__name__}: {error}")))  # of a user's part

    def _next(self, answer: Any) -> Result | None:
        if self._steps is None:
            self._steps = self._begin()
        try:
            self.effect = cast(Any, self._steps.send(answer))
        except (BudgetSpent, StopIteration) as end:
            result = end.value if isinstance(end, StopIteration) else Result(None, ())
            return replace(result, usage=dict(sorted(self.usage.items())), prompt=self._prompt())
        if self._asked is None and isinstance(self.effect, Generate):
            self._asked = next((r for r in self.effect.requests if r.role == "candidate"), None)
        return None

    def _begin(self) -> Steps[Result]:
        if (seconds := self.context.limits.max_seconds) is not None:
            self._deadline = monotonic() + seconds
        check_method(self.method)
        steps: Any = self.method.solve(self.problem, self.context)
        if not isinstance(steps, Generator):
            raise UserError(
                f"method: expected solve(problem, context) to yield effects, got {type(steps).__name__} from "
                f"{type(self.method).__name__}.solve; a method without effects ends in a yield that is not "
                "reached"
            )
        return steps

    def end(self, outcome: Result | Exception) -> None:
        """Set the result or the error, unless the job was cancelled."""
        if not self.set_running_or_notify_cancel():
            return
        if isinstance(outcome, Exception):
            self.set_exception(outcome)
        else:
            self.set_result(outcome)

    def _named(self, error: Exception) -> Exception:
        """``error`` with the problem's name, as a UserError if it is one; its cause is ``error``."""
        known = isinstance(error, UserError)
        text = str(error) if known else f"{type(error).__name__}: {error}"
        named = (UserError if known else ProblemError)(f"problem {self.problem.name}: {text}")
        named.__cause__ = error
        return named

    def _prompt(self) -> tuple[str, ...]:
        if self._asked is None:
            return ()
        ids, at = self._asked.prompt_ids, self._asked.position
        parts = (ids,) if self._asked.soft is None else (ids[:at], ids[at:])
        decode = partial(self.context.engine.tokenizer.decode, clean_up_tokenization_spaces=False)
        return tuple(decode(list(part)) for part in parts)

    def count(self, role: str, usage: Usage) -> None:
        """Add ``usage`` to the problem's, under ``role``."""
        self.usage[role] = self.usage.get(role, Usage()) + usage
        self.generated += usage.generated_tokens

    def spent(self, least: int) -> str | None:
        """Return which budget cannot pay for ``least`` more tokens: "tokens", "seconds" or None."""
        most = self.context.limits.max_tokens
        if most is not None and most - self.generated < least:
            return "tokens"
        return "seconds" if self._deadline is not None and monotonic() >= self._deadline else None

    def bounded(self, requests: Sequence[Request]) -> list[Request] | None:
        """Return ``requests`` within what is left of the budget, shared equally; None if nothing is."""
        limits = self.context.limits
        if limits == Limits() or not requests:
            return list(requests)
        writing = sum(request.max_new_tokens > 0 for request in requests)
        if self.spent(max(writing, 1)) is not None:
            return None
        share = max(request.max_new_tokens for request in requests)
        if limits.max_tokens is not None and writing:
            share = (limits.max_tokens - self.generated) // writing
        return [
            replace(request, max_new_tokens=min(request.max_new_tokens, share), deadline=self._deadline)
            for request in requests
        ]
