"""The training text of the bundled model: solutions, reviews, chains of sub-questions, and drills."""

from __future__ import annotations

import random
import re
from dataclasses import replace

from experiments.demo.problems import LEVELS, draw
from experiments.demo.prompts import flatten, review_prompt, solve_prompt, steps_prompt
from experiments.demo.reviews import Span, annotate, draw_shown, review
from experiments.demo.solutions import (
    AUTHORS,
    COMPUTE,
    Solution,
    decompose,
    draw_author,
    equations,
    solve,
    write,
)

OPENER = re.compile(r"^[A-Za-z]+ ?")
SOLUTIONS_LINE = "\nSolutions:\n"


def drill(rng: random.Random) -> str:
    """A line of correct equations, to practise arithmetic."""
    lines = []
    for _ in range(8):
        sign = rng.choice("+++---xx/")
        if sign in "+-":
            a, b = rng.randint(1, 99), rng.randint(1, 24)
            a, b = (a, b) if sign == "+" else (max(a, b), min(a, b))
        else:
            largest, second = rng.choice(((4, (2, 6)), (33, (2, 3)), (24, (4, 4))))
            a, b = rng.randint(2 if largest == 4 else 1, largest), rng.randint(*second)
            a = a * b if sign == "/" else a
        lines.append(f"{a} {sign} {b} = {COMPUTE[sign](a, b)}.")
    return " ".join(lines)


def example(rng: random.Random, forbidden: set[str], progress: float) -> list[Span]:
    """A text of the training mix, in pieces with a weight each: first more arithmetic and copying, easier
    problems and fewer solutions to review; then the full mix."""
    early = progress < 0.4
    if rng.random() < (0.12 if early else 0.06):
        return [("", "prompt"), (drill(rng), "own")]
    levels = list(LEVELS)[: 3 if progress < 0.1 else 5]
    problem = draw(rng, rng.choice(levels))
    while problem.question in forbidden:
        problem = draw(rng, rng.choice(levels))
    kind = rng.random()
    if rng.random() < (0.12 if early else 0.06):
        return lookup(problem, rng)
    if kind < 0.38:
        return [
            (solve_prompt(problem.question), "prompt"),
            (solve(problem, rng).body + "\n", "own"),
        ]
    if kind < 0.44:
        return chain(problem, rng)
    if kind < 0.48:
        return unfinished(problem, rng)
    if progress < 0.15:
        counts = (0, 1, 1, 1, 1, 1)
    else:
        counts = (0, 1, 1, 1, 2, 3, 5) if early else (0, 1, 1, 2, 3, 5, 5, 5)
    count = 10 if not early and rng.random() < 0.03 else rng.choice(counts)
    return review_solutions(problem, rng, 1 if kind > 0.93 else count, kind > 0.85)


def lookup(problem, rng: random.Random) -> list[Span]:
    """Wrong solutions, and questions for their answers by number, which only reading them can answer."""
    shown = []
    for _ in range(rng.choice((1, 2, 3, 5))):
        author = rng.choice(AUTHORS)
        steps = [replace(s, result=rng.randint(0, 99)) for s in solve(problem, rng, author).steps]
        shown.append(OPENER.sub("", write(steps, author.layout, author.openers[0], problem.objects).body))
    answers = [(f"{i}.", text.rsplit(" ", 1)[1]) for i, text in enumerate(shown, start=1)]
    spans = [(review_prompt("", shown, "Answers:\n").split("\n", 2)[2], "prompt")]
    for number, answer in rng.choices(answers, k=10):
        spans += [(number, "prompt"), (f" {answer}", "copy"), ("\n", "prompt")]
    return spans


def review_solutions(problem, rng: random.Random, count: int, judge: bool) -> list[Span]:
    """A review of ``count`` solutions, mostly without their opening word, like candidates whose first token
    is a soft token, and sometimes without any step."""
    shown = draw_shown(problem, rng, count)
    if rng.random() < 0.02:
        shown = [Solution(f"Answer: {s.answer}", s.answer, ()) for s in shown]
    bare = rng.random() < 0.8
    texts = [OPENER.sub("", s.body) if bare and s.steps else s.body for s in shown]
    prompt = review_prompt(problem.question, texts, "")
    cut = prompt.index(SOLUTIONS_LINE) + len(SOLUTIONS_LINE)
    spans: list[Span] = [(prompt[:cut], "prompt")]
    for number, (solution, text) in enumerate(zip(shown, texts, strict=True), start=1):
        spans += [
            (f"{number}.", "number"),
            *annotate(problem, solution, f" {flatten(text)}"),
            ("\n", "shown"),
        ]
    task = "Judge:\n" if judge else "Analysis:\n"
    return [*spans, (task if shown else f"\n{task}", "prompt"), *review(problem, shown, rng, judge=judge)]


def chain(problem, rng: random.Random) -> list[Span]:
    """The problem in sub-questions; every third time up to a sub-question, and whether that is useful."""
    decomposed = decompose(problem, rng, draw_author(rng))
    start = steps_prompt(problem.question, [])
    if rng.random() < 0.67:
        return [(start, "prompt"), (steps_prompt(problem.question, decomposed.steps)[len(start) :], "own")]
    last = rng.randrange(len(decomposed.steps))
    useless = [i for i, useful in enumerate(decomposed.useful) if not useful]
    if useless and rng.random() < 0.7:
        last = rng.choice(useless)
    before = steps_prompt(problem.question, decomposed.steps[:last])
    prompt = f"{before}Q: {decomposed.steps[last][0]}\nUseful:"
    return [(prompt, "prompt"), (" Yes" if decomposed.useful[last] else " No", "mark"), ("\n", "own")]


def unfinished(problem, rng: random.Random) -> list[Span]:
    """The start of a solution, and whether it is right so far."""
    author = rng.choice(AUTHORS)
    wrong = frozenset(h for h in sorted(author.habits) if rng.random() < 0.5)
    right, steps = equations(problem, frozenset()), equations(problem, wrong)
    count = rng.randint(1, len(steps))
    body = write(steps[:count], author.layout, rng.choice(author.openers), problem.objects).body
    shown = body.split("\n")[0]
    if rng.random() < 0.5:
        shown = shown.split(" ", 1)[1]
    good = steps[:count] == right[:count]
    prompt = review_prompt(problem.question, [shown], "Right so far:")
    return [(prompt, "prompt"), (" Yes" if good else " No", "mark"), ("\n", "own")]
