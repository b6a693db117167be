"""How candidates are shown to the model that judges them, the first part of a verifier."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from soft_reasoning.scheduling.context import Context
from soft_reasoning.types import Problem, Prompt

log: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Review:
    """What a presentation builds its prompt from.

    Attributes:
        problem: The problem.
        context: The run's context.
        kind: The wording, an entry of ``prompt.wording.reviews``.
        shots: Worked reviews before the solutions; None is as many as fit.
        brief: Whether only the solutions' answers are shown.
        room: Most tokens of the prompt.
    """

    problem: Problem
    context: Context
    kind: str
    shots: int | None
    brief: bool
    room: int

    def of(self, solutions: Sequence[str], earlier: Sequence[str] = ()) -> Prompt:
        """Return the prompt that shows ``earlier`` and then ``solutions``.

        If there is no room for all, the first of ``earlier`` are left out, then the last of ``solutions``,
        so that the others keep their numbers.
        """
        texts = [*earlier, *solutions]

        def showing(count: int) -> Prompt:
            first = max(0, min(len(earlier), len(texts) - count))
            return self.context.prompts.review(
                self.kind,
                self.problem,
                texts[first : first + count],
                shots=self.shots,
                brief=self.brief,
                room=self.room,
            )

        prompt = showing(len(texts))
        if len(prompt.ids) <= self.room or len(texts) < 2:
            return prompt
        # Double, then bisect: the work stays that of one full prompt, however many solutions there are.
        fits, beyond, found = 1, 2, showing(1)
        while beyond < len(texts) and len((prompt := showing(beyond)).ids) <= self.room:
            fits, beyond, found = beyond, min(2 * beyond, len(texts)), prompt
        while beyond - fits > 1:
            middle = (fits + beyond) // 2
            prompt = showing(middle)
            if len(prompt.ids) <= self.room:
                fits, found = middle, prompt
            else:
                beyond = middle
        if fits < len(solutions):
            _warn_of_bound(self.kind, self.context.engine.context_length)
        return found


@cache
def _warn_of_bound(kind: str, context_length: int) -> None:
    """Warn once per process rather than in every round of every problem."""
    log.warning(
        "verifier=%s: the model's context of %d tokens has no room for all candidates of a round, so the "
        "last are not shown; lower search.candidates or use verifier.show=answer",
        kind,
        context_length,
    )


class Written(Protocol):
    """What a verifier wrote in an earlier round."""

    @property
    def texts(self) -> Sequence[str]: ...


class Presentation(Protocol):
    """Which candidates share a prompt, and what the prompt shows."""

    def groups(self, shown: Sequence[int]) -> list[list[int]]:
        """Return groups of candidates, each judged by one prompt; none if there is nothing to ask."""
        ...

    def prompt(self, review: Review, solutions: Sequence[str], earlier: Sequence[Written]) -> Prompt:
        """Return the prompt for the ``solutions`` of a group, after the verdicts of ``earlier`` rounds."""
        ...


@dataclass(frozen=True)
class Together:
    """All candidates in one prompt."""

    def groups(self, shown: Sequence[int]) -> list[list[int]]:
        return [list(shown)] if shown else []

    def prompt(self, review: Review, solutions: Sequence[str], earlier: Sequence[Written]) -> Prompt:
        return review.of(solutions)


@dataclass(frozen=True)
class OneByOne:
    """One prompt per candidate."""

    def groups(self, shown: Sequence[int]) -> list[list[int]]:
        return [[i] for i in shown]

    def prompt(self, review: Review, solutions: Sequence[str], earlier: Sequence[Written]) -> Prompt:
        return review.of(solutions)


@dataclass(frozen=True)
class Unseen:
    """The problem without the candidates, a control that shows what seeing them adds."""

    def groups(self, shown: Sequence[int]) -> list[list[int]]:
        return [list(shown)]

    def prompt(self, review: Review, solutions: Sequence[str], earlier: Sequence[Written]) -> Prompt:
        return review.context.prompts.solve(review.problem)
