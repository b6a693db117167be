"""The body of a response."""

from __future__ import annotations

from typing import Any

import soft_reasoning
from soft_reasoning.integrations.server.requests import ChatRequest
from soft_reasoning.integrations.server.translation import Choice, choices_of
from soft_reasoning.integrations.server.usage import usage_of
from soft_reasoning.solution import Solution


def response_of(
    name: str, created: int, request: ChatRequest, solution: Solution, tokenizer: Any
) -> dict[str, Any]:
    """Return the ``chat.completion`` called ``name``.

    Raises:
        ApiError: For log-probabilities that the method does not give.
    """
    choices = choices_of(solution, request, tokenizer)
    return {
        "id": name,
        "object": "chat.completion",
        "created": created,
        "model": request.model,
        "system_fingerprint": f"soft_reasoning-{soft_reasoning.__version__}",
        "choices": [_choice(index, one) for index, one in enumerate(choices)],
        "usage": usage_of(solution, choices),
        "soft_reasoning": {
            "method": solution.method,
            "answer": solution.answer,
            "candidates": len(solution.candidates),
            "rounds": len(solution.rounds),
            "ended": solution.ended,
        },
    }


def _choice(index: int, one: Choice) -> dict[str, Any]:
    return {
        "index": index,
        "message": {"role": "assistant", "content": one.text, "refusal": None},
        "logprobs": None if one.logprobs is None else {"content": one.logprobs, "refusal": None},
        "finish_reason": one.finish_reason,
        "soft_reasoning": one.story(),
    }


def models_of(names: list[str], created: int) -> list[dict[str, Any]]:
    """Return the models as ``/v1/models`` lists them."""
    return [
        {"id": name, "object": "model", "created": created, "owned_by": "soft_reasoning"} for name in names
    ]
