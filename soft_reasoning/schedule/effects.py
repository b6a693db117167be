"""Effects, which methods yield, and a function for each type that answers a batch of such effects.

A new effect is a class and a function, in any module; the scheduler does not change:

    @dataclass(frozen=True)
    class Embed(Effect):
        ids: tuple[int, ...]

    @answers(Embed)
    def _(jobs, engine):
        return [engine.embed(job.effect.ids) for job in jobs]
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Literal, TypeVar

import torch

from soft_reasoning.engine.base import Engine
from soft_reasoning.schedule.job import BudgetSpent, Clock, Job
from soft_reasoning.schedule.method import Effect, Generate, Round
from soft_reasoning.types import Completion, FinishReason, Prompt, Request, Usage, UserError

T = TypeVar("T")


NOTHING = Completion((), (), "", FinishReason.BUDGET, 0)
"""The completion of a request whose problem has spent its budget."""


@dataclass(frozen=True, eq=False)
class Submitted:
    """A placeholder for an answer that the engine has not completed.

    Args:
        tickets: Tickets from ``engine.add``.
        read: Called with the results in the order of ``tickets`` when all are complete; returns the answer.
    """

    tickets: Sequence[int]
    read: Callable[[list[Any]], Any]


Answer = Callable[[Sequence[Job], Engine], Sequence[Any]]
"""Returns an answer or a :class:`Submitted` for every job; the second argument is the engine."""


_HANDLERS: dict[type[Effect], tuple[Answer, str]] = {}
"""For each type of effect: its function, and the kind of time that its calls count as."""


def answers(
    effect: type[Effect], *, time: Literal["engine", "optimiser", "method"] = "engine"
) -> Callable[[Answer], Answer]:
    """Register the decorated function to answer effects of a type.

    The function receives the jobs of all problems that wait for an effect of this type (and, if the effect
    has one, the same ``engine``), and the run's engine. It raises UserError or ValueError for an effect that
    cannot be answered. It is then called for one problem at a time, to find out which problem failed.

    What runs the model is counted (``job.count``) and bounded: where ``job.spent(1)`` names a budget, the
    answer is ``BudgetSpent()``, which is raised where the method yielded the effect.

    Args:
        effect: The type, which has no function yet.
        time: The kind of time that its calls count as in a run's report.
    """

    def register(answer: Answer) -> Answer:
        if effect in _HANDLERS:
            raise ValueError(f"expected an effect without a function, got {effect.__name__}, which has one")
        _HANDLERS[effect] = answer, time
        return answer

    return register


def answer_together(jobs: Sequence[Job], engine: Engine, clock: Clock) -> Sequence[Any]:
    """Return an answer or a :class:`Submitted` for each of ``jobs``, whose effects are of one type.

    Raises:
        UserError: If no function is registered for the type, or if it does not give an answer for each.
    """
    kind = type(jobs[0].effect)
    if kind not in _HANDLERS:
        registered = ", ".join(known.__name__ for known in _HANDLERS)
        raise UserError(f"expected an effect with a function ({registered}), got {kind.__name__}")
    answer, time = _HANDLERS[kind]
    with clock.measure(time):
        results: Any = answer(jobs, engine)
    if not isinstance(results, list | tuple) or len(results) != len(jobs):
        raise UserError(
            f"{getattr(answer, '__name__', repr(answer))}: expected a list of {len(jobs)} answers to "
            f"{kind.__name__}, one for each job, got {results!r:.80}"
        )
    return results


def grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Group ``items`` by ``key``; groups and members stay in order of first appearance."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


@answers(Generate)
def generate(jobs: Sequence[Job[Generate]], engine: Engine) -> list[Submitted | list[Completion]]:
    """Queue all requests; each problem continues when its own requests are complete.

    Requests for another engine are completed at once, in one batch. A problem whose budget is spent gets
    empty completions.
    """
    second = jobs[0].effect.engine
    granted = {job: job.within_budget(job.effect.requests) for job in jobs}
    requests = [request for bounded in granted.values() for request in bounded or ()]
    results: Iterator[Any] = iter(engine.add(requests) if second is None else second.generate(requests))
    answered: list[Submitted | list[Completion]] = []
    for job, bounded in granted.items():
        if bounded is None:
            answered.append([NOTHING] * len(job.effect.requests))
            continue
        own = list(islice(results, len(bounded)))
        answered.append(
            Submitted(own, partial(_read, job, bounded)) if second is None else _read(job, bounded, own)
        )
    return answered


def _read(
    job: Job[Generate], bounded: Sequence[Request], completions: Sequence[Completion]
) -> list[Completion]:
    """Count the completions of a problem's ``bounded`` requests, and mark those that its budget cut."""
    for request, c in zip(bounded, completions, strict=True):
        counts = c.prompt_tokens, c.cached_tokens, c.generated_tokens
        job.count(request.role, Usage.of(*counts, replayed=c.replayed))
    return [
        replace(c, finish_reason=FinishReason.BUDGET) if job.cut(asked, given, c) else c
        for asked, given, c in zip(job.effect.requests, bounded, completions, strict=True)
    ]


def next_logits(
    prompts: Sequence[Prompt], ids: tuple[int, ...] | None = None, *, role: str
) -> Generator[Effect, Any, torch.Tensor]:
    """Read the logits of the token after each prompt, up to a constant per prompt.

    Args:
        prompts: The prompts.
        ids: Tokens whose logits are read; None reads all.
        role: The name under which the tokens of the prompts are counted.

    Returns:
        (len(prompts), len(ids) or vocabulary) float32.

    Raises:
        BudgetSpent: If the problem's budget allows no more work.
    """
    wanted = True if ids is None else ids
    completions = yield Generate(
        [prompt.request(max_new_tokens=0, next_logits=wanted, role=role) for prompt in prompts]
    )
    rows = [completion.next_logits for completion in completions if completion.next_logits is not None]
    if len(rows) < len(prompts):
        raise BudgetSpent
    return torch.stack(rows) if rows else torch.empty(0, len(ids or ()), dtype=torch.float32)


@answers(Round, time="method")
def watch(jobs: Sequence[Job[Round]], engine: Engine) -> list[str | None]:
    """Report the rounds to ``watch``; return any budget that lacks a token per candidate for a next round."""
    for job in jobs:
        if job.watch is not None:
            job.watch(job.effect)
    return [job.spent(len(job.effect.candidates)) for job in jobs]
