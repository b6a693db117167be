"""What a request may hold: fields that act, and fields that are refused unless they ask for nothing."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    ValidationError,
    field_validator,
)
from pydantic_core import from_json

from soft_reasoning.integrations.server.errors import ApiError, of_fields, refused

UNUSED: dict[str, tuple[Any, ...]] = {
    "audio": (), "frequency_penalty": (0,), "function_call": ("none",), "functions": ([],),
    "logit_bias": ({},), "metadata": ({},), "modalities": (["text"],), "parallel_tool_calls": (True, False),
    "prediction": (), "presence_penalty": (0,), "prompt_cache_key": (), "reasoning_effort": (),
    "response_format": ({"type": "text"},), "service_tier": ("auto", "default"), "store": (False,),
    "tool_choice": ("none",), "tools": ([],), "top_logprobs": (0,), "top_p": (1,), "verbosity": (),
    "web_search_options": (),
}  # fmt: skip
"""OpenAI's fields that do nothing here, with the values besides null that ask for nothing."""


class Strict(BaseModel):
    """A model that refuses unknown fields."""

    model_config = ConfigDict(extra="forbid")


class TextPart(Strict):
    """A part of a message; only text can be read."""

    type: Literal["text"]
    text: str


class Message(Strict):
    """One message of the chat; an answer of an earlier request may be sent back as it came."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    annotations: Any = None
    audio: Any = None
    function_call: Any = None
    name: Any = None
    refusal: Any = None
    tool_calls: Any = None

    @field_validator("annotations", "audio", "function_call", "name", "refusal", "tool_calls")
    @classmethod
    def _empty(cls, value: Any) -> Any:
        if value not in (None, []):
            raise ValueError(
                f"expected nothing, since models here read text only, got {value!r:.40}; leave it out"
            )
        return value

    @property
    def text(self) -> str:
        """The text of all parts."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class StreamOptions(Strict):
    """What a stream holds besides the answer."""

    include_usage: StrictBool = False
    include_obfuscation: Literal[False] = False


class Extra(Strict):
    """The field ``soft_reasoning``: what OpenAI's fields have no name for."""

    method: str | None = None
    preset: str | None = None
    k: StrictInt | None = Field(default=None, ge=1)
    rounds: StrictInt | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, gt=0, strict=True)


class ChatRequest(Strict):
    """The body of ``/v1/chat/completions``."""

    model: str
    messages: list[Message] = Field(min_length=1)
    n: StrictInt | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2, strict=True)
    max_tokens: StrictInt | None = Field(default=None, ge=1)
    max_completion_tokens: StrictInt | None = Field(default=None, ge=1)
    seed: StrictInt | None = Field(default=None, ge=0, lt=2**63)
    stop: str | list[str] | None = None
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
    logprobs: StrictBool | None = None
    user: str | None = None
    safety_identifier: str | None = None
    soft_reasoning: Extra = Extra()

    @field_validator("stop")
    @classmethod
    def _few(cls, value: str | list[str] | None) -> str | list[str] | None:
        given = [value] if isinstance(value, str) else value or []
        if len(given) > 4 or not all(given):
            raise ValueError(f"expected at most 4 texts, none of them empty, got {value!r:.80}")
        return value

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts that end an answer."""
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def choices(self) -> int:
        """The number of choices asked for."""
        return self.n or 1


def read_request(body: bytes) -> ChatRequest:
    """Return the request that ``body`` holds.

    Raises:
        ApiError: For what is no JSON, and for a field that is unknown, wrong or does nothing here.
    """
    try:
        given = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        raise ApiError(
            400, f"body: expected JSON, got something else ({error})", code="invalid_json"
        ) from error
    if not isinstance(given, dict):
        raise ApiError(400, "body: expected a JSON object", code="invalid_json")
    for name, neutral in UNUSED.items():
        value = given.pop(name, None)
        if value is not None and value not in neutral:
            instead = "".join(f" or {one!r}" for one in neutral[:1])
            raise refused(
                name,
                f"expected null{instead}, since nothing here acts on it, got {value!r:.40}; leave it out",
            )
    try:
        request = ChatRequest.model_validate(given)
    except ValidationError as error:
        raise of_fields(error) from error
    if request.stream_options is not None and not request.stream:
        raise refused("stream_options", "expected stream=true with it; leave it out")
    return request
