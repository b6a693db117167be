"""Token counts of a response."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from soft_reasoning.integrations.server.translation import Choice
from soft_reasoning.solution import Solution


def usage_of(solution: Solution, choices: Iterable[Choice]) -> dict[str, Any]:
    """Return the tokens of all work for a question.

    ``reasoning_tokens`` are those of candidates that are not returned, and the verifier's.
    """
    roles = solution.usage.values()
    prompt = sum(one.prompt_tokens for one in roles)
    generated = solution.generated_tokens
    shown = sum(one.tokens for one in choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": sum(one.cached_tokens for one in roles)},
        "completion_tokens_details": {"reasoning_tokens": generated - shown},
    }
