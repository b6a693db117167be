"""The authors of the next bundled model's training text.

The popular authors share two habits, so on many problems most of them agree on a wrong answer. Six rare
authors have neither of the two, but other blind spots. So who is right differs from problem to problem.
"""

from __future__ import annotations

from soft_reasoning.demo import solutions
from soft_reasoning.demo.solutions import Author

HABIT_RATE = 0.84

LAYOUTS = solutions.LAYOUTS | {
    "given": ("{opener} ", " we get ", "."),
    "track": ("{opener} the {objects}: ", " then ", "."),
    "well": ("{opener}, ", ", after that ", "."),
    "note": ("{opener} down ", ". Next ", "."),
}

_COMMON = frozenset({"packs", "gifts"})
"""What nearly all popular authors get wrong."""

AUTHORS = (
    Author(("First", "Initially"), LAYOUTS["then"], _COMMON, 26, HABIT_RATE),
    Author(("So", "Thus"), LAYOUTS["commas"], _COMMON | {"other"}, 13, HABIT_RATE),
    Author(("Let", "Set"), LAYOUTS["variable"], _COMMON | {"ask"}, 13, HABIT_RATE),
    Author(("Step", "Part"), LAYOUTS["numbered"], _COMMON | {"share"}, 10, HABIT_RATE),
    Author(("Start", "Begin"), LAYOUTS["words"], _COMMON | {"times"}, 10, HABIT_RATE),
    Author(("Now", "Here"), LAYOUTS["objects"], frozenset({"packs", "other"}), 5, HABIT_RATE),
    Author(("We", "They"), LAYOUTS["plain"], frozenset({"gifts", "ask"}), 5, HABIT_RATE),
    Author(("Check", "Look"), LAYOUTS["marks"], frozenset({"other", "share"}), 3.5, HABIT_RATE),
    Author(("Count", "Take"), LAYOUTS["and"], frozenset({"other", "times"}), 3.5, HABIT_RATE),
    Author(("Given", "Since"), LAYOUTS["given"], frozenset({"ask", "share"}), 3.5, HABIT_RATE),
    Author(("Track", "Follow"), LAYOUTS["track"], frozenset({"ask", "times"}), 3.5, HABIT_RATE),
    Author(("Well", "Okay"), LAYOUTS["well"], frozenset({"share", "times"}), 3.5, HABIT_RATE),
    Author(("Write", "Note"), LAYOUTS["note"], frozenset({"other", "ask"}), 3.5, HABIT_RATE),
)
