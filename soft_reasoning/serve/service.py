"""Solves requests within the server's limits."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.checks import NoSuchOption, choice
from soft_reasoning.configuration.options import FOR_ANY, Options
from soft_reasoning.configuration.registry import METHODS
from soft_reasoning.method.rounds import VerifiedMethod
from soft_reasoning.reasoner import SoftReasoner
from soft_reasoning.serve.errors import ApiError
from soft_reasoning.serve.requests import Body
from soft_reasoning.serve.settings import Settings
from soft_reasoning.solution import Solution
from soft_reasoning.types import Problem, Round, Usage, UserError

RETRIES = 5
"""Samples that are written where an answer does not have the form that was asked for."""

log: logging.Logger = logging.getLogger(__name__)


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

    async def solve(
        self, body: Body, on_update: Callable[[Round | int], None] | None = None
    ) -> list[Solution]:
        """Return the solution of each question of a request; a cancelled task ends its work.

        ``on_update`` is called with every finished round, and often with the tokens generated so far.

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

    async def _solve(self, body: Body, on_update: Callable[[Round | int], None] | None) -> list[Solution]:
        if self.settings.unknown_fields == "refuse":
            body.refuse_unused()
        questions = body.questions(self.reasoner.context.engine.tokenizer)
        options, kind = self._options(body, len(questions)), body.soft_reasoning.answer_type
        if kind is not None:
            choice("soft_reasoning.answer_type", kind, ANSWER_TYPES)
        try:
            problems = [
                body.response_format.ask(self.reasoner.problem(question), kind) for question in questions
            ]
        except UserError as error:  # which names the call from Python
            field = body.asked_in
            raise ApiError(400, str(error).replace("solve:", f"{field}:", 1), field) from error
        solutions = await self._solved(problems, options, on_update)
        if body.response_format.type == "text":
            return solutions
        return [
            solution if solution.answer is not None else await self._again(body, problem, solution, options)
            for problem, solution in zip(problems, solutions, strict=True)
        ]

    async def _again(self, body: Body, problem: Problem, failed: Solution, options: Options) -> Solution:
        """Return the solution of more samples, with the tokens of the ``failed`` one counted.

        Raises:
            ApiError: If none of them has the form that was asked for.
        """
        kept = {name: value for name, value in options.items() if name in FOR_ANY}
        most = options.get("max_tokens")
        if most is None or (most := most - failed.generated_tokens) > 0:
            samples: Any = {**kept, "max_tokens": most, "method": "self_consistency", "k": RETRIES}
            [solution] = await self._solved([problem], samples, None)
            if solution.answer is not None:
                usage = dict(solution.usage)
                for role, counts in failed.usage.items():
                    usage[role] = usage.get(role, Usage()) + counts
                return replace(solution, usage=usage)
        raise ApiError(
            422,
            f"response_format: expected JSON of this form, got none in the answer and {RETRIES} more "
            "samples within max_completion_tokens; simplify the schema, or use a larger model",
            "response_format",
        )

    async def _solved(
        self, problems: Sequence[Problem], options: Options, on_update: Callable[[Round | int], None] | None
    ) -> list[Solution]:
        solve = partial(self.reasoner.asolve, problems, on_round=on_update, on_progress=on_update)
        try:
            return await solve(**options)
        except NoSuchOption as error:
            if options.get("temperature") is None or error.name != "temperature":
                raise
        options["temperature"] = None  # clients always send it, also to methods without a temperature
        return await solve(**options)

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
        searching = {"preset", "k", "rounds"} & {name for name, value in extra if value is not None}
        default = self.reasoner.setup
        if method is None and searching and not isinstance(default.method, VerifiedMethod):
            method = default.options.get("method") or "soft_reasoning"
        return Options(
            method=method,
            preset=extra.preset,
            k=extra.k,
            rounds=extra.rounds,
            stop=body.stop or None,
            max_seconds=extra.max_seconds,
            temperature=body.temperature,
            seed=body.seed,
            max_tokens=body.max_completion_tokens or settings.max_tokens,
            max_new_tokens=body.max_tokens,
        )


def shutting_down() -> ApiError:
    """Return the error for requests that arrive or still run while the server shuts down."""
    return ApiError(503, "The server is shutting down; try another server.")
