"""Who has which problem: handed out in shares, taken back from workers that died."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable

from soft_reasoning.types import Problem


class Desk:
    """The problems of a run that are not finished, waiting or held by one of ``workers`` workers.

    A worker holds at most ``room`` problems, and is given at most its part of half of what waits (guided
    self-scheduling, Polychronopoulos and Kuck 1987). So the first shares are large, the last problems go
    out one by one, and a slow worker holds few of them.
    """

    def __init__(self, problems: Iterable[Problem], *, workers: int, room: int) -> None:
        self._waiting = deque(problems)
        self._held: dict[Hashable, dict[str, Problem]] = {}
        self._workers, self._room = workers, room

    @property
    def left(self) -> int:
        """How many problems are not finished."""
        return len(self._waiting) + sum(map(len, self._held.values()))

    def holds(self, worker: Hashable) -> int:
        return len(self._held.get(worker, ()))

    def hand_out(self, worker: Hashable) -> list[Problem]:
        """The problems that ``worker`` takes on now, besides those it has."""
        share = -(-len(self._waiting) // (2 * self._workers))
        count = max(0, min(self._room - self.holds(worker), share))
        given = [self._waiting.popleft() for _ in range(count)]
        self._held.setdefault(worker, {}).update((problem.id, problem) for problem in given)
        return given

    def finished(self, worker: Hashable, name: str) -> Problem:
        """Take the problem called ``name`` off the desk."""
        return self._held[worker].pop(name)

    def lost(self, worker: Hashable) -> int:
        """``worker`` is gone; what it held waits again, behind all others. Returns how many these are."""
        back = self._held.pop(worker, {})
        self._waiting.extend(back.values())
        return len(back)
