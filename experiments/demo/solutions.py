"""The authors of the demo model's training text: their style and their mistakes.

A language model learns from many authors, good and bad, and an opening word reveals which author is writing.
This is a small and simple version. Thirteen authors write worked solutions; each has two opening words, a
style, and *habits*: features of a problem that this author usually gets wrong. The popular authors share two
habits, so on many problems most of them agree on a wrong answer. Six rare authors have other habits instead.
So different authors are right on different problems.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from experiments.demo.problems import SPLIT_SEEDS, Event, WordProblem, make_split

HABITS = ("packs", "gifts", "other", "share", "times", "ask")
"""Possible mistakes: counting only one pack or one gift, counting another person's objects, subtracting
instead of sharing, adding instead of multiplying, stopping before the question's last step."""

HABIT_RATE = 0.84
"""The probability that an author with a habit makes its mistake."""


@dataclass(frozen=True)
class Equation:
    """A step; ``label`` is the number of its event in the question, "?" for the question's last step."""

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
"""The texts before, between and after the steps of a solution."""

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
    "given": ("{opener} ", " we get ", "."),
    "track": ("{opener} the {objects}: ", " then ", "."),
    "well": ("{opener}, ", ", after that ", "."),
    "note": ("{opener} down ", ". Next ", "."),
}


@dataclass(frozen=True)
class Author:
    """An author of solutions, who is drawn with a ``weight``."""

    openers: tuple[str, str]
    layout: Layout
    habits: frozenset[str]
    weight: float


_COMMON = frozenset({"packs", "gifts"})
"""Habits of nearly all popular authors."""

AUTHORS = [
    Author(("First", "Initially"), LAYOUTS["then"], _COMMON, 26),
    Author(("So", "Thus"), LAYOUTS["commas"], _COMMON | {"other"}, 13),
    Author(("Let", "Set"), LAYOUTS["variable"], _COMMON | {"ask"}, 13),
    Author(("Step", "Part"), LAYOUTS["numbered"], _COMMON | {"share"}, 10),
    Author(("Start", "Begin"), LAYOUTS["words"], _COMMON | {"times"}, 10),
    Author(("Now", "Here"), LAYOUTS["objects"], frozenset({"packs", "other"}), 5),
    Author(("We", "They"), LAYOUTS["plain"], frozenset({"gifts", "ask"}), 5),
    Author(("Check", "Look"), LAYOUTS["marks"], frozenset({"other", "share"}), 3.5),
    Author(("Count", "Take"), LAYOUTS["and"], frozenset({"other", "times"}), 3.5),
    Author(("Given", "Since"), LAYOUTS["given"], frozenset({"ask", "share"}), 3.5),
    Author(("Track", "Follow"), LAYOUTS["track"], frozenset({"ask", "times"}), 3.5),
    Author(("Well", "Okay"), LAYOUTS["well"], frozenset({"share", "times"}), 3.5),
    Author(("Write", "Note"), LAYOUTS["note"], frozenset({"other", "ask"}), 3.5),
]

OTHER_OPENERS = (
    ("Work", "Solve"),
    ("Try", "Go"),
    ("Say", "Put"),
    ("Line", "Stage"),
    ("Open", "Enter"),
    ("This", "That"),
    ("You", "I"),
    ("Test", "See"),
    ("Add", "Sum"),
    ("Known", "Told"),
    ("Trace", "Watch"),
    ("Right", "Fine"),
    ("Jot", "Mark"),
)
"""Opening words of the second model, which was not used to choose settings."""


def rename_authors(openers: Sequence[tuple[str, str]] = OTHER_OPENERS) -> None:
    """Give the authors, in this process, other opening words."""
    AUTHORS[:] = [replace(a, openers=words) for a, words in zip(AUTHORS, openers, strict=True)]


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
    """Write the steps in an author's style, beginning with ``opener``."""
    answer = steps[-1].result
    texts = [f"{label}) {', '.join(map(str, group))}" for label, group in groupby(steps, lambda s: s.label)]
    before, between, after = (
        part.format(opener=opener, objects=objects, left=steps[0].left) for part in layout
    )
    return Solution(f"{before}{between.join(texts)}{after}\nAnswer: {answer}", answer, tuple(steps))


def draw_author(rng: random.Random, authors: Sequence[Author] = AUTHORS) -> Author:
    """Draw one of ``authors`` by weight."""
    return rng.choices(authors, weights=[a.weight for a in authors])[0]


def solve(problem: WordProblem, rng: random.Random, author: Author | None = None) -> Solution:
    """A solution by ``author`` (drawn by weight if None), with the author's habits."""
    author = author or draw_author(rng)
    steps = equations(problem, _errors(author, rng))
    return write(steps, author.layout, rng.choice(author.openers), problem.objects)


@dataclass(frozen=True)
class Chain:
    """A problem in (sub-question, answer) ``steps``, and for each step whether it was useful."""

    steps: list[tuple[str, str]]
    useful: list[bool]


FINAL_CUE = "Now we can answer the question:"
"""The start of a chain's last sub-question; the problem's question follows."""


def decompose(problem: WordProblem, rng: random.Random, author: Author) -> Chain:
    """Split the problem into a sub-question per event, with the errors of ``author``.

    Sometimes a sub-question is useless: it repeats an event, or asks about an event too early or about
    another person's.
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
    return frozenset(h for h in sorted(author.habits) if rng.random() < HABIT_RATE)


def training_rows(count: int, exclude: Collection[str]) -> list[dict[str, str]]:
    """Rows of the train split without the questions in ``exclude``.

    Each has a correct solution in the style of one of the authors, drawn by weight.
    """
    rng = random.Random(SPLIT_SEEDS["train"])
    rows = []
    for problem in make_split("train", count, exclude=exclude):
        author = rng.choices(AUTHORS, [a.weight for a in AUTHORS])[0]
        solution = write(
            equations(problem, frozenset()), author.layout, rng.choice(author.openers), problem.objects
        )
        thought = solution.body.rpartition("\n")[0]
        rows.append({"question": problem.question, "thought": thought, "answer": str(solution.answer)})
    return rows
