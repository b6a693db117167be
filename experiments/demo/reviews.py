"""The reviewers of the demo model's training text, who find the right solutions among those shown.

A solution is right if each of its steps is sound, none is missing and the answer follows from them. So every
check is local: finding a right solution takes reading, not solving. While it reads, the model is trained to
know after every step whether it is sound, and after the answer whether the solution is right
(:func:`annotate`). So its text is short: the answer of a right solution. A reviewer who finds no right
solution, or has none to read, writes an attempt like any author, and is no better than an author.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import groupby

from experiments.demo.problems import WordProblem
from experiments.demo.prompts import verdict
from experiments.demo.solutions import (
    AUTHORS,
    HABITS,
    Author,
    Equation,
    Solution,
    draw_author,
    equations,
    solve,
    write,
)

Span = tuple[str, str]
"""A piece of a text and its kind. After pieces that are "sound", "unsound", "right" or "wrong" the model is
trained to predict Yes or No, whatever follows in the text."""


def sound(problem: WordProblem, solution: Solution) -> list[bool]:
    """Return for each step of ``solution`` whether it is the right step at its place.

    It is if its event is the next that concerns the owner, and its signs and numbers are those of the event.
    The consequences of an earlier mistake are not a mistake of a later step.
    """
    correct = _grouped(equations(problem, frozenset()))
    labels = [label for label, _ in correct]
    last, are_sound = -1, []
    for label, group in _grouped(solution.steps):
        place = labels.index(label) if label in labels else -1
        are_sound.append(place == last + 1 and _signs(group) == _signs(correct[place][1]))
        last = max(last, place)
    return are_sound


def _signs(group: Sequence[Equation]) -> list[tuple[str, int]]:
    return [(step.sign, step.right) for step in group]


def is_right(problem: WordProblem, solution: Solution) -> bool:
    """Whether all steps are sound, none is missing, and the answer is right."""
    are_sound = sound(problem, solution)
    count = len(_grouped(equations(problem, frozenset())))
    return all(are_sound) and len(are_sound) == count and solution.answer == problem.answer


def annotate(problem: WordProblem, solution: Solution, text: str) -> list[Span]:
    """``text``, in which ``solution`` is shown, cut after every step and after the answer."""
    parts = [f"{label}) {', '.join(map(str, group))}" for label, group in _grouped(solution.steps)]
    names = ["sound" if ok else "unsound" for ok in sound(problem, solution)]
    parts.append(f"Answer: {solution.answer}")
    names.append("right" if is_right(problem, solution) else "wrong")
    spans: list[Span] = []
    rest = text
    for part, name in zip(parts, names, strict=True):
        end = rest.index(part) + len(part)
        spans.append((rest[:end], name))
        rest = rest[end:]
    return [*spans, (rest, "shown")]


def review(
    problem: WordProblem, shown: Sequence[Solution], rng: random.Random, *, judge: bool = False
) -> list[Span]:
    """Return the review of ``shown`` in pieces: the answer of right solutions, else an attempt.

    A judge names the right solutions instead.
    """
    right = [i for i, solution in enumerate(shown, start=1) if is_right(problem, solution)]
    if judge:
        numbers = verdict(right).removeprefix("Correct:")
        return [("Correct:", "own"), (numbers, "mark"), ("\n", "own")]
    if right:
        return [("Answer", "mark"), (":", "own"), (f" {problem.answer}", "copy"), ("\n", "own")]
    opener, rest = solve(problem, rng).body.split(" ", 1)
    return [(opener, "mark" if shown else "own"), (f" {rest}\n", "own")]


def draw_shown(problem: WordProblem, rng: random.Random, count: int) -> list[Solution]:
    """Return ``count`` solutions to review, by few or many authors.

    In two of five cases none of them is right, otherwise often one of them, sometimes more.
    """
    if not count:
        return []
    right = 0 if rng.random() < 0.4 else 1 if rng.random() < 0.5 else rng.randint(1, count)
    corrects = [True] * right + [False] * (count - right)
    rng.shuffle(corrects)
    pool = AUTHORS if rng.random() < 0.5 else rng.sample(AUTHORS, rng.choice((1, 2, 3, 5, len(AUTHORS))))
    return [_draw(problem, rng, pool, right) for right in corrects]


def _draw(problem: WordProblem, rng: random.Random, pool: Sequence[Author], right: bool) -> Solution:
    """Return a solution that is ``right`` or not, by an author of ``pool`` if possible.

    Otherwise it is by any author with any mistakes. On a problem without traps all solutions are right.
    """
    for _ in range(10):
        solution = solve(problem, rng, draw_author(rng, pool))
        if is_right(problem, solution) == right:
            return solution
    author = rng.choice(AUTHORS)
    mistakes = frozenset() if right else frozenset(h for h in HABITS if rng.random() < 0.7)
    steps = equations(problem, mistakes)
    return write(steps, author.layout, rng.choice(author.openers), problem.objects)


def _grouped(steps: Sequence[Equation]) -> list[tuple[str, list[Equation]]]:
    return [(label, list(group)) for label, group in groupby(steps, lambda step: step.label)]
