"""Inspect's model provider: ``soft_reasoning/NAME`` solves each request by a method of this package."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import perf_counter
from typing import Any, cast

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    Logprob,
    Logprobs,
    ModelAPI,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.tool import ToolChoice, ToolInfo

from soft_reasoning.api import SoftReasoner
from soft_reasoning.configuration.options import Options
from soft_reasoning.data.questions import Asked, Message
from soft_reasoning.solution import Solution
from soft_reasoning.types import Candidate, UserError

log: logging.Logger = logging.getLogger(__name__)

ACTS = {"max_tokens": "max_new_tokens", "temperature": "temperature", "seed": "seed", "stop_seqs": "stop"}
"""Fields of ``GenerateConfig``, and the options of a call that they set."""

OF_INSPECT = (
    "num_choices", "logprobs", "max_retries", "timeout", "attempt_timeout", "stream_idle_timeout",
    "max_connections", "adaptive_connections", "system_message", "parallel_tool_calls", "internal_tools",
    "max_tool_output", "cache_prompt", "fail_on_refusal", "reasoning_history", "cache",
)  # fmt: skip
"""Fields that act here or that Inspect itself sees to."""

REFUSED = ("response_schema", "modalities", "top_logprobs", "prompt_logprobs")
"""Fields that ask for an output that is not made here; all others are only told of."""


READ = ("text", "reasoning")
"""Parts of messages that are read."""


class SoftReasoningAPI(ModelAPI):
    """A model of Inspect that answers by a method of this package.

    Requests that run at the same time share batches. The answer to a request is that of
    :meth:`SoftReasoner.solve` for its messages.

    Args:
        model_name: ``demo``, a name on the hub or a folder.
        base_url: None; there is no server.
        api_key: Not used.
        config: Inspect's configuration.
        model_args: Arguments of :meth:`SoftReasoner.from_pretrained`.

    Raises:
        UserError: In one line, for a model or an argument that does not exist.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config or GenerateConfig())
        if base_url is not None:
            raise UserError(
                f"soft_reasoning/{model_name}: expected no base_url, got {base_url}; leave it out"
            )
        self.reasoner: SoftReasoner = SoftReasoner.from_pretrained(model_name, **model_args)
        self._told: set[str] = set()

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Solve the last message.

        Raises:
            UserError: In one line, for tools, content that is no text, and settings that cannot be met.
        """
        if tools:
            raise UserError("soft_reasoning: expected a task without tools; leave them out")
        began = perf_counter()
        changes = self._changes(config)
        solution = await self.reasoner.asolve(_chat(input), **changes)
        choices = [self._choice(one, solution, config) for one in solution.ranked[: config.num_choices or 1]]
        return ModelOutput(
            model=self.model_name,
            choices=choices,
            usage=_usage(solution),
            time=perf_counter() - began,
            metadata=solution.summary(),
        )

    def max_connections(self) -> int:
        """As many requests at a time as the reasoner solves together."""
        return self.reasoner.max_live

    def connection_key(self) -> str:
        return self.model_name

    def close(self) -> None:
        """Give the model's memory back."""
        self.reasoner.close()

    def _changes(self, config: GenerateConfig) -> Options:
        """The options of a call; a setting without effect is told of once."""
        given = {
            key: value for key, value in config.model_dump(exclude_none=True).items() if value is not False
        }
        for key in given:
            if key in REFUSED:
                raise UserError(f"soft_reasoning: expected no {key}, which cannot be met; leave it out")
            if key not in ACTS and key not in OF_INSPECT and key not in self._told:
                self._told.add(key)
                log.warning("soft_reasoning: %s=%r has no effect", key, given[key])
        return cast(Options, {option: given[key] for key, option in ACTS.items() if key in given})

    def _choice(
        self, candidate: Candidate | None, solution: Solution, config: GenerateConfig
    ) -> ChatCompletionChoice:
        text, logprobs = solution.text if candidate is None else candidate.text, None
        if config.logprobs and candidate is not None and candidate.token_ids:
            pairs = zip(candidate.token_ids, candidate.logprobs, strict=True)
            tokenizer = self.reasoner.context.engine.tokenizer
            decoded = [Logprob(token=tokenizer.decode([id]), logprob=value) for id, value in pairs]
            logprobs = Logprobs(content=decoded)
        return ChatCompletionChoice(
            message=ChatMessageAssistant(content=text, model=self.model_name, source="generate"),
            stop_reason="max_tokens" if candidate is not None and candidate.cut else "stop",
            logprobs=logprobs,
        )


def _chat(messages: Sequence[ChatMessage]) -> Asked:
    """The messages as ``solve`` takes them."""
    chat: list[Message] = []
    for message in messages:
        kinds = ["text"] if isinstance(message.content, str) else [part.type for part in message.content]
        other = [kind for kind in ["tool"] * (message.role == "tool") + kinds if kind not in READ]
        if other:
            raise UserError(f"soft_reasoning: expected messages of text, got {other[0]}; leave it out")
        chat.append({"role": message.role, "content": message.text})
    return chat


def _usage(solution: Solution) -> ModelUsage:
    """All tokens of a solution; those that are not in its text count as reasoning."""
    total, shown = solution.total, 0 if solution.chosen is None else solution.chosen.generated_tokens
    return ModelUsage(
        input_tokens=total.prompt_tokens - total.cached_tokens,
        input_tokens_cache_read=total.cached_tokens,
        output_tokens=total.generated_tokens,
        total_tokens=total.prompt_tokens + total.generated_tokens,
        reasoning_tokens=total.generated_tokens - shown,
    )
