"""``submit`` and ``collect`` for an engine that works on a batch until all of it is complete."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from soft_reasoning.types import Completion, Request


class BatchEngine:
    """Turns ``generate``, which a subclass has, into the queue that every engine offers.

    What one caller submits is one batch of its own: threads that share an engine do not wait for each other's
    requests, and get each other's errors as little.
    """

    def __init__(self) -> None:
        self._tickets = itertools.count()
        self._submitted: dict[int, Request] = {}

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Complete ``requests``, in input order."""
        raise NotImplementedError

    def check(self, request: Request) -> None:
        """Raises what ``generate`` would for this request."""

    def begin_run(self) -> None:
        """Forget what earlier runs left; nothing, unless a subclass keeps something."""

    def submit(self, requests: Sequence[Request]) -> list[int]:
        """Take ``requests`` on; errors as in ``generate``, before any is taken."""
        for request in requests:
            self.check(request)
        tickets = [next(self._tickets) for _ in requests]
        self._submitted.update(zip(tickets, requests, strict=True))
        return tickets

    def collect(self, tickets: Sequence[int]) -> list[tuple[int, Completion]]:
        """Complete all that ``tickets`` stand for, in one batch."""
        requests = [self._submitted.pop(ticket) for ticket in tickets]
        return list(zip(tickets, self.generate(requests), strict=True))

    def cancel(self, tickets: Sequence[int]) -> None:
        """Drop what is submitted and not collected."""
        for ticket in tickets:
            self._submitted.pop(ticket, None)
