"""How candidates are shown to the model that judges them, the first part of a verifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from soft_reasoning.context import Context
from soft_reasoning.types import Problem, Prompt

if TYPE_CHECKING:
    from soft_reasoning.rewards.verifiers import Verdict


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
        before, shown = list(earlier), list(solutions)
        while True:
            prompt = self.context.prompts.review(
                self.kind, self.problem, [*before, *shown], shots=self.shots, brief=self.brief, room=self.room
            )
            if len(prompt.ids) <= self.room or len(before) + len(shown) < 2:
                return prompt
            (before or shown).pop(0 if before else -1)


class Presentation(Protocol):
    """Which candidates share a prompt, and what the prompt shows."""

    def groups(self, shown: Sequence[int]) -> list[list[int]]:
        """Return groups of candidates, each judged by one prompt; none if there is nothing to ask."""
        ...

    def prompt(self, review: Review, solutions: Sequence[str], earlier: Sequence[Verdict]) -> Prompt:
        """Return the prompt for the ``solutions`` of a group, after the verdicts of ``earlier`` rounds."""
        ...


@dataclass(frozen=True)
class Together:
    """All candidates in one prompt."""

    def groups(self, shown: Sequence[int]) -> list[list[int]]:
        return [list(shown)] if shown else []

    def prompt(self, review: Review, solutions: Sequence[str], earlier: Sequence[Verdict]) -> Prompt:
        return review.of(solutions)


@dataclass(frozen=True)
class OneByOne:
    """One prompt per candidate."""

    def groups(self, shown: Sequence[int]) -> list[list[int]]:
        return [[i] for i in shown]

    def prompt(self, review: Review, solutions: Sequence[str], earlier: Sequence[Verdict]) -> Prompt:
        return review.of(solutions)


@dataclass(frozen=True)
class Unseen:
    """The problem without the candidates, a control that shows what seeing them adds."""

    def groups(self, shown: Sequence[int]) -> list[list[int]]:
        return [list(shown)]

    def prompt(self, review: Review, solutions: Sequence[str], earlier: Sequence[Verdict]) -> Prompt:
        return review.context.prompts.solve(review.problem)
