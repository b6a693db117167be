"""What requests may hold, and the call of ``SoftReasoner.asolve`` that they become."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from fastapi import HTTPException
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from soft_reasoning.configuration.options import Options
from soft_reasoning.data.questions import Asked, Message
from soft_reasoning.engines.text import decode
from soft_reasoning.integrations.server.settings import Settings

HINTS = frozenset(
    "client_metadata include metadata min_p name parallel_tool_calls prompt_cache_key reasoning "
    "prompt_cache_retention reasoning_effort safety_identifier service_tier store stream_options top_p "
    "truncation user verbosity".split()
)
"""Fields without effect here that are taken whatever they say: an answer without them is still an answer."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,), "function_call": ("none",), "length_penalty": (1,), "modalities": (["text"],),
    "repetition_penalty": (1,), "response_format": ({"type": "text"},), "skip_special_tokens": (True,),
    "text": ({"format": {"type": "text"}},), "tool_choice": ("auto", "none"), "top_k": (-1,),
}  # fmt: skip
"""Values of other fields that ask for nothing, as null, false, 0 and empty ones do everywhere."""


class ApiError(HTTPException):
    """An answer other than 200, in OpenAI's format.

    Args:
        status: The status code.
        message: What was expected, what came, and how to fix it.
        param: The field that it is about.
        code: A name that programs can compare.
        retry: Whether the same request may succeed later; None leaves that to the client.
    """

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None,
        retry: bool | None = None,
    ) -> None:  # fmt: skip
        headers = {} if retry is None else {"x-should-retry": str(retry).lower()}
        super().__init__(status, message, headers)
        self.param, self.code = param, code


def refused(field: str, message: str) -> ApiError:
    """Return the error for a field of the request that cannot be."""
    return ApiError(400, f"{field}: {message}", field, "invalid_value")


class Part(BaseModel):
    """A part of a message; only text can be read."""

    type: Literal["text", "input_text", "output_text"]
    text: str


class ChatMessage(BaseModel):
    """One message of a chat; an answer of an earlier request may be sent back as it came."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]
    tool_calls: list[Any] | None = Field(default=None, max_length=0)

    def plain(self) -> Message:
        """Return the message as ``solve`` takes it."""
        parts = [self.content] if isinstance(self.content, str) else [part.text for part in self.content]
        return {"role": "system" if self.role == "developer" else self.role, "content": "".join(parts)}


class Thought(BaseModel):
    """The thoughts of an earlier answer, sent back; they are not read."""

    type: Literal["reasoning"]


class Extra(BaseModel):
    """The field ``soft_reasoning``: what OpenAI's fields have no name for."""

    model_config = ConfigDict(extra="forbid")

    method: str | None = None
    preset: str | None = None
    k: int | None = Field(default=None, ge=1)
    rounds: int | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, gt=0)


Count = Annotated[int, Field(ge=1)]
Stop = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    Field(max_length=4),
    BeforeValidator(lambda stop: [stop] if isinstance(stop, str) else stop or []),
]


class Body(BaseModel):
    """Fields that all requests for an answer share; ``model_extra`` holds those that are not read."""

    model_config = ConfigDict(extra="allow")

    model: str
    n: Count | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop: Stop = []
    stream: bool | None = None
    soft_reasoning: Extra = Extra()

    @property
    def wants_logprobs(self) -> bool:
        """Whether the answer comes with log-probabilities."""
        asked = getattr(self, "logprobs", None)
        return asked is not None and asked is not False

    def questions(self, tokenizer: Any) -> list[Asked]:
        """Return what is to be solved."""
        raise NotImplementedError


class StreamOptions(BaseModel):
    """What a stream holds besides the answer."""

    include_usage: bool = False


class ChatBody(Body):
    """The body of ``/v1/chat/completions``."""

    messages: list[ChatMessage] = Field(min_length=1)
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    stream_options: StreamOptions | None = None

    def questions(self, tokenizer: Any) -> list[Asked]:
        return [[message.plain() for message in self.messages]]


class TextBody(Body):
    """The body of ``/v1/completions``, whose prompts reach the model as they are."""

    prompt: str | list[str] | list[int] | list[list[int]] = Field(min_length=1)
    max_tokens: Count | None = None
    logprobs: int | None = Field(default=None, ge=0)
    stream_options: StreamOptions | None = None

    def questions(self, tokenizer: Any) -> list[Asked]:
        alone = isinstance(self.prompt, str) or isinstance(self.prompt[0], int)
        prompts = cast(list[str | list[int]], [self.prompt] if alone else self.prompt)
        texts = (prompt if isinstance(prompt, str) else decode(tokenizer, prompt) for prompt in prompts)
        return [{"question": text, "prompt": prompt} for text, prompt in zip(texts, prompts, strict=True)]


class ResponsesBody(Body):
    """The body of ``/v1/responses``."""

    input: str | list[Thought | ChatMessage] = Field(min_length=1)
    instructions: str | None = None
    max_output_tokens: Count | None = None

    def questions(self, tokenizer: Any) -> list[Asked]:
        said = [ChatMessage(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        chat = [message.plain() for message in said if isinstance(message, ChatMessage)]
        return [[{"role": "system", "content": self.instructions}, *chat] if self.instructions else chat]


def known_model(name: str, names: Mapping[str, Any]) -> str:
    """Return ``name`` if it is one of ``names``.

    Raises:
        ApiError: With status 404 otherwise.
    """
    if name not in names:
        message = f"model: expected one of {', '.join(names)}, got {name!r:.80}"
        raise ApiError(404, message, "model", "model_not_found")
    return name


def check_unused(body: Body, ignored: bool) -> None:
    """Refuse fields that ask for what has no effect here, unless they are ``ignored``.

    Raises:
        ApiError: For the first of them.
    """
    for name, value in ({} if ignored else body.model_extra or {}).items():
        if value and name not in HINTS and value not in NEUTRAL.get(name, ()):
            raise ApiError(
                400, f"{name}: expected a field that has an effect here, got {name}={value!r:.40}; leave it "
                "out, or start the server with server.unknown_fields=ignore",
                param=name, code="unknown_parameter",
            )  # fmt: skip


def changes_of(
    body: Body,
    names: Mapping[str, str | None],
    settings: Settings,
    presets: Sequence[str],
    context_length: int,
) -> Options:
    """Return the options of the call.

    Raises:
        ApiError: For a model that is not served, and for what is beyond the server's limits.
    """
    extra = body.soft_reasoning
    named = names[known_model(body.model, names)]
    known = [method for method in names.values() if method] if named is None else [named]
    for field, value, choices in (("method", extra.method, known), ("preset", extra.preset, presets)):
        if value is not None and value not in choices:
            raise refused(
                f"soft_reasoning.{field}", f"expected one of {', '.join(choices)}, got {value!r:.80}"
            )
    tokens = settings.max_tokens or math.inf
    limits = {
        "n": settings.max_n, "max_tokens": min(tokens, context_length), "max_completion_tokens": tokens,
        "max_output_tokens": tokens, "soft_reasoning.k": settings.max_k,
        "soft_reasoning.rounds": settings.max_rounds, "soft_reasoning.max_seconds": settings.max_seconds,
    }  # fmt: skip
    for field, most in limits.items():
        value = getattr(extra if "." in field else body, field.rpartition(".")[2], None)
        if value is not None and value > most:
            raise refused(field, f"expected at most {most:g}, the limit here, got {value:g}")
    total = getattr(body, "max_completion_tokens", None) or getattr(body, "max_output_tokens", None)
    options = {
        **extra.model_dump(), "method": extra.method or named, "temperature": body.temperature,
        "seed": body.seed, "max_tokens": total or settings.max_tokens,
        "max_new_tokens": getattr(body, "max_tokens", None), "stop": body.stop or None,
    }  # fmt: skip
    return cast(Options, {key: value for key, value in options.items() if value is not None})
