"""Solves requests within the server's limits, and counts what it does."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import Callable

from soft_reasoning.api import SoftReasoner
from soft_reasoning.configuration.options import Options
from soft_reasoning.data.questions import Asked
from soft_reasoning.engines.text import decode
from soft_reasoning.integrations.server.requests import (
    ApiError,
    Body,
    TextBody,
    changes_of,
    check_unused,
    refused,
)
from soft_reasoning.integrations.server.settings import Names, Settings, choices_of
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
        names: What models are called.
    """

    def __init__(self, reasoner: SoftReasoner, settings: Settings, names: Names) -> None:
        self.reasoner, self.settings, self.names = reasoner, settings, names
        self.in_work: int = 0
        self._presets = choices_of("preset")
        self._ended: Counter[str] = Counter()  # requests by status
        self._tokens: Counter[str] = Counter()
        self._seconds = 0.0

    async def solve(self, body: Body, on_round: Callable[[Round], None] | None = None) -> list[Solution]:
        """Return the solution of each question of a request; a cancelled task ends its work.

        Raises:
            ApiError: For what cannot be, for too long a time, and for a fault of ours.
        """
        began, status = time.perf_counter(), "cancelled"
        self.in_work += 1
        try:
            check_unused(body, self.settings.unknown_fields == "ignore")
            length = self.reasoner.context.engine.context_length
            changes = changes_of(body, self.names, self.settings, self._presets, length)
            solutions = await self._solve(self._questions(body), changes, on_round)
            status = "200"
        except ApiError as error:
            status = str(error.status_code)
            raise
        finally:
            self.in_work -= 1
            self._ended[status] += 1
            self._seconds += time.perf_counter() - began
        for usage in (usage for solution in solutions for usage in solution.usage.values()):
            for kind in ("prompt", "cached", "generated"):
                self._tokens[kind] += getattr(usage, f"{kind}_tokens")
        return solutions

    def metrics(self) -> str:
        """Return counts in Prometheus' text format.

        Written by hand: labels are status codes and names without special characters, and sums and counts are
        all there is, so that a client library would only be one more dependency.
        """
        kinds = {"requests_total": "counter", "tokens_total": "counter", "requests_in_work": "gauge",
                 "request_seconds": "summary"}  # fmt: skip
        lines = [f"# TYPE soft_reasoning_{name} {kind}" for name, kind in kinds.items()]
        lines += [f'requests_total{{status="{key}"}} {count}' for key, count in sorted(self._ended.items())]
        lines += [f'tokens_total{{kind="{kind}"}} {count}' for kind, count in sorted(self._tokens.items())]
        lines += [f"requests_in_work {self.in_work}", f"request_seconds_sum {self._seconds:.6f}",
                  f"request_seconds_count {self._ended.total()}"]  # fmt: skip
        return "".join(f"{line if line[0] == '#' else f'soft_reasoning_{line}'}\n" for line in lines)

    def _questions(self, body: Body) -> list[Asked]:
        if not isinstance(body, TextBody):
            return body.questions()
        prompts, tokenizer = body.prompts(), self.reasoner.context.engine.tokenizer
        if len(prompts) > self.settings.max_n:
            raise refused("prompt", f"expected at most {self.settings.max_n} prompts, got {len(prompts)}")
        texts = [prompt if isinstance(prompt, str) else decode(tokenizer, prompt) for prompt in prompts]
        return [{"question": text, "prompt": prompt} for text, prompt in zip(texts, prompts, strict=True)]

    async def _solve(
        self, questions: list[Asked], changes: Options, on_round: Callable[[Round], None] | None
    ) -> list[Solution]:
        most = self.settings.max_seconds
        try:
            async with asyncio.timeout(most):
                try:
                    return await self.reasoner.asolve(questions, on_round=on_round, **changes)
                except UserError as error:
                    if "temperature" not in changes or not str(error).startswith(NO_TEMPERATURE):
                        raise
                del changes["temperature"]  # clients send it always; a greedy method's answer has none
                return await self.reasoner.asolve(questions, on_round=on_round, **changes)
        except TimeoutError as error:
            raise ApiError(
                504, f"expected to finish within {most:g} seconds, the limit here, and did not; ask for less "
                "(soft_reasoning.max_seconds ends with the best answer so far)", code="timeout", retry=False,
            ) from error  # fmt: skip
        except UserError as error:
            if self.reasoner.closed:
                raise shutting_down() from error
            message = str(getattr(error, "line", error))  # with the option's full name
            named = re.match(r"(?:problem .*?: )?([\w.]+)[=:]", message)
            raise ApiError(400, message, named and FIELDS.get(named[1]), "invalid_value") from error
        except Exception as error:
            log.exception("a request failed")
            message = f"{type(error).__name__} while solving; the server's log has more"
            raise ApiError(500, message, retry=False) from error


def shutting_down() -> ApiError:
    """Return the error for requests that come too late or take too long."""
    message = "expected a running server, and it is shutting down; try another one"
    return ApiError(503, message, code="shutting_down", retry=True)
