"""How candidates are shown to the model that judges them, the first part of a verifier."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from soft_reasoning.types import Prompt

log: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AllInOnePrompt:
    """All candidates in one prompt. The other presentations are subclasses.

    ``shows_candidates``: whether the prompt is a review of candidates, not the problem alone.
    """

    shows_candidates: ClassVar[bool] = True

    def groups(self, shown: Sequence[int]) -> list[list[int]]:
        """Return groups of candidates, one prompt for each; no groups if there is nothing to judge."""
        return [list(shown)] if shown else []

    def before(self, earlier: Sequence[str]) -> Sequence[str]:
        """Return those of the verifier's texts of ``earlier`` rounds that are shown before the solutions."""
        return []


@dataclass(frozen=True)
class OneByOne(AllInOnePrompt):
    """One prompt per candidate."""

    def groups(self, shown: Sequence[int]) -> list[list[int]]:
        return [[i] for i in shown]


@dataclass(frozen=True)
class WithoutCandidates(AllInOnePrompt):
    """The problem without the candidates, a control for the effect of seeing them."""

    shows_candidates: ClassVar[bool] = False

    def groups(self, shown: Sequence[int]) -> list[list[int]]:
        return [list(shown)]


def fitting(
    show: Callable[[Sequence[str]], Prompt], earlier: Sequence[str], solutions: Sequence[str], room: int
) -> tuple[Prompt, int]:
    """Return the prompt that ``show`` builds from ``earlier`` and ``solutions``, and how many texts it shows.

    If they take more than ``room`` tokens, the first of ``earlier`` are left out, then the last of
    ``solutions``, so that the remaining solutions keep their numbers.
    """
    texts = [*earlier, *solutions]

    def build(count: int) -> Prompt:
        first = max(0, min(len(earlier), len(texts) - count))
        return show(texts[first : first + count])

    prompt, count = build(len(texts)), len(texts)
    if count > 1 and len(prompt.ids) > room:
        count = 1 + bisect_right(range(2, count), room, key=lambda size: len(build(size).ids))
        prompt = build(count)
    return prompt, count


@cache
def warn_of_bound(kind: str, context_length: int) -> None:
    """Warn once per process rather than in every round of every problem."""
    log.warning(
        "verifier=%s: the model's context of %d tokens has no room for all candidates of a round, so the "
        "last are not shown; lower k or use verifier.show=answer",
        kind,
        context_length,
    )
