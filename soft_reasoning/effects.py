"""Effects, which methods yield, and for each type the function that answers a batch of it.

A new effect is a class and a function, in any module; the scheduler does not change:

    @dataclass(frozen=True)
    class Embed(Effect):
        ids: tuple[int, ...]

    @answers(Embed)
    def _(asked, engine):
        return [engine.embed(one.effect.ids) for one in asked]
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Literal, Protocol, TypeVar

import torch

from soft_reasoning.engines.base import Engine
from soft_reasoning.types import (
    Completion,
    Effect,
    Generate,
    NextLogits,
    Problem,
    Propose,
    Request,
    Round,
    Usage,
)

T = TypeVar("T")
E_co = TypeVar("E_co", covariant=True)


class Asked(Protocol[E_co]):
    """An effect that a problem waits for."""

    @property
    def effect(self) -> E_co: ...

    @property
    def problem(self) -> Problem: ...

    def count(self, role: str, usage: Usage) -> None:
        """Add ``usage`` to the problem's, under ``role``."""
        ...

    def bounded(self, requests: Sequence[Request]) -> list[Request] | None:
        """Return ``requests`` within what is left of the problem's budget; None if nothing is."""
        ...

    def watch(self, round: Round) -> None:
        """Pass a finished round on to who watches."""
        ...

    def spent(self, least: int) -> str | None:
        """Return which budget cannot pay for ``least`` more tokens: "tokens", "seconds" or None."""
        ...


@dataclass(frozen=True, eq=False)
class Submitted:
    """A placeholder for an answer that the engine has not completed.

    Args:
        tickets: Of ``engine.submit``.
        read: Called with the results in the order of ``tickets`` when all are complete; returns the answer.
    """

    tickets: Sequence[int]
    read: Callable[[list[Any]], Any]


Answer = Callable[[Sequence[Asked[Any]], Engine], Sequence[Any]]
"""For every effect asked its answer, or a :class:`Submitted`."""


@dataclass(frozen=True)
class Handler:
    """A registered ``answer`` function, and the part of a run's time that it counts as."""

    answer: Answer
    time: str


_HANDLERS: dict[type[Effect], Handler] = {}


def answers(
    effect: type[Effect], *, time: Literal["engine", "optimiser", "method"] = "engine"
) -> Callable[[Answer], Answer]:
    """Register the decorated function as the one that answers effects of a type.

    It receives the effects of all problems that wait for one of this type, and the engine. It raises
    UserError or ValueError for an effect that cannot be answered. It is then called for one problem at a
    time, to find the problem.

    Args:
        effect: The type, which has no function yet.
        time: What its time counts as in a run's report.
    """

    def register(answer: Answer) -> Answer:
        if effect in _HANDLERS:
            raise ValueError(f"expected an effect without a function, got {effect.__name__}, which has one")
        _HANDLERS[effect] = Handler(answer, time)
        return answer

    return register


def handler_of(effect: Any) -> Handler:
    """Return the handler of an effect.

    Raises:
        TypeError: If its type has none.
    """
    found = _HANDLERS.get(type(effect))
    if found is None:
        known = ", ".join(one.__name__ for one in _HANDLERS)
        raise TypeError(
            f"expected an effect registered with effects.answers ({known}), got {type(effect).__name__}"
        )
    return found


def grouped(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Group ``items`` by ``key``, groups and members in order of first appearance."""
    groups: dict[Hashable, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.values())


@answers(Generate)
def generate(asked: Sequence[Asked[Generate]], engine: Engine) -> list[Submitted | list[Completion]]:
    """Send all requests to the engine together; each problem continues when its own are complete.

    A problem whose budget is spent gets empty completions.
    """
    granted = [one.bounded(one.effect.requests) for one in asked]
    tickets = iter(engine.submit([request for some in granted for request in some or ()]))
    return [
        [Completion((), (), "", "budget", 0)] * len(one.effect.requests)
        if some is None
        else Submitted(list(islice(tickets, len(some))), partial(_completed, one))
        for one, some in zip(asked, granted, strict=True)
    ]


def _completed(one: Asked[Generate], completions: list[Completion]) -> list[Completion]:
    for request, done in zip(one.effect.requests, completions, strict=True):
        counts = done.prompt_tokens, done.cached_tokens, done.generated_tokens, done.recomputed_tokens
        one.count(request.role, Usage.of(*counts))
    return completions


@answers(NextLogits)
def next_logits(asked: Sequence[Asked[NextLogits]], engine: Engine) -> list[torch.Tensor]:
    """Ask the engine once for all problems that need the logits of the same token ids."""
    found: dict[int, torch.Tensor] = {}
    for group in grouped(asked, lambda one: (one.effect.ids, one.effect.top)):
        prompts, effect = [prompt for one in group for prompt in one.effect.prompts], group[0].effect
        logits, cached = engine.next_token_logits(prompts, effect.ids, top=effect.top)
        rest = iter(cached)
        for one, part in zip(group, logits.split([len(one.effect.prompts) for one in group]), strict=True):
            for prompt, count in zip(one.effect.prompts, islice(rest, len(part)), strict=True):
                one.count(one.effect.role, Usage.of(len(prompt.ids), count))
            found[id(one)] = part
    return [found[id(one)] for one in asked]


@answers(Propose, time="optimiser")
def propose(asked: Sequence[Asked[Propose]], engine: Engine) -> list[Any]:
    """Call ``optimiser.propose`` once for all problems whose data have the same shape and stream."""

    def stream(one: Asked[Propose]) -> Hashable:
        effect = one.effect
        return (id(effect.optimiser), *effect.U.shape, effect.k, effect.round, effect.seed)

    found: dict[int, Any] = {}
    for group in grouped(asked, stream):
        effect = group[0].effect
        proposals = effect.optimiser.propose(
            torch.stack([one.effect.U for one in group]),  # (b, n, d)
            torch.stack([one.effect.y for one in group]),  # (b, n)
            effect.k,
            seed=effect.seed,
            round=effect.round,
            keys=[one.problem.id for one in group],
        )
        found.update(zip(map(id, group), proposals, strict=True))
    return [found[id(one)] for one in asked]


@answers(Round, time="method")
def watch(asked: Sequence[Asked[Round]], engine: Engine) -> list[str | None]:
    """Pass the rounds on, and say whether the budget ends them: a next one needs a token per candidate."""
    for one in asked:
        one.watch(one.effect)
    return [one.spent(len(one.effect.candidates)) for one in asked]
