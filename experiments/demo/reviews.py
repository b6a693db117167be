"""The reviewers of the demo model's training text, who find the right ones among shown solutions.

A solution is right if each of its steps is sound, none is missing and the answer is theirs. So every check is
local: finding a right solution takes reading, not solving. While it reads, the model is trained to know after
every step whether it is sound, and after the answer whether the solution is right (:func:`annotate`). So what
it writes is short: the answer of a right solution. A reviewer who finds none right, or has none to read,
writes an attempt like any author, and knows no more than one.
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
"""A piece of a text and what it is. After pieces that are "sound", "unsound", "right" or "wrong" the model is
trained to say Yes or No, whatever follows in the text."""


def sound(problem: WordProblem, solution: Solution) -> list[bool]:
    """Return for each step of ``solution`` whether it is the one that belongs there.

    It is if its event is the next that concerns the owner, and its signs and numbers are those of the event.
    What an earlier mistake left is no mistake of a later step.
    """
    wanted = _grouped(equations(problem, frozenset()))
    labels = [label for label, _ in wanted]
    last, found = -1, []
    for label, group in _grouped(solution.steps):
        place = labels.index(label) if label in labels else -1
        found.append(place == last + 1 and _signs(group) == _signs(wanted[place][1]))
        last = max(last, place)
    return found


def _signs(group: Sequence[Equation]) -> list[tuple[str, int]]:
    return [(step.sign, step.right) for step in group]


def is_right(problem: WordProblem, solution: Solution) -> bool:
    """Whether all steps are sound, none is missing, and the answer is right."""
    found = sound(problem, solution)
    wanted = len(_grouped(equations(problem, frozenset())))
    return all(found) and len(found) == wanted and solution.answer == problem.answer


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
    """Return the review of ``shown`` in pieces: the answer of the right ones, or an attempt if there is none.

    A judge names the right ones instead.
    """
    right = [i for i, solution in enumerate(shown, start=1) if is_right(problem, solution)]
    if judge:
        named = verdict(right).removeprefix("Correct:")
        return [("Correct:", "own"), (named, "mark"), ("\n", "own")]
    if right:
        return [("Answer", "mark"), (":", "own"), (f" {problem.answer}", "copy"), ("\n", "own")]
    opener, rest = solve(problem, rng).body.split(" ", 1)
    return [(opener, "mark" if shown else "own"), (f" {rest}\n", "own")]


def draw_shown(problem: WordProblem, rng: random.Random, count: int) -> list[Solution]:
    """Return ``count`` solutions to review, by few or many authors.

    In two of five cases none of them is right, otherwise often one, at times more.
    """
    if not count:
        return []
    right = 0 if rng.random() < 0.4 else 1 if rng.random() < 0.5 else rng.randint(1, count)
    wanted = [True] * right + [False] * (count - right)
    rng.shuffle(wanted)
    pool = AUTHORS if rng.random() < 0.5 else rng.sample(AUTHORS, rng.choice((1, 2, 3, 5, len(AUTHORS))))
    return [_draw(problem, rng, pool, want) for want in wanted]


def _draw(problem: WordProblem, rng: random.Random, pool: Sequence[Author], right: bool) -> Solution:
    """Return a solution that is right or not, as asked, by an author of ``pool`` where one writes such.

    Else it is by any author with any mistakes. On a problem without traps all solutions are right.
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
