"""``submit`` and ``collect`` for an engine that works on a batch until all of it is complete."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from soft_reasoning.types import Completion, Request


class BatchEngine:
    """Turns a subclass's ``generate`` into the queue that every engine offers.

    Each call of ``submit`` is a batch of its own. So threads that share an engine neither wait for each
    other's requests nor receive each other's errors.
    """

    def __init__(self) -> None:
        self._tickets = itertools.count()
        self._submitted: dict[int, Request] = {}

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Complete ``requests``, in input order."""
        raise NotImplementedError

    def check(self, request: Request) -> Any:
        """Raise what ``generate`` would raise for this request; nothing by default."""

    def begin_run(self) -> None:
        """Forget what earlier runs cached; nothing by default."""

    def submit(self, requests: Sequence[Request]) -> list[int]:
        """Queue ``requests``; errors are raised as in ``generate``, before any is queued."""
        for request in requests:
            self.check(request)
        tickets = [next(self._tickets) for _ in requests]
        self._submitted.update(zip(tickets, requests, strict=True))
        return tickets

    def collect(self, tickets: Sequence[int]) -> list[tuple[int, Completion]]:
        """Complete all requests of ``tickets`` in one batch."""
        requests = [self._submitted.pop(ticket) for ticket in tickets]
        return list(zip(tickets, self.generate(requests), strict=True))

    def cancel(self, tickets: Sequence[int]) -> None:
        """Drop the requests of ``tickets``."""
        for ticket in tickets:
            self._submitted.pop(ticket, None)
