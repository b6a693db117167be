"""Solves requests within the server's limits, and counts them."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable, Mapping

from soft_reasoning.api import SoftReasoner
from soft_reasoning.configuration.folder import choices
from soft_reasoning.configuration.options import Options
from soft_reasoning.data.questions import Asked
from soft_reasoning.integrations.server.requests import (
    ApiError,
    Body,
    changes_of,
    check_unused,
    refused,
)
from soft_reasoning.integrations.server.settings import Settings
from soft_reasoning.solution import Solution
from soft_reasoning.types import Round, UserError

log: logging.Logger = logging.getLogger(__name__)

FIELDS = {
    "k": "soft_reasoning.k", "search.candidates": "soft_reasoning.k", "method.samples": "soft_reasoning.k",
    "method.paths": "soft_reasoning.k", "rounds": "soft_reasoning.rounds", "temperature": "temperature",
    "method.temperature": "temperature", "decoding.temperature": "temperature", "solve": "messages",
}  # fmt: skip
"""The request's name of each option of ours that a message may begin with."""

NO_TEMPERATURE = "temperature: expected a method that has it"


class Service:
    """Solves requests with one ``SoftReasoner``, whose worker puts them into shared batches.

    Args:
        reasoner: Solves the questions.
        settings: The limits.
        names: The method of each name of a model (``settings.model_names``).
    """

    def __init__(self, reasoner: SoftReasoner, settings: Settings, names: Mapping[str, str | None]) -> None:
        self.reasoner, self.settings, self.names = reasoner, settings, names
        self.in_work: int = 0
        self.counts: Counter[str] = Counter()
        """Requests by status, and tokens by kind, under their names in Prometheus' text format."""
        self._presets = choices("preset")

    async def solve(self, body: Body, on_round: Callable[[Round], None] | None = None) -> list[Solution]:
        """Return the solution of each question of a request; a cancelled task ends its work.

        Raises:
            ApiError: For what cannot be, for too long a time, and for a fault of ours.
        """
        status = "cancelled"
        self.in_work += 1
        try:
            solutions = await self._solve_in_time(body, on_round)
            status = "200"
        except ApiError as error:
            status = str(error.status_code)
            raise
        finally:
            self.in_work -= 1
            self.counts[f'soft_reasoning_requests_total{{status="{status}"}}'] += 1
        for solution in solutions:
            for kind in ("prompt", "cached", "generated"):
                count = getattr(solution.total, f"{kind}_tokens")
                self.counts[f'soft_reasoning_tokens_total{{kind="{kind}"}}'] += count
        return solutions

    async def _solve_in_time(self, body: Body, on_round: Callable[[Round], None] | None) -> list[Solution]:
        settings, engine, most = self.settings, self.reasoner.context.engine, self.settings.max_seconds
        try:
            check_unused(body, settings.unknown_fields == "ignore")
            changes = changes_of(body, self.names, settings, self._presets, engine.context_length)
            questions = body.questions(engine.tokenizer)
            if len(questions) > settings.max_n:
                message = f"expected at most {settings.max_n} prompts, got {len(questions)}"
                raise refused("prompt", message)
            async with asyncio.timeout(most):
                return await self._solve(questions, changes, on_round)
        except ApiError:
            raise
        except TimeoutError as error:
            raise ApiError(
                504, f"expected to finish within {most:g} seconds, the limit here, and did not; ask for less "
                "(soft_reasoning.max_seconds ends with the best answer so far)", code="timeout", retry=False,
            ) from error  # fmt: skip
        except UserError as error:
            if self.reasoner.closed:
                raise shutting_down() from error
            named = re.match(r"(?:problem .*?: )?([\w.]+)[=:]", str(error))
            raise ApiError(400, str(error), named and FIELDS.get(named[1]), "invalid_value") from error
        except Exception as error:
            log.exception("a request failed")
            message = f"{type(error).__name__} while solving; the server's log has more"
            raise ApiError(500, message, retry=False) from error

    async def _solve(
        self, questions: list[Asked], changes: Options, on_round: Callable[[Round], None] | None
    ) -> list[Solution]:
        try:
            return await self.reasoner.asolve(questions, on_round=on_round, **changes)
        except UserError as error:
            if "temperature" not in changes or not str(error).startswith(NO_TEMPERATURE):
                raise
        del changes["temperature"]  # clients send it always; a greedy method's answer has none
        return await self.reasoner.asolve(questions, on_round=on_round, **changes)


def shutting_down() -> ApiError:
    """Return the error for requests that come too late or take too long."""
    message = "expected a running server, and it is shutting down; try another one"
    return ApiError(503, message, code="shutting_down", retry=True)
