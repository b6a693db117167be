"""Drives many problems at once and merges what they ask for into batches.

A method is a generator for one problem. The scheduler advances every live problem until each of them
waits, then answers: first all proposals and then next-token logits (cheap, and their problems join the
next batch), otherwise every generation in one engine call. An engine that takes work while it works
(``StreamingEngine``) is given each problem's generations as methods yield them, and a problem goes on as
soon as its own are complete. What a problem receives depends on its own effects alone, so its result is the
same either way, for any ``max_live`` and any order, as far as engine and optimiser keep their promise of the
same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from time import perf_counter
from typing import Any, TypeVar

import torch

from soft_reasoning.checks import whole
from soft_reasoning.context import Context
from soft_reasoning.engines.base import Engine, StreamingEngine
from soft_reasoning.methods.base import Method
from soft_reasoning.types import (
    Completion,
    Generate,
    NextLogits,
    Problem,
    Propose,
    Result,
    Usage,
    UserError,
)

MAX_LIVE = 64
"""Problems advanced together: enough to fill an engine's batch, few enough to bound memory."""

KINDS = ("engine", "optimiser", "method")
"""What a drive's time is spent on: the language model, proposals, and the methods' own code."""

T = TypeVar("T")


class ProblemError(RuntimeError):
    """A fault of ours while solving one problem; names the problem, and has the fault as its cause."""


@dataclass
class Clock:
    """Where the time of a drive went (seconds, by kind) and what its engine wrote so far."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    generated_tokens: int = 0
    sequences: int = 0
    live: int = 0

    @contextmanager
    def measure(self, kind: str) -> Iterator[None]:
        """Add the time spent inside to ``seconds[kind]``, also when it ends in an exception."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[kind] = self.seconds.get(kind, 0.0) + perf_counter() - start


class _Live:
    """A problem under way: its generator, the effect it waits for, and its token counts by role."""

    def __init__(self, problem: Problem, method: Method, context: Context) -> None:
        self.problem = problem
        self.usage: dict[str, Usage] = {}
        self.effect: Any = None
        self._steps = method.solve(problem, context)

    def advance(self, answer: Any) -> Result | None:
        """Hand the effect's answer over; the result when that was the last one."""
        try:
            self.effect = self._steps.send(answer)
        except StopIteration as stop:
            return replace(stop.value, usage=dict(sorted(self.usage.items())))
        if not isinstance(self.effect, Generate | NextLogits | Propose):
            raise TypeError(f"expected Generate, NextLogits or Propose, got {type(self.effect).__name__}")
        return None

    def count(self, role: str, usage: Usage) -> None:
        self.usage[role] = self.usage.get(role, Usage()) + usage

    def failed(self, error: Exception) -> Exception:
        """``error`` as the caller sees it: naming the problem, a user's fault staying a user's fault."""
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
    """Solve ``problems``, at most ``max_live`` at a time, yielding each result as it is finished.

    ``engine`` defaults to ``context.engine``. ``problems`` is read lazily, so memory is bounded by
    ``max_live``. ``clock`` is filled in, and ``on_tick`` called with it before every engine call, when
    all that was finished so far has been yielded.

    Raises UserError or ProblemError naming the problem at fault, after the problems that had finished by
    then were yielded.
    """
    whole("max_live", max_live, least=1)
    engine = context.engine if engine is None else engine
    clock = Clock() if clock is None else clock
    source = iter(problems)
    live: list[_Live] = []
    with _answering(engine, clock) as run_engine:
        while True:
            admitted = [_Live(problem, method, context) for problem in islice(source, max_live - len(live))]
            live += admitted
            clock.live = len(live)
            if not live:
                return
            if admitted:
                answers = [(one, None) for one in admitted]
            elif proposing := [one for one in live if isinstance(one.effect, Propose)]:
                with clock.measure("optimiser"):
                    answers = _propose(proposing)
            else:
                if on_tick is not None:
                    on_tick(clock)
                with clock.measure("engine"):
                    answers = run_engine(live)
            yield from _advance(answers, live, clock)


def _advance(
    answers: Sequence[tuple[_Live, Any]], live: list[_Live], clock: Clock
) -> Iterator[tuple[Problem, Result]]:
    """Send each answer; take the finished out of ``live`` and yield them, then raise the first failure."""
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


def _grouped(items: Sequence[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """``items`` by ``key``, groups and members in order of first appearance."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


def _propose(proposing: Sequence[_Live]) -> list[tuple[_Live, Any]]:
    """One ``optimiser.propose`` call for all problems whose data have the same shape and stream."""

    def stream(one: _Live) -> Hashable:
        effect = one.effect
        return (id(effect.optimiser), *effect.U.shape, effect.k, effect.round, effect.seed)

    answers: list[tuple[_Live, Any]] = []
    for group in _grouped(proposing, stream):
        effect = group[0].effect
        proposals = effect.optimiser.propose(
            torch.stack([one.effect.U for one in group]),  # (b, n, d)
            torch.stack([one.effect.y for one in group]),  # (b, n)
            effect.k,
            seed=effect.seed,
            round=effect.round,
            keys=[one.problem.id for one in group],
        )
        answers += zip(group, proposals, strict=True)
    return answers


@contextmanager
def _answering(
    engine: Engine, clock: Clock
) -> Iterator[Callable[[Sequence[_Live]], list[tuple[_Live, Any]]]]:
    """How ``engine`` answers the waiting problems, or some of them: as it is done with each, or by ticks."""
    if not hasattr(engine, "submit"):
        yield partial(_tick, engine=engine, clock=clock)
        return
    try:
        yield _Stream(engine, clock).run
    finally:
        engine.cancel()


def _tick(live: Sequence[_Live], *, engine: Engine, clock: Clock) -> list[tuple[_Live, Any]]:
    """One call for each set of token ids whose logits are wanted; where there is none, all generations in
    one call, which those problems have joined by then."""
    return _choose(live, engine, clock) or _generate(live, engine, clock)


class _Stream:
    """Gives a streaming engine each problem's effect once, and each problem all that came of it together."""

    def __init__(self, engine: StreamingEngine, clock: Clock) -> None:
        self._engine, self._clock = engine, clock
        self._tickets: dict[int, tuple[_Live, int]] = {}
        self._left: dict[_Live, int] = {}
        self._found: dict[_Live, list[Any]] = {}

    def run(self, live: Sequence[_Live]) -> list[tuple[_Live, Any]]:
        """Answers of the problems, at least one, whose effects are fulfilled first."""
        for one in live:
            if one not in self._found:
                self._submit(one)
        while not (answers := self._complete()):
            self._collect()
        return answers

    def _submit(self, one: _Live) -> None:
        effect = one.effect
        try:
            if isinstance(effect, Generate):
                tickets = self._engine.submit(effect.requests)
            else:
                tickets = self._engine.submit_prompts(effect.prompts, effect.ids, top=effect.top)
        except (UserError, ValueError) as error:
            raise one.failed(error) from error
        self._found[one], self._left[one] = [None] * len(tickets), len(tickets)
        self._tickets.update({ticket: (one, place) for place, ticket in enumerate(tickets)})

    def _collect(self) -> None:
        collected = self._engine.collect()
        if not collected:
            raise RuntimeError(f"engine: expected {len(self._tickets)} more completions, got none")
        for ticket, found in collected:
            one, place = self._tickets.pop(ticket)
            self._found[one][place] = found
            self._left[one] -= 1

    def _complete(self) -> list[tuple[_Live, Any]]:
        answers = []
        for one in [one for one, left in self._left.items() if not left]:
            del self._left[one]
            found = self._found.pop(one)
            if isinstance(one.effect, Generate):
                answers.append((one, _counted(one, found, self._clock)))
            else:
                logits = torch.stack([row for row, _ in found])
                answers.append((one, _read(one, logits, [cached for _, cached in found], self._clock)))
        return answers


def _generate(live: Sequence[_Live], engine: Engine, clock: Clock) -> list[tuple[_Live, Any]]:
    generating = [one for one in live if isinstance(one.effect, Generate)]
    requests = [request for one in generating for request in one.effect.requests]
    try:
        completions = engine.generate(requests) if requests else []
    except (UserError, ValueError) as error:
        _name_the_problem(generating, lambda one: engine.generate(one.effect.requests))
        raise error
    if len(completions) != len(requests):
        raise RuntimeError(f"engine: expected {len(requests)} completions, got {len(completions)}")
    rest = iter(completions)
    return [(one, _counted(one, list(islice(rest, len(one.effect.requests))), clock)) for one in generating]


def _counted(one: _Live, completions: list[Completion], clock: Clock) -> list[Completion]:
    """``completions``, which answer the problem's effect, after adding them to its usage and the clock."""
    for request, done in zip(one.effect.requests, completions, strict=True):
        counts = done.prompt_tokens, done.cached_tokens, done.generated_tokens, done.recomputed_tokens
        one.count(request.role, Usage.of(*counts))
    clock.sequences += len(completions)
    clock.generated_tokens += sum(done.generated_tokens for done in completions)
    return completions


def _read(one: _Live, logits: torch.Tensor, cached: Sequence[int], clock: Clock) -> torch.Tensor:
    """``logits``, which answer the problem's effect, after adding its prompts to its usage and the clock."""
    for prompt, count in zip(one.effect.prompts, cached, strict=True):
        one.count(one.effect.role, Usage.of(len(prompt.ids), count))
    clock.sequences += len(cached)
    return logits


def _choose(live: Sequence[_Live], engine: Engine, clock: Clock) -> list[tuple[_Live, Any]]:
    choosing = [one for one in live if isinstance(one.effect, NextLogits)]
    answers: list[tuple[_Live, Any]] = []
    for group in _grouped(choosing, lambda one: (one.effect.ids, one.effect.top)):
        answers += _next_logits(group, engine, clock)
    return answers


def _next_logits(group: Sequence[_Live], engine: Engine, clock: Clock) -> list[tuple[_Live, Any]]:
    prompts, effect = [prompt for one in group for prompt in one.effect.prompts], group[0].effect
    try:
        logits, cached = engine.next_token_logits(prompts, effect.ids, top=effect.top)
    except (UserError, ValueError) as error:
        _name_the_problem(group, lambda one: engine.next_token_logits(one.effect.prompts, effect.ids))
        raise error
    parts, counts = logits.split([len(one.effect.prompts) for one in group]), iter(cached)
    return [
        (one, _read(one, part, list(islice(counts, len(part))), clock))
        for one, part in zip(group, parts, strict=True)
    ]


def _name_the_problem(waiting: Sequence[_Live], ask: Callable[[_Live], Any]) -> None:
    """Ask again one problem at a time, to raise the refusal of a merged call with its problem's name."""
    for one in waiting:
        try:
            ask(one)
        except (UserError, ValueError) as error:
            raise one.failed(error) from error
