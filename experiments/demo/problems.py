"""Procedurally generated word problems: one owner, a few events, one question.

A problem depends only on a ``random.Random``, so a seed defines a data set. Splits use different seeds,
and :func:`make_split` excludes the questions of earlier splits.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import cycle

NAMES = (
    *("Ada", "Ben", "Carla", "Dan", "Eva", "Finn", "Gita", "Hugo", "Ines", "Jon"),
    *("Kira", "Leo", "Mia", "Nils", "Olga", "Paul", "Rosa", "Sam", "Tara", "Vera"),
)
OBJECTS = ("apples", "books", "cards", "coins", "eggs", "marbles", "pens", "shells", "stamps", "stones")

LARGEST = 99
"""No correct intermediate value exceeds this."""

TRAPS = ("packs", "gifts", "other", "ask", "share", "times")
"""Features that make a problem hard: several packs or gifts, another person's objects, a last step in the
question, sharing, multiplying."""

LEVELS = {
    "easy": (2, (0, 1)),
    "medium": (3, (1, 1)),
    "hard": (3, (2, 2)),
    "expert": (4, (3, 3)),
    "extreme": (5, (4, 5)),
}
"""Difficulty: the number of events that concern the owner, and the fewest and most different traps."""

SIZES = {
    "gain": ((2, 15),),
    "loss": ((2, 15),),
    "packs": ((2, 4), (2, 6)),
    "gifts": ((2, 4), (2, 5)),
    "times": ((2, 3),),
    "share": ((2, 4),),
    "other": ((2, 15),),
}
"""Smallest and largest ``a`` and ``b`` of each kind of event."""

SPLIT_SEEDS = {"train": 1, "validation": 2, "test": 3}


@dataclass(frozen=True)
class Event:
    """A change of the owner's stock: ``kind`` with numbers ``a`` and, for packs and gifts, ``b``.

    gain +a, loss -a, packs +a*b, gifts -a*b, times *a, share /a; ``other`` concerns another person.
    """

    kind: str
    a: int
    b: int = 0


@dataclass(frozen=True)
class WordProblem:
    """A word problem with its ``events`` in order.

    ``ask`` is "now", "worth" (of ``extra`` each) or "together" (with another person's ``extra``).
    """

    question: str
    answer: int
    start: int
    events: tuple[Event, ...]
    ask: str
    extra: int
    objects: str
    difficulty: str


def apply(event: Event, value: int) -> int:
    """The owner's stock after ``event``."""
    a, b = event.a, event.b
    return {
        "gain": value + a,
        "loss": value - a,
        "packs": value + a * b,
        "gifts": value - a * b,
        "times": value * a,
        "share": value // a,
        "other": value,
    }[event.kind]


def _draw_event(rng: random.Random, kind: str, value: int) -> Event | None:
    """An event of ``kind`` that keeps the stock a whole number in 1..LARGEST; None after 20 failed tries."""
    for _ in range(20):
        event = Event(kind, *(rng.randint(*limits) for limits in SIZES[kind]))
        if kind == "share" and value % event.a:
            continue
        if 1 <= apply(event, value) <= LARGEST:
            return event
    return None


def _sentence(rng: random.Random, event: Event, owner: str, third: str, objects: str) -> str:
    a, b = event.a, event.b
    if event.kind == "times" and a == 2:
        return rng.choice((f"Then the number of {objects} doubles.", f"Then {owner} doubles the {objects}."))
    if event.kind == "times":
        return rng.choice((f"Then the number of {objects} triples.", f"Then {owner} triples the {objects}."))
    return rng.choice(
        {
            "gain": (
                f"{owner} finds {a} more.",
                f"A friend gives {owner} {a} {objects}.",
                f"{owner} gets {a}.",
            ),
            "loss": (f"{owner} loses {a}.", f"{owner} sells {a} {objects}.", f"A dog takes {a} {objects}."),
            "packs": (
                f"{owner} buys {a} packs of {b} {objects}.",
                f"{a} boxes with {b} {objects} each arrive.",
            ),
            "gifts": (f"{owner} gives {b} to each of {a} friends.", f"{a} friends get {b} {objects} each."),
            "share": (
                f"{owner} splits the {objects} into {a} equal parts and keeps one part.",
                f"{owner} shares all with others, {a} people in total, in equal parts.",
            ),
            "other": (f"{third} also finds {a} {objects}.", f"{third} buys {a} {objects}."),
        }[event.kind]
    )


def draw(rng: random.Random, difficulty: str) -> WordProblem:
    """A problem of the given difficulty (a key of LEVELS)."""
    while True:
        problem = _try(rng, difficulty)
        if problem is not None:
            return problem


def _draw_traps(rng: random.Random, count: int) -> set[str]:
    """``count`` different kinds of TRAPS."""
    traps: set[str] = set()
    while len(traps) < count:
        traps.add(rng.choices(TRAPS)[0])
    return traps


def _try(rng: random.Random, difficulty: str) -> WordProblem | None:
    """Draw a problem; None if its numbers leave 1..LARGEST."""
    count, limits = LEVELS[difficulty]
    traps = _draw_traps(rng, rng.randint(*limits))
    kinds = sorted(traps - {"other", "ask"})
    kinds += rng.choices(("gain", "loss"), k=count - len(kinds))
    rng.shuffle(kinds)
    if "other" in traps:
        kinds.insert(rng.randint(0, len(kinds)), "other")
    owner, second, third = rng.sample(NAMES, 3)
    objects = rng.choice(OBJECTS)
    start = value = rng.randint(8, 30)
    events = []
    for kind in kinds:
        event = _draw_event(rng, kind, value)
        if event is None:
            return None
        events.append(event)
        value = apply(event, value)
    ask = rng.choice(("worth", "together")) if "ask" in traps else "now"
    extra = rng.randint(2, 4) if ask == "worth" else rng.randint(5, 20)
    if ask == "worth" and value * extra > LARGEST or ask == "together" and value + extra > LARGEST:
        return None
    return put_into_words(rng, (owner, second, third), objects, start, events, ask, extra, difficulty)


def put_into_words(
    rng: random.Random,
    people: tuple[str, str, str],
    objects: str,
    start: int,
    events: Sequence[Event],
    ask: str,
    extra: int,
    difficulty: str,
) -> WordProblem:
    """Put a problem into words. ``people``: the owner, the person whose objects ``ask`` adds, a third."""
    owner, second, third = people
    value = start
    for event in events:
        value = apply(event, value)
    sentences = " ".join(
        f"{i}) {_sentence(rng, event, owner, third, objects)}" for i, event in enumerate(events, start=1)
    )
    question = f"{owner} has {start} {objects}. {sentences} "
    if ask == "now":
        question += f"How many {objects} does {owner} have now?"
        answer = value
    elif ask == "worth":
        question += f"Each one costs {extra} dollars. How many dollars do the {objects} of {owner} cost?"
        answer = value * extra
    else:
        question += (
            f"{second} has {extra} {objects}. How many {objects} do {owner} and {second} have together?"
        )
        answer = value + extra
    return WordProblem(question, answer, start, tuple(events), ask, extra, objects, difficulty)


def make_split(split: str, count: int, *, exclude: Collection[str] = ()) -> list[WordProblem]:
    """``count`` problems of a split, with alternating levels, distinct questions and none in ``exclude``."""
    rng = random.Random(SPLIT_SEEDS[split])
    turns = cycle(LEVELS)
    level = next(turns)
    seen = set(exclude)
    problems: list[WordProblem] = []
    while len(problems) < count:
        problem = draw(rng, level)
        if problem.question not in seen:
            seen.add(problem.question)
            problems.append(problem)
            level = next(turns)
    return problems
