"""A review: how candidates are shown to the model that judges them, and how scores are read from its text.

A model verifier combines a presentation (all in one prompt, one by one, without candidates) and a judgement
(a fresh solution, a named choice).
"""

from __future__ import annotations

import logging
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Protocol

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.types import Candidate, Completion, Problem, Prompt

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


class Judgement(Protocol):
    """Reads scores from the model's text."""

    writes_answer: bool
    """Whether the text is a solution with an answer, which may vote."""

    def complete(self, text: str) -> bool:
        """Whether a text that was cut at its length already holds the verdict."""
        ...

    def read(self, text: str, problem: Problem, grader: AnswerGrader) -> str | None:
        """Return the answer of the model's solution, or None if it writes none."""
        ...

    def scores(
        self, text: str, candidates: Sequence[Candidate], problem: Problem, grader: AnswerGrader, first: int
    ) -> list[float]:
        """Return 1 for each candidate that ``text`` calls correct, else 0.

        ``first`` is the number of the first candidate in the prompt.
        """
        ...


@dataclass(frozen=True)
class FreshSolution:
    """The model writes a new solution; candidates that agree with its answer are correct."""

    writes_answer = True

    def complete(self, text: str) -> bool:
        return re.search(r"Answer:\s*\S[^\n]*\n", text) is not None

    def read(self, text: str, problem: Problem, grader: AnswerGrader) -> str | None:
        return grader.extract(text, problem.answer_type, problem.question)

    def scores(
        self, text: str, candidates: Sequence[Candidate], problem: Problem, grader: AnswerGrader, first: int
    ) -> list[float]:
        kind = problem.answer_type
        answer = self.read(text, problem, grader)
        return [float(answer is not None and grader.equal(c.answer, answer, kind)) for c in candidates]


@dataclass(frozen=True)
class NamedChoice:
    """The model writes the numbers of the correct candidates, or None, on its last ``Correct:`` line.

    A candidate alone in its prompt counts as correct if the first 0 or 1 of that line is 1. If the prompt
    numbers candidates from 0, it is named, too.
    """

    writes_answer = False

    def complete(self, text: str) -> bool:
        return re.search(r"Correct:[^\n]*\n", text) is not None or "\n" in text.strip()

    def read(self, text: str, problem: Problem, grader: AnswerGrader) -> str | None:
        return None

    def scores(
        self, text: str, candidates: Sequence[Candidate], problem: Problem, grader: AnswerGrader, first: int
    ) -> list[float]:
        named = verdict_numbers(text)
        if len(candidates) == first == 1:
            return [float(next((number for number in named if number in (0, 1)), 0))]
        return [float(i in named) for i in range(first, first + len(candidates))]


def verdict_numbers(text: str) -> tuple[int, ...]:
    """Return the integers of up to three digits on the last ``Correct:`` line of ``text``, in order.

    Without such a line the first line is read, since the prompt may end in ``Correct:``. Text without digits,
    such as "None", gives no integers.
    """
    marked = re.findall(r"Correct:([^\n]*)", text)
    line = marked[-1] if marked else text.strip().partition("\n")[0]
    return tuple(int(number) for number in re.findall(r"(?<!\d)\d{1,3}(?!\d)", line)[:64])


def verdict_probability(completion: Completion, tokenizer: Any) -> float | None:
    """Return the probability of 1 against 0 and None at the verdict.

    The verdict is the first token other than white space, after the last "Correct:" if there is such a mark.
    None if the text ends before it, or if none of the likeliest tokens there is 1, 0 or None.
    """
    words = [tokenizer.decode([token]).strip() for token in completion.token_ids]
    marks = [i for i, word in enumerate(words) if word.endswith(":")]
    start = next((i + 1 for i in reversed(marks) if "Correct" in "".join(words[max(0, i - 3) : i + 1])), 0)
    place = next((i for i in range(start, len(words)) if words[i]), None)
    if place is None or place >= len(completion.top_logprobs):
        return None
    top = completion.top_logprobs[place]
    shares = {"1": 0.0, "0": 0.0, "None": 0.0}
    for token, logprob in zip(top.ids, top.logprobs, strict=True):
        word = tokenizer.decode([token]).strip()
        if word in shares:
            shares[word] += math.exp(logprob)
    total = sum(shares.values())
    return shares["1"] / total if total else None
