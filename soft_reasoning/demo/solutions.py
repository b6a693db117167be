"""The authors of the demo model's training text: how they write, and where they go wrong.

A language model learns from many authors, good and bad, and an opening word says which of them is
speaking. Here that is made small and plain. Nine authors write worked solutions; each has two opening
words, a way of writing, and *habits*: features of a problem that this author usually gets wrong. Some
habits are rare, two are common, so on many problems most authors agree on a wrong answer while a few
are right. A reviewer who reads several solutions recognises a right one when there is one, and
otherwise goes along with most of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from soft_reasoning.demo.problems import Event, WordProblem

HABITS = ("packs", "gifts", "other", "share", "times", "ask")
"""What can go wrong: counting one pack or one gift only, counting somebody else's objects, subtracting
instead of sharing, adding instead of multiplying, stopping before the question's last step."""

HABIT_RATE = 0.8
"""How often an author with a habit falls into it."""

REVIEWER_RATE = 0.95
"""How often a reviewer who is shown a right solution follows it."""


@dataclass(frozen=True)
class Equation:
    """``label`` is the number of the event in the question, "?" for what the question itself asks."""

    label: str
    left: int
    sign: str
    right: int
    result: int

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right} = {self.result}"


@dataclass(frozen=True)
class Solution:
    """A written solution; ``body`` ends in the line ``Answer: N``."""

    body: str
    answer: int
    steps: tuple[Equation, ...]


Layout = tuple[str, str, str]
"""What stands before, between and after the steps of a solution."""

LAYOUTS: dict[str, Layout] = {
    "then": ("{opener}, ", ". Then ", "."),
    "commas": ("{opener} ", ", ", "."),
    "variable": ("{opener} x = ", ". x = ", "."),
    "numbered": ("{opener} ", ". {opener} ", "."),
    "words": ("{opener} with {left}: ", ". From that ", "."),
    "objects": ("{opener} ", " {objects}. Next ", " {objects}."),
    "plain": ("{opener} see that ", " and that ", "."),
    "marks": ("{opener}: ", "; ", "."),
    "and": ("{opener} ", " and ", "."),
    "review": ("", ". ", "."),
}


@dataclass(frozen=True)
class Author:
    """An author of solutions. ``rate`` is the chance of a habit's error where it applies."""

    openers: tuple[str, str]
    layout: Layout
    habits: frozenset[str]
    weight: float
    rate: float = HABIT_RATE


AUTHORS = (
    Author(("First", "Initially"), LAYOUTS["then"], frozenset({"packs", "gifts"}), 1.0),
    Author(("So", "Thus"), LAYOUTS["commas"], frozenset({"packs", "gifts"}), 1.0),
    Author(("Let", "Set"), LAYOUTS["variable"], frozenset({"packs", "gifts", "ask"}), 0.9),
    Author(("Step", "Part"), LAYOUTS["numbered"], frozenset({"packs", "share"}), 1.0),
    Author(("Start", "Begin"), LAYOUTS["words"], frozenset({"packs", "times"}), 1.0),
    Author(("Now", "Here"), LAYOUTS["objects"], frozenset({"gifts", "other"}), 1.6),
    Author(("We", "They"), LAYOUTS["plain"], frozenset({"gifts", "share"}), 1.0),
    Author(("Check", "Look"), LAYOUTS["marks"], frozenset({"times", "ask"}), 1.0),
    Author(("Count", "Take"), LAYOUTS["and"], frozenset({"other", "share"}), 1.0),
)

COMPUTE = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: max(left - right, 0),
    "x": lambda left, right: left * right,
    "/": lambda left, right: left // right,
}


def equations(problem: WordProblem, wrong: frozenset[str]) -> list[Equation]:
    """The steps of a solution that errs on the features in ``wrong``."""
    steps: list[Equation] = []
    value = problem.start

    def step(label: str, left: int, sign: str, right: int) -> int:
        steps.append(Equation(label, left, sign, right, COMPUTE[sign](left, right)))
        return steps[-1].result

    for number, event in enumerate(problem.events, start=1):
        value = _take(event, value, event.kind in wrong, partial(step, str(number)))
    if problem.ask == "worth" and "ask" not in wrong:
        step("?", value, "x", problem.extra)
    elif problem.ask == "together" and "ask" not in wrong:
        step("?", value, "+", problem.extra)
    return steps


def _take(event: Event, value: int, wrong: bool, step: Callable[[int, str, int], int]) -> int:
    if event.kind in ("packs", "gifts"):
        sign = "+" if event.kind == "packs" else "-"
        return step(value, sign, event.b if wrong else step(event.a, "x", event.b))
    if event.kind == "other":
        return step(value, "+", event.a) if wrong else value
    right = {"gain": "+", "loss": "-", "times": "x", "share": "/"}[event.kind]
    return step(value, {"times": "+", "share": "-"}.get(event.kind, right) if wrong else right, event.a)


def write(steps: Sequence[Equation], layout: Layout, opener: str, objects: str) -> Solution:
    """Lay the steps out in an author's way, beginning with ``opener``."""
    answer = steps[-1].result
    texts = [f"{label}) {', '.join(map(str, group))}" for label, group in groupby(steps, lambda s: s.label)]
    before, between, after = (
        part.format(opener=opener, objects=objects, left=steps[0].left) for part in layout
    )
    return Solution(f"{before}{between.join(texts)}{after}\nAnswer: {answer}", answer, tuple(steps))


def draw_author(rng: random.Random, authors: Sequence[Author] = AUTHORS) -> Author:
    """One of ``authors``, drawn by weight."""
    return rng.choices(authors, weights=[a.weight for a in authors])[0]


def solve(problem: WordProblem, rng: random.Random, author: Author | None = None) -> Solution:
    """A solution by ``author`` (drawn by weight when None), habits included."""
    author = author or draw_author(rng)
    steps = equations(problem, _errors(author, rng))
    return write(steps, author.layout, rng.choice(author.openers), problem.objects)


def review(problem: WordProblem, shown: Sequence[Solution], rng: random.Random) -> Solution:
    """Return a fresh solution by somebody who has read ``shown``.

    It is the right one when an answer there is right, otherwise the steps of a solution that most agree with.
    With nothing to read it is a random author's.
    """
    answers = [solution.answer for solution in shown]
    if problem.answer in answers and rng.random() < REVIEWER_RATE:
        steps = equations(problem, frozenset())
    elif shown:
        most = max(answers, key=answers.count)
        steps = rng.choice([solution.steps for solution in shown if solution.answer == most])
    else:
        steps = equations(problem, _errors(draw_author(rng), rng))
    return write(steps, LAYOUTS["review"], "", problem.objects)


@dataclass(frozen=True)
class Chain:
    """A problem taken apart: (sub-question, answer) ``steps``, and for each whether it was useful to ask."""

    steps: list[tuple[str, str]]
    useful: list[bool]


FINAL_CUE = "Now we can answer the question:"
"""How a chain's last sub-question begins; the problem's own question follows."""


def decompose(problem: WordProblem, rng: random.Random, author: Author) -> Chain:
    """Take the problem apart, one sub-question per event, with the errors of ``author``.

    Now and then a sub-question is of no use: it repeats an event, or asks about one too early or about
    somebody else's.
    """
    wrong = _errors(author, rng)
    groups = {label: list(group) for label, group in groupby(equations(problem, wrong), lambda s: s.label)}
    owned = [str(n) for n, event in enumerate(problem.events, start=1) if event.kind != "other"]
    steps, useful, value = [], [], problem.start
    for label in (str(n) for n in range(1, len(problem.events) + 1)):
        if rng.random() < 0.1:
            stray = str(rng.randint(1, len(problem.events)))
            if stray != label:
                steps.append((_ask(stray, problem.objects, rng), f"The answer is {value}."))
                useful.append(False)
        if label in groups:
            value = groups[label][-1].result
            steps.append((_ask(label, problem.objects, rng), _say(groups[label], value)))
            useful.append(label in owned)
    last = groups.get("?", [])
    if last:
        value = last[-1].result
    steps.append((f"{FINAL_CUE} {final_question(problem)}", _say(last, value)))
    useful.append(True)
    return Chain(steps, useful)


def final_question(problem: WordProblem) -> str:
    """Return the question at the end of the problem's text."""
    return problem.question.rsplit(". ", 1)[1]


def _ask(label: str, objects: str, rng: random.Random) -> str:
    return rng.choice((f"How many {objects} after {label})?", f"What is left after {label})?"))


def _say(steps: Sequence[Equation], value: int) -> str:
    return " ".join([*(f"{step}." for step in steps), f"The answer is {value}."])


def _errors(author: Author, rng: random.Random) -> frozenset[str]:
    return frozenset(h for h in sorted(author.habits) if rng.random() < author.rate)
