"""The queue that every engine has: tickets, threads, and ``generate`` as a loop over ``step``."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from threading import RLock

from torch import Tensor

from soft_reasoning.engines.abilities import check_reads
from soft_reasoning.engines.base import Outcome, PreparedRequest, prepare
from soft_reasoning.engines.embedding_table import EmbeddingTable
from soft_reasoning.types import Completion, Request


class QueueEngine:
    """Makes ``add``, ``step``, ``cancel`` and ``generate`` from what a subclass does with its requests.

    A subclass implements :meth:`advance`. ``queued`` holds the requests in work by ticket,
    in order of arrival. One that keeps more about a request extends :meth:`begin` and :meth:`drop`. All of
    them are called by one thread at a time.
    """

    hidden_size: int
    context_length: int
    _table: EmbeddingTable

    def __init__(self) -> None:
        self.lock: RLock = RLock()
        self.queued: dict[int, PreparedRequest] = {}
        self._tickets = itertools.count()
        self._outcomes: dict[int, Outcome] = {}  # complete, but not returned yet

    def embed(self, ids: Sequence[int]) -> Tensor:
        """(len(ids), D) float32 on the CPU, as the model's own lookup returns it (scale included)."""
        return self._table.embed(ids)

    def nearest_tokens(self, x: Tensor, count: int = 3) -> list[list[tuple[int, float]]]:
        """For each row of ``x`` (n, D) the ``count`` tokens of highest cosine similarity, best first."""
        return self._table.nearest(x, count)

    def check(self, request: Request) -> PreparedRequest:
        """Cut ``request`` at its soft tokens; raises as ``engines.base.prepare`` does."""
        return prepare(request, self.hidden_size, self.context_length, len(self._table))

    def begin(self, requests: dict[int, PreparedRequest]) -> None:
        """Take ``requests`` on, by ticket."""
        self.queued.update(requests)

    def advance(self) -> Iterable[tuple[int, Outcome]]:
        """Do a step's work; the tickets that it completes, which are forgotten, with their outcomes."""
        raise NotImplementedError

    def drop(self, tickets: Collection[int]) -> None:
        """Forget the requests of ``tickets``, so far as they are in work."""
        for ticket in tickets:
            self.queued.pop(ticket, None)

    def add(self, requests: Sequence[Request]) -> list[int]:
        """Queue ``requests``: a ticket for each. A bad request raises before any is queued."""
        for request in requests:
            check_reads(request, self)
        prepared = [self.check(request) for request in requests]
        with self.lock:
            tickets = [next(self._tickets) for _ in prepared]
            self.begin(dict(zip(tickets, prepared, strict=True)))
        return tickets

    def step(self, tickets: Collection[int] | None = None) -> list[tuple[int, Outcome]]:
        """Advance all requests by one token, and return those of ``tickets`` (None: all) that are complete.

        Works only if none of them is complete yet. What is complete is returned once.

        Raises:
            Exception: What the step raised. It also becomes the outcome of every request in work.
        """
        with self.lock:
            if not self._complete(tickets) and self.queued:
                self._work()
            return [(ticket, self._outcomes.pop(ticket)) for ticket in self._complete(tickets)]

    def cancel(self, tickets: Collection[int]) -> None:
        """Drop ``tickets``, so far as they were not returned."""
        with self.lock:
            self.drop(tickets)
            for ticket in tickets:
                self._outcomes.pop(ticket, None)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Complete ``requests``, in input order.

        Raises:
            Exception: A bad request's error, before any work is done, or the first one that ends a request.
        """
        tickets = self.add(requests)
        waiting, completions = set(tickets), dict[int, Completion]()
        try:
            while waiting:
                for ticket, outcome in self.step(waiting):
                    waiting.remove(ticket)
                    if isinstance(outcome, Exception):
                        raise outcome
                    completions[ticket] = outcome
        finally:
            self.cancel(waiting)
        return [completions[ticket] for ticket in tickets]

    def _complete(self, tickets: Collection[int] | None) -> list[int]:
        if tickets is None:
            return list(self._outcomes)
        return [ticket for ticket in self._outcomes if ticket in tickets]

    def _work(self) -> None:
        try:
            outcomes = dict(self.advance())
        except BaseException as error:
            # Other threads wait for these, and what the engine keeps of them may be half done.
            failure = error if isinstance(error, Exception) else RuntimeError(f"interrupted by {error!r}")
            lost = list(self.queued)
            self.drop(lost)
            self._outcomes.update(dict.fromkeys(lost, failure))
            raise
        for ticket in outcomes:
            del self.queued[ticket]
        self._outcomes.update(outcomes)
