"""A work queue: problems are assigned to workers in shares, and return to it when a worker dies."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable

from soft_reasoning.types import Problem


class WorkQueue:
    """The unfinished problems of a run, waiting or assigned to one of ``workers`` workers.

    A worker has at most ``room`` problems. It is assigned at most its part of half of the waiting ones
    (guided self-scheduling, Polychronopoulos and Kuck 1987). So the first shares are large, the last
    problems are assigned one by one, and a slow worker has few of them.
    """

    def __init__(self, problems: Iterable[Problem], *, workers: int, room: int) -> None:
        self._waiting = deque(problems)
        self._assigned: dict[Hashable, dict[str, Problem]] = {}
        self._workers, self._room = workers, room

    @property
    def unfinished(self) -> int:
        """Number of problems that are not finished."""
        return len(self._waiting) + sum(map(len, self._assigned.values()))

    def assigned(self, worker: Hashable) -> int:
        """Number of problems that ``worker`` has."""
        return len(self._assigned.get(worker, ()))

    def assign(self, worker: Hashable) -> list[Problem]:
        """Assign further problems to ``worker`` and return them."""
        share = -(-len(self._waiting) // (2 * self._workers))
        count = max(0, min(self._room - self.assigned(worker), share))
        given = [self._waiting.popleft() for _ in range(count)]
        self._assigned.setdefault(worker, {}).update((problem.id, problem) for problem in given)
        return given

    def finish(self, worker: Hashable, name: str) -> Problem:
        """Remove the finished problem ``name`` and return it."""
        return self._assigned[worker].pop(name)

    def requeue(self, worker: Hashable) -> int:
        """Return the problems of a dead worker to the end of the queue; say how many they are."""
        lost = self._assigned.pop(worker, {})
        self._waiting.extend(lost.values())
        return len(lost)
