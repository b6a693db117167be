"""Problems of the next bundled model, in five levels by the number of traps."""

from __future__ import annotations

import random

from soft_reasoning.demo.problems import LARGEST, NAMES, OBJECTS, Event, WordProblem, apply, tell

TRAPS = {"packs": 2, "gifts": 2, "other": 2, "ask": 2, "share": 2, "times": 2}
"""What makes a problem hard, and how often it is drawn: several packs or gifts, somebody else's objects, a
last step that the question asks for, sharing, multiplying."""

LEVELS = {
    "easy": (2, (0, 1)),
    "medium": (3, (1, 1)),
    "hard": (3, (2, 2)),
    "expert": (4, (3, 3)),
    "extreme": (5, (4, 5)),
}
"""Difficulty: how many events concern the owner, and the fewest and most traps of different kinds."""

SIZES = {
    "gain": ((2, 15),), "loss": ((2, 15),), "packs": ((2, 4), (2, 6)), "gifts": ((2, 4), (2, 5)),
    "times": ((2, 3),), "share": ((2, 4),), "other": ((2, 15),),
}  # fmt: skip
"""Smallest and largest ``a`` and ``b`` of each kind of event."""


def _draw_event(rng: random.Random, kind: str, value: int) -> Event | None:
    """An event of ``kind`` that keeps the stock a whole number in 1..LARGEST; None where no try gave one."""
    for _ in range(20):
        event = Event(kind, *(rng.randint(*limits) for limits in SIZES[kind]))
        if kind == "share" and value % event.a:
            continue
        if 1 <= apply(event, value) <= LARGEST:
            return event
    return None


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
        traps.add(rng.choices(list(TRAPS), weights=list(TRAPS.values()))[0])
    return traps


def _try(rng: random.Random, difficulty: str) -> WordProblem | None:
    """None where the numbers drawn leave 1..LARGEST."""
    count, limits = LEVELS[difficulty]
    traps = _draw_traps(rng, rng.randint(*limits))
    kinds = sorted(traps - {"other", "ask"})
    kinds += rng.choices(("gain", "loss"), k=count - len(kinds))
    rng.shuffle(kinds)
    if "other" in traps:
        kinds.insert(rng.randint(0, len(kinds)), "other")
    people = tuple(rng.sample(NAMES, 3))
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
    return tell(rng, people, objects, start, events, ask, extra, difficulty)
