"""Which requests are in work, and how they end: solved, refused, too slow, given up on, or at shutdown."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from soft_reasoning.api import SoftReasoner
from soft_reasoning.configuration.options import Changes
from soft_reasoning.data.questions import Message
from soft_reasoning.integrations.server.errors import ApiError, of_user
from soft_reasoning.integrations.server.names import Names, choices_of
from soft_reasoning.integrations.server.requests import ChatRequest
from soft_reasoning.integrations.server.settings import Settings
from soft_reasoning.integrations.server.translation import FIELDS, changes_of, messages_of
from soft_reasoning.solution import Solution
from soft_reasoning.types import Round, UserError

log: logging.Logger = logging.getLogger(__name__)


class Service:
    """Solves requests with one ``SoftReasoner``, whose worker puts them into shared batches.

    It belongs to one event loop.

    Args:
        reasoner: Solves the questions.
        settings: The limits.
        names: What models are called.
        max_live: Questions that the reasoner solves at a time.
    """

    def __init__(self, reasoner: SoftReasoner, settings: Settings, names: Names, max_live: int) -> None:
        self.reasoner, self.settings, self.names = reasoner, settings, names
        self.most: int = max_live + settings.max_waiting
        self._presets = choices_of("preset")
        self._tasks: set[asyncio.Task[Solution]] = set()
        self._ends: float | None = None  # when work that is not finished is given up on

    @property
    def in_work(self) -> int:
        """The number of requests that are being solved or wait."""
        return len(self._tasks)

    @property
    def closing(self) -> bool:
        """Whether new requests are refused."""
        return self._ends is not None or self.reasoner.closed

    def start(self, request: ChatRequest, on_round: Callable[[Round], None]) -> asyncio.Task[Solution]:
        """Begin to solve ``request``; cancelling the task ends its work.

        The task raises ApiError for what the request cannot have, and for the time limit.

        Raises:
            ApiError: For what can be refused at once.
        """
        if self.closing:
            raise self.shutting_down()
        length = self.reasoner.context.engine.context_length
        changes = changes_of(request, self.names, self.settings, self._presets, length)
        if self.in_work >= self.most:
            raise ApiError(
                429, f"expected fewer than {self.most} requests at a time, which all wait; try again later",
                code="rate_limit_exceeded", retry=True,
            )  # fmt: skip
        task = asyncio.create_task(self._solve(messages_of(request), changes, on_round))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _solve(
        self, messages: list[Message], changes: Changes, on_round: Callable[[Round], None]
    ) -> Solution:
        most = self.settings.max_seconds
        try:
            async with asyncio.timeout(most):
                return await self.reasoner.asolve(messages, on_round=on_round, **changes)
        except TimeoutError as error:
            raise ApiError(
                504, f"expected to finish within {most:g} seconds, the limit here, and did not; ask for less "
                "(soft_reasoning.max_seconds ends with the best answer so far)",
                code="timeout", retry=False,
            ) from error  # fmt: skip
        except UserError as error:
            if self.closing:
                raise self.shutting_down() from error
            raise of_user(error, FIELDS) from error
        except Exception as error:
            log.exception("a request failed")
            said = f"{type(error).__name__} while solving; the server's log has more"
            raise ApiError(500, said, retry=False) from error

    def shutting_down(self) -> ApiError:
        """Return the error for requests that come too late or take too long."""
        return ApiError(503, "expected a running server, and it is shutting down; try another one",
                        code="shutting_down", retry=True)  # fmt: skip

    def close(self) -> None:
        """Refuse new requests, and give work ``drain_seconds`` to finish; called again, none."""
        again = self._ends is not None
        self._ends = time.monotonic() + (0 if again else self.settings.drain_seconds)

    def drained(self) -> bool:
        """Whether :meth:`close` was called and nothing is in work; what is too slow is given up on."""
        if self._ends is None:
            return False
        if time.monotonic() >= self._ends:
            for task in self._tasks:
                task.cancel()
        return not self._tasks
