"""What Inspect finds in the installed package, by its entry point."""

from __future__ import annotations

from typing import Any

from inspect_ai.model import modelapi


@modelapi(name="soft_reasoning")
def soft_reasoning() -> Any:
    """Return the class of models such as ``soft_reasoning/demo``; imported on first use."""
    from soft_reasoning.integrations.inspect_model import SoftReasoningAPI

    return SoftReasoningAPI
