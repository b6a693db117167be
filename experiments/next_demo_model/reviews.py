"""The reviewers of the demo model's training text: they copy a solution's steps and mark each of them.

A review goes through the shown solutions in order and, until the first step that does not follow, repeats
their steps in one form, each with ``Yes`` or ``No``. So every judgement is local: does this step follow from
its event and from the step before? Finding a right solution takes reading, not solving. A reviewer who finds
none right, or has none to read, writes an attempt like any author, and knows no more than one.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from authors import AUTHORS

from soft_reasoning.demo.problems import WordProblem
from soft_reasoning.demo.prompts import verdict
from soft_reasoning.demo.solutions import (
    COMPUTE,
    Equation,
    Solution,
    draw_author,
    equations,
    solve,
    write,
)

SLIP_RATE = 0.1
"""How many of the solutions that a reviewer reads hold a slip, beside their author's habits."""

Span = tuple[str, str]
"""A piece of a review and what it is: "number", "copy", "mark" or "own" (attempts and answers)."""


def slip(steps: Sequence[Equation], rng: random.Random) -> list[Equation]:
    """``steps`` with one mistake: a wrong result, a wrong number, a step left out or told twice. What
    follows goes on from it."""
    i = rng.randrange(len(steps))
    before, one, after = list(steps[:i]), steps[i], list(steps[i + 1 :])
    kind = rng.choice(("result", "result", "number", "left out", "twice"))
    if kind == "twice":
        return [*before, one, one, *after]
    if kind == "left out" and after:
        return before + _go_on(after, one.result, one.left)
    if kind == "number":
        right = max(1, one.right + rng.choice((-2, -1, 1, 2)))
        changed = replace(one, right=right, result=COMPUTE[one.sign](one.left, right))
    else:
        changed = replace(one, result=max(0, one.result + rng.choice((-10, -2, -1, 1, 2, 10))))
    return [*before, changed, *_go_on(after, one.result, changed.result)]


def _go_on(steps: Sequence[Equation], old: int, new: int) -> list[Equation]:
    """``steps`` computed again where the value before them is ``new`` instead of ``old``."""
    told = []
    for step in steps:
        left, right = step.left, step.right
        if left == old:
            left = new
        elif right == old:
            right = new
        result = COMPUTE[step.sign](left, max(right, 1) if step.sign == "/" else right)
        told.append(replace(step, left=left, right=right, result=result))
        old, new = step.result, result
    return told


def marks(problem: WordProblem, solution: Solution) -> list[tuple[str, bool]]:
    """What a reviewer repeats of ``solution``, and whether it follows: its steps and then, as "Done N", its
    answer, which follows when nothing is left to do. Ends with the first that does not follow."""
    wanted = _grouped(equations(problem, frozenset()))
    told: list[tuple[str, bool]] = []
    given = _grouped(solution.steps)
    for i, (label, group) in enumerate(given):
        follows = i < len(wanted) and (label, group) == wanted[i]
        told.append((f"{label}) {', '.join(map(str, group))}", follows))
        if not follows:
            return told
    done = len(given) == len(wanted) and solution.answer == problem.answer
    return [*told, (f"Done {solution.answer}", done)]


def is_right(problem: WordProblem, solution: Solution) -> bool:
    return marks(problem, solution)[-1][1]


def review(
    problem: WordProblem, shown: Sequence[Solution], rng: random.Random, *, judge: bool = False
) -> list[Span]:
    """The review of ``shown`` in pieces. It stops at the first right solution and gives its answer; where
    there is none, an attempt follows. A judge reads all and names the right ones instead."""
    spans: list[Span] = []
    right = []
    for number, solution in enumerate(shown, start=1):
        spans.append((f"{number}.", "number"))
        for text, follows in marks(problem, solution):
            spans += [(f" {text}", "copy"), (" Yes" if follows else " No", "mark")]
        spans.append(("\n", "number"))
        if spans[-2][0] == " Yes":
            right.append(number)
            if not judge:
                return [*spans, (f"Answer: {solution.answer}\n", "own")]
    if judge:
        return [*spans, (f"{verdict(right)}\n", "own")]
    return [*spans, (solve(problem, rng, draw_author(rng, AUTHORS)).body + "\n", "own")]


def draw_shown(problem: WordProblem, rng: random.Random, count: int) -> list[Solution]:
    """``count`` solutions to review, by few or many authors: in half of the cases none of them is right,
    otherwise often one, at times more."""
    if not count:
        return []
    right = 0 if rng.random() < 0.5 else 1 if rng.random() < 0.5 else rng.randint(1, count)
    wanted = [True] * right + [False] * (count - right)
    rng.shuffle(wanted)
    pool = AUTHORS if rng.random() < 0.5 else rng.sample(AUTHORS, rng.choice((1, 2, 3, 5, len(AUTHORS))))
    return [_draw(problem, rng, pool, want) for want in wanted]


def _draw(problem: WordProblem, rng: random.Random, pool, right: bool) -> Solution:
    """A solution that is right or not, as asked, and by an author of ``pool`` where one writes such."""
    for _ in range(10):
        author = draw_author(rng, pool)
        solution = solve(problem, rng, author)
        if rng.random() < SLIP_RATE:
            solution = _write(problem, slip(solution.steps, rng), rng, author)
        if is_right(problem, solution) == right:
            return solution
    while True:
        author = rng.choice(AUTHORS)
        steps = equations(problem, frozenset())
        solution = _write(problem, steps if right else slip(steps, rng), rng, author)
        if is_right(problem, solution) == right:
            return solution


def _write(problem: WordProblem, steps: Sequence[Equation], rng: random.Random, author) -> Solution:
    return write(steps, author.layout, rng.choice(author.openers), problem.objects)


def _grouped(steps: Sequence[Equation]) -> list[tuple[str, list[Equation]]]:
    return [(label, list(group)) for label, group in groupby(steps, lambda step: step.label)]
