"""A problem in progress: its generator, the effect it waits for, its token counts and its budget."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic, perf_counter
from typing import Any, Generic, cast

from typing_extensions import TypeVar

from soft_reasoning.engine.running import RunningRequest
from soft_reasoning.engine.text import prompt_text
from soft_reasoning.schedule.method import (
    Context,
    Generate,
    Limits,
    Method,
    Round,
    Steps,
    check_method,
    check_result,
)
from soft_reasoning.thoughts import split
from soft_reasoning.types import Completion, FinishReason, Problem, Request, Result, Usage, UserError

E_co = TypeVar("E_co", covariant=True, default=Any)


class BudgetSpent(Exception):
    """A problem's budget allows no more work. A method that has an answer by then catches this error.

    Otherwise the problem ends without an answer.
    """


class ProblemError(RuntimeError):
    """An internal error while solving a problem, which it names; its cause is the original error."""


class Clock:
    """Seconds by kind: the model (``engine``), proposals (``optimiser``), code of methods (``method``)."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def measure(self, kind: str) -> Generator[None]:
        """Add the time spent in the ``with`` block to ``seconds[kind]``, even after an exception."""
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
        method: The method that solves it.
        context: The context that the method reads, or that of the problem's type of answer in it.
        watch: Called with every finished round, in the scheduler's thread. It must not raise.

    Attributes:
        effect: The effect that the method waits for.
        usage: Token counts by role.
        submitted: The placeholder for the effect's answer, while the engine works on it.
        outcomes: Outcomes of the effect's complete requests, by ticket.
        turn: The place of the job in its scheduler, by which its requests start.
    """

    def __init__(
        self, problem: Problem, method: Method, context: Context, watch: Callable[[Round], None] | None = None
    ) -> None:
        super().__init__()
        self.problem, self.method, self.context, self.watch = problem, method, context.of(problem), watch
        self.usage: dict[str, Usage] = {}
        self.effect: E_co = cast(Any, None)
        self.submitted: Any = None
        self.outcomes: dict[int, Any] = {}
        self.generated: int = 0
        self.turn: int = 0
        self._steps: Steps[Result] | None = None
        self._first_request: Request | None = None  # of the first candidate
        self._deadline: float | None = None

    @property
    def begun(self) -> bool:
        """Whether the method was started."""
        return self._steps is not None

    def advance(self, answer: Any) -> None:
        """Send the answer to the method, or start it; an answer that is an exception ends the job.

        BudgetSpent is raised in the method, which may have an answer by then.
        """
        try:
            if isinstance(answer, Exception) and not isinstance(answer, BudgetSpent):
                raise answer
            if (result := self._next(answer)) is not None:
                self.end(result)
        except Exception as error:
            self.end(self._name_problem(error))
        except (SystemExit, KeyboardInterrupt) as error:
            if threading.current_thread() is threading.main_thread():
                raise
            self.end(self._name_problem(RuntimeError(f"{type(error).__name__}: {error}")))  # a custom part's

    def _next(self, answer: Any) -> Result | None:
        if self._steps is None:
            self._steps = self._begin()
        try:
            proceed = self._steps.throw if isinstance(answer, BudgetSpent) else self._steps.send
            self.effect = cast(Any, proceed(answer))
        except (BudgetSpent, StopIteration) as end:
            ended = isinstance(end, StopIteration)
            result = check_result(self.method, end.value) if ended else Result(None, ())
            thinks = self._first_request is not None and self._first_request.thinks
            usage = dict(sorted(self.usage.items()))
            cut = {candidate.finish_reason for candidate in result.candidates if candidate.cut}
            whole = bool(result.candidates) and not cut
            shared = "max_tokens" if FinishReason.BUDGET in cut else None  # a share of it was too small
            spent = None if whole else self.spent(1) or shared
            return replace(result, usage=usage, prompt=self._prompt(), thinks=thinks, spent=spent)
        if self._first_request is None and isinstance(self.effect, Generate):
            self._first_request = next((r for r in self.effect.requests if r.role == "candidate"), None)
        return None

    def _begin(self) -> Steps[Result]:
        if (seconds := self.context.limits.max_seconds) is not None:
            self._deadline = monotonic() + seconds
        check_method(self.method)
        steps: Any = self.method.solve(self.problem, self.context)
        if not isinstance(steps, Generator):
            raise UserError(
                f"method: expected solve(problem, context) to yield effects, got {type(steps).__name__} from "
                f"{type(self.method).__name__}.solve; a method without effects needs a yield that is never "
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

    def _name_problem(self, error: Exception) -> Exception:
        """A UserError or ProblemError that adds the problem's name to ``error``, which is its cause."""
        is_user_error = isinstance(error, UserError)
        text = str(error) if is_user_error else f"{type(error).__name__}: {error}"
        result = (UserError if is_user_error else ProblemError)(f"problem {self.problem.name}: {text}")
        result.__cause__ = error
        return result

    def _prompt(self) -> tuple[str, ...]:
        request = self._first_request
        if request is None:
            return ()
        ids, at = request.prompt_ids, request.position
        parts = (ids,) if request.soft is None else (ids[:at], ids[at:])
        tokenizer = self.context.engine.tokenizer
        return tuple(prompt_text(tokenizer, part, request.messages) for part in parts)

    def count(self, role: str, usage: Usage) -> None:
        """Add ``usage`` to the problem's token counts under ``role``."""
        self.usage[role] = self.usage.get(role, Usage()) + usage
        self.generated += usage.generated_tokens

    @property
    def written(self) -> int:
        """Tokens generated for the problem so far, with those of unfinished completions, without replays."""
        replayed = sum(usage.replayed_tokens for usage in [*self.usage.values()])
        return self.generated - replayed + sum(len(row.ids) for row in self._rows())

    @property
    def draft(self) -> tuple[str, str]:
        """The thoughts and the answer so far of ``method=cot``, which writes one text; else empty.

        The end is left out, where a stop string or a mark of thoughts (at most 32 characters) may begin.
        """
        rows = [row for row in self._rows() if row.ids and getattr(self.method, "name", "") == "cot"]
        if not rows:
            return "", ""
        text, request = self.context.engine.stops.decode([*rows[0].ids]), rows[0].request
        return split(text[: max(0, len(text) - max(32, *map(len, request.stop)))], request.thinks)

    def _rows(self) -> list[RunningRequest]:
        """The unfinished requests of the effect."""
        queued, submitted = self.context.engine.queued, self.submitted
        rows = [queued.get(ticket) for ticket in ([] if submitted is None else submitted.tickets)]
        return [row for row in rows if row is not None]

    def spent(self, least: int) -> str | None:
        """Return which budget cannot pay for ``least`` more tokens: "max_tokens", "max_seconds" or None."""
        max_tokens = self.context.limits.max_tokens
        if max_tokens is not None and max_tokens - self.generated < least:
            return "max_tokens"
        return "max_seconds" if self._late else None

    @property
    def _late(self) -> bool:
        return self._deadline is not None and monotonic() >= self._deadline

    def cut(self, asked: Request, given: Request, completion: Completion) -> bool:
        """Whether the budget, by which ``asked`` became ``given``, ended a completion."""
        early = completion.generated_tokens < given.max_new_tokens
        limited = self._late if early else given.max_new_tokens < asked.max_new_tokens
        return limited and completion.finish_reason == FinishReason.LENGTH

    def within_budget(self, requests: Sequence[Request]) -> list[Request] | None:
        """Return ``requests`` in the job's turn, limited to equal shares of the remaining budget.

        None if the budget is spent.
        """
        limits = self.context.limits
        if limits == Limits() or not requests:
            return [replace(request, turn=self.turn) for request in requests]
        writing = sum(request.max_new_tokens > 0 for request in requests)
        if self.spent(max(writing, 1)) is not None:
            return None
        share = max(request.max_new_tokens for request in requests)
        if limits.max_tokens is not None and writing:
            share = (limits.max_tokens - self.generated) // writing
        return [
            replace(
                request,
                max_new_tokens=min(request.max_new_tokens, share),
                deadline=self._deadline,
                turn=self.turn,
            )
            for request in requests
        ]
