"""Solves requests within the server's limits."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from soft_reasoning.checks import OptionError
from soft_reasoning.configuration.options import Options
from soft_reasoning.configuration.registry import METHODS
from soft_reasoning.method.rounds import VerifiedMethod
from soft_reasoning.questions import read_question
from soft_reasoning.reasoner import SoftReasoner
from soft_reasoning.schedule.method import Round
from soft_reasoning.serve.errors import ApiError, shutting_down
from soft_reasoning.serve.requests import Body
from soft_reasoning.serve.settings import Settings
from soft_reasoning.solution import Solution
from soft_reasoning.types import Request, UserError

log: logging.Logger = logging.getLogger(__name__)

Update: TypeAlias = Round | tuple[int, str, str]
"""A finished round; or the tokens so far, and the thoughts and the text so far of ``method=cot``."""


class Service:
    """Solves requests with one ``SoftReasoner``, whose thread puts them into shared batches.

    Args:
        reasoner: Solves the questions.
        settings: The limits.
        name: The model's name for clients; METHOD-``name`` selects another method than the reasoner's.
    """

    def __init__(self, reasoner: SoftReasoner, settings: Settings, name: str) -> None:
        self.reasoner, self.settings = reasoner, settings
        self.names: dict[str, str | None] = {
            name: None,
            **{f"{method}-{name}": method for method in METHODS},
        }
        """The method of each model name; None is the reasoner's method."""
        self.in_progress: int = 0

    def method(self, name: str) -> str | None:
        """Return the method of a model name.

        Raises:
            ApiError: With status 404 for an unknown name.
        """
        if name not in self.names:
            message = f"model: expected one of {', '.join(self.names)}, got {name!r:.80}"
            raise ApiError(404, message, "model", "model_not_found")
        return self.names[name]

    async def solve(self, body: Body, on_update: Callable[[Update], None] | None = None) -> list[Solution]:
        """Return the solution of each question of a request; a cancelled task ends its work.

        ``on_update`` is called with every finished round, and often with the progress so far.

        Raises:
            ApiError: For an invalid request, after too long a time, and for an internal error.
        """
        self.in_progress += 1
        try:
            async with asyncio.timeout(self.settings.max_seconds):
                return await self._solve(body, on_update)
        except Exception as error:
            raise self._to_api_error(error) from None
        finally:
            self.in_progress -= 1

    def _to_api_error(self, error: Exception) -> ApiError:
        """Return the error that a client gets for ``error``."""
        if isinstance(error, ApiError):
            return error
        if isinstance(error, UserError):
            return shutting_down() if self.reasoner.closed else ApiError(400, str(error))
        if isinstance(error, TimeoutError):
            return ApiError(
                504,
                f"The request took longer than {self.settings.max_seconds:g} seconds, the limit here; ask "
                "for less (soft_reasoning.max_seconds ends with the best answer so far)",
                **{"x-should-retry": "false"},
            )
        log.error("a request failed", exc_info=error)
        return ApiError(500, f"{type(error).__name__} while solving; the server's log has more")

    async def _solve(self, body: Body, on_update: Callable[[Update], None] | None) -> list[Solution]:
        questions = body.questions(self.reasoner.context.engine)
        options = self._options(body, len(questions))
        schema, field = body.response_format, body.question_field
        if schema:  # compiled where it delays no other request
            form = Request((), messages=(("user", "?"),), schema=schema)
            await asyncio.to_thread(self.reasoner.context.engine.prepare, form)
        kind = body.soft_reasoning.answer_type or ("open" if schema else self.reasoner.answer_type)
        try:
            problems = [replace(read_question(question, kind), schema=schema) for question in questions]
        except UserError as error:  # which names the call from Python
            raise ApiError(400, str(error).replace("question:", f"{field}:", 1), field) from error
        watch = None if on_update is None else lambda *progress: on_update(progress)
        solve, warning = partial(self.reasoner.asolve, problems, on_round=on_update, on_progress=watch), None
        while True:
            try:
                return [replace(solution, warning=warning) for solution in await solve(**options)]
            except OptionError as error:
                if error.name not in ("temperature", "top_p") or options.get(error.name) is None:
                    raise
                options[error.name] = None  # clients always send them, also 0, and to greedy methods
                warning = f"{f'{warning}; ' if warning else ''}{error}; the field was left out"

    def _options(self, body: Body, prompts: int) -> Options:
        """The options of the call; values beyond the limits are rejected."""
        settings, extra, method = self.settings, body.soft_reasoning, self.method(body.model)
        tokens = settings.max_tokens or math.inf
        limits = {
            "n": (body.n, settings.max_n),
            "prompt": (prompts, settings.max_n),
            "max_tokens": (body.max_tokens, min(tokens, self.reasoner.context.engine.context_length)),
            "max_completion_tokens": (body.max_completion_tokens, tokens),
            "soft_reasoning.k": (extra.k, settings.max_k),
            "soft_reasoning.rounds": (extra.rounds, settings.max_rounds),
            "soft_reasoning.max_seconds": (extra.max_seconds, settings.max_seconds),
        }
        for field, (value, limit) in limits.items():
            if value is not None and value > limit:
                message = f"{field}: expected at most {limit:g}, the limit here, got {value:g}"
                raise ApiError(400, message, field)
        searches = (extra.preset, extra.k, extra.rounds) != (None, None, None)
        default = self.reasoner.setup
        if method is None and searches and not isinstance(default.method, VerifiedMethod):
            method = default.options.get("method") or "soft_reasoning"
        return Options(
            method=method,
            preset=extra.preset,
            k=extra.k,
            rounds=extra.rounds,
            stop=body.stop or None,
            max_seconds=extra.max_seconds,
            temperature=body.temperature,
            top_p=body.top_p,
            seed=body.seed,
            max_tokens=body.max_completion_tokens or settings.max_tokens,
            max_new_tokens=body.max_tokens,
        )
