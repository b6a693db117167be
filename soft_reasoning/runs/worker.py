"""One engine in its own process, and the problems it works on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from soft_reasoning.configuration.build import check_lengths, check_unseen
from soft_reasoning.runs.local import LocalLauncher
from soft_reasoning.scheduler import Clock
from soft_reasoning.types import Problem, Result


@dataclass(frozen=True)
class Finished:
    """A problem's result, with the worker's clock and peaks of memory at that time.

    ``used`` are the worker's memory samples since its last result (``Solver.memory_samples``).
    """

    doc_id: str
    result: Result
    clock: Clock
    peaks: Mapping[str, int]
    used: Mapping[str, Sequence[int]]


class Worker:
    """Solves the problems it receives, up to ``max_live`` together, for one run after another."""

    def __init__(self) -> None:
        self._launcher = LocalLauncher()

    def begin(self, config: Mapping[str, Any], exemplars: Sequence[Any]) -> dict[str, Any]:
        """Prepare a run of ``config`` (plain data) and return what the manifest says of the engine."""
        self._local = self._launcher.start(OmegaConf.create(dict(config)), (), exemplars)
        self._inbox = _Inbox()
        self._clock = Clock()
        self._steps: Iterator[tuple[Problem, Result]] = iter(())
        return dict(self._local.about)

    def check(self, problems: Sequence[Problem]) -> bool:
        """Return True.

        Raises:
            UserError: If a prompt is too long, or the method's ``search.prior`` was made on a problem.
        """
        check_lengths(list(problems), self._local.context)
        check_unseen(problems, self._local.method)
        return True

    def work(self, problems: Sequence[Problem]) -> Finished | None:
        """Add ``problems`` and work until one problem is finished; None if none was left.

        They join the batches of those in progress. Raises as ``scheduler.drive`` does.
        """
        self._inbox.waiting.extend(problems)
        done = next(self._steps, None)
        if done is None:
            self._steps = self._local.solve(self._inbox, clock=self._clock)
            done = next(self._steps, None)
        if done is None:
            return None
        problem, result = done
        peaks, used = self._local.peaks(), self._local.memory_samples()
        return Finished(problem.id, result, self._clock, peaks, used)


class _Inbox:
    """Problems not yet started; unlike most iterators it can continue after its end, when more were added."""

    def __init__(self) -> None:
        self.waiting: deque[Problem] = deque()

    def __iter__(self) -> Iterator[Problem]:
        return self

    def __next__(self) -> Problem:
        if not self.waiting:
            raise StopIteration
        return self.waiting.popleft()
