"""A request becomes a call of ``SoftReasoner.asolve``, and its solution becomes choices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from soft_reasoning.configuration.options import Changes
from soft_reasoning.data.questions import Message
from soft_reasoning.engines.text import earliest_stop
from soft_reasoning.integrations.server.errors import ApiError, refused
from soft_reasoning.integrations.server.names import Names
from soft_reasoning.integrations.server.requests import ChatRequest
from soft_reasoning.integrations.server.settings import Settings
from soft_reasoning.integrations.server.tokens import logprobs_of
from soft_reasoning.solution import Solution
from soft_reasoning.types import Candidate

FIELDS = {
    "method": "soft_reasoning.method", "preset": "soft_reasoning.preset", "k": "soft_reasoning.k",
    "rounds": "soft_reasoning.rounds", "max_seconds": "soft_reasoning.max_seconds",
    "search.candidates": "soft_reasoning.k", "method.samples": "soft_reasoning.k",
    "method.paths": "soft_reasoning.k", "method.candidates": "soft_reasoning.k",
    "search.rounds": "soft_reasoning.rounds", "temperature": "temperature",
    "method.temperature": "temperature", "decoding.temperature": "temperature",
    "max_tokens": "max_completion_tokens", "max_new_tokens": "max_tokens", "seed": "seed", "stop": "stop",
    "solve": "messages", "question": "messages", "prompt.layout": "messages",
}  # fmt: skip
"""The request's name of each option of ours that a message may begin with."""


@dataclass(frozen=True)
class Choice:
    """One answer of a response.

    Attributes:
        text: What it says.
        finish_reason: ``stop`` or ``length``.
        tokens: The generated tokens that it is made of; 0 for a text of the verifier's.
        candidate: The candidate that it is, or None.
        logprobs: Its tokens with their log-probabilities, if asked for.
    """

    text: str
    finish_reason: str
    tokens: int
    candidate: Candidate | None
    logprobs: list[dict[str, Any]] | None

    def story(self) -> dict[str, Any]:
        """Return what OpenAI's fields have no name for."""
        one = self.candidate
        if one is None:
            return {"source": "verifier", "answer": None, "reward": None, "round": None}
        reward = one.reward if one.reward is None or math.isfinite(one.reward) else None
        return {"source": "candidate", "answer": one.answer, "reward": reward, "round": one.round}


def messages_of(request: ChatRequest) -> list[Message]:
    """Return the chat as ``solve`` takes it."""
    return [
        {"role": "system" if one.role == "developer" else one.role, "content": one.text}
        for one in request.messages
    ]


def changes_of(
    request: ChatRequest, names: Names, settings: Settings, presets: Sequence[str], context_length: int
) -> Changes:
    """Return the options of the call.

    Raises:
        ApiError: For a model that is not served, and for what is beyond the server's limits.
    """
    extra = request.soft_reasoning
    if not names.known(request.model):
        raise ApiError(
            404, f"model: expected one of {', '.join(names.served)}, got {request.model!r:.80}",
            param="model", code="model_not_found",
        )  # fmt: skip
    method = names.method(request.model)
    if extra.method is not None:
        if extra.method not in names.methods:
            raise refused(
                "soft_reasoning.method",
                f"expected one of {', '.join(names.methods)}, got {extra.method!r:.80}",
            )
        if method not in (None, extra.method):
            raise refused(
                "soft_reasoning.method",
                f"expected {method}, that of model={request.model}, got {extra.method}",
            )
        method = extra.method
    if extra.preset is not None and extra.preset not in presets:
        raise refused(
            "soft_reasoning.preset", f"expected one of {', '.join(presets)}, got {extra.preset!r:.80}"
        )
    for field, value, most in (
        ("n", request.n, settings.max_n),
        ("max_tokens", request.max_tokens, settings.max_tokens),
        ("max_tokens", request.max_tokens, context_length),
        ("max_completion_tokens", request.max_completion_tokens, settings.max_tokens),
        ("soft_reasoning.k", extra.k, settings.max_k),
        ("soft_reasoning.rounds", extra.rounds, settings.max_rounds),
        ("soft_reasoning.max_seconds", extra.max_seconds, settings.max_seconds),
    ):
        if value is not None and most is not None and value > most:
            raise refused(field, f"expected at most {most:g}, the limit here, got {value:g}")
    wanted = {
        "method": method, "preset": extra.preset, "k": extra.k, "rounds": extra.rounds,
        "max_seconds": extra.max_seconds, "temperature": request.temperature, "seed": request.seed,
        "max_tokens": request.max_completion_tokens or settings.max_tokens,
        "max_new_tokens": request.max_tokens, "stop": request.stops or None,
    }  # fmt: skip
    return cast(Changes, {key: value for key, value in wanted.items() if value is not None})


def choices_of(solution: Solution, request: ChatRequest, tokenizer: Any) -> list[Choice]:
    """Return ``n`` choices, or as many as there are: the chosen solution, then the others by reward.

    Raises:
        ApiError: If log-probabilities are asked for and the method's candidates are not single completions.
    """
    found = solution.candidates
    if request.logprobs and any(one.generated_tokens and not one.token_ids for one in found):
        raise refused(
            "logprobs", f"expected a method whose solutions are single completions, got {solution.method}; "
            "leave it out",
        )  # fmt: skip
    chosen = chosen_of(solution)
    others = sorted((one for one in found if one is not chosen), key=_reward, reverse=True)
    first = Choice(_cut(solution.text, request.stops), "stop", 0, None, None)
    made = [_choice(chosen, request, tokenizer) if chosen else first]
    return made + [_choice(one, request, tokenizer) for one in others[: request.choices - 1]]


def chosen_of(solution: Solution) -> Candidate | None:
    """Return the candidate that is ``solution.text``; None if that is a text of the verifier's."""
    having = [one for one in solution.candidates if one.answer == solution.answer] or solution.candidates
    best = max(having, key=_reward, default=None)
    return best if best is not None and best.text == solution.text else None


def _choice(one: Candidate, request: ChatRequest, tokenizer: Any) -> Choice:
    text = _cut(one.text, request.stops)
    said = logprobs_of(tokenizer, one, text) if request.logprobs else None
    reason = "length" if one.finish_reason in ("length", "budget") else "stop"
    return Choice(text, reason, one.generated_tokens, one, said)


def _cut(text: str, stops: Sequence[str]) -> str:
    """``text`` before the first of ``stops``, which a method that joins completions may have written."""
    at = earliest_stop(text, stops)
    return text if at < 0 else text[:at]


def _reward(one: Candidate) -> float:
    return -math.inf if one.reward is None else one.reward
