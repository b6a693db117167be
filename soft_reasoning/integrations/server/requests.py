"""Request bodies: the fields common to all, and the questions of each kind."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from fastapi import HTTPException
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from soft_reasoning.data.questions import Asked, Message
from soft_reasoning.engines.text import decode

HINTS = frozenset(
    "client_metadata include metadata min_p parallel_tool_calls prompt_cache_key prompt_cache_retention "
    "reasoning reasoning_effort safety_identifier service_tier store top_p truncation user verbosity".split()
)
"""Fields without effect here that are accepted with any value, since an answer without them is valid."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "best_of": (1,), "function_call": ("auto", "none"), "length_penalty": (1,), "modalities": (["text"],),
    "repetition_penalty": (1,), "response_format": ({"type": "text"},), "skip_special_tokens": (True,),
    "text": ({"format": {"type": "text"}},), "tool_choice": ("auto", "none"), "top_k": (-1,),
}  # fmt: skip
"""Values of other fields that have no effect, besides null, false, 0 and empty values."""


class ApiError(HTTPException):
    """An answer with a status other than 200: a message, the field that it is about, and a code."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None, **headers: str
    ) -> None:
        super().__init__(status, message, headers)
        self.param, self.code = param, code


class Part(BaseModel):
    """A part of a message; only text is supported."""

    type: Literal["text", "input_text", "output_text"]
    text: str


class ChatMessage(BaseModel):
    """A message of a chat; an answer of an earlier request may be sent back unchanged."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part]

    def plain(self) -> Message:
        """Return the message in the format of ``solve``."""
        parts = [self.content] if isinstance(self.content, str) else [part.text for part in self.content]
        return {"role": "system" if self.role == "developer" else self.role, "content": "".join(parts)}


class Thought(BaseModel):
    """The thoughts of an earlier answer, sent back; they are ignored."""

    type: Literal["reasoning"]


class Extra(BaseModel):
    """The field ``soft_reasoning``: options without a field of OpenAI's API."""

    model_config = ConfigDict(extra="forbid")

    preset: str | None = Field(default=None, pattern=r"^\w+$")
    k: int | None = Field(default=None, ge=1)
    rounds: int | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, gt=0)


Count = Annotated[int, Field(ge=1)]
Stop = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    Field(max_length=4),
    BeforeValidator(lambda stop: [stop] if isinstance(stop, str) else stop),
]


class Body(BaseModel):
    """Fields of all requests for an answer; ``model_extra`` holds fields that are not read."""

    model_config = ConfigDict(extra="allow")

    model: str
    n: Count = 1
    temperature: float | None = Field(default=None, ge=0, le=2)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop: Stop = []
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    max_output_tokens: Count | None = None
    logprobs: bool | int | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    soft_reasoning: Extra = Extra()

    @model_validator(mode="before")
    @classmethod
    def without_null(cls, fields: Any) -> Any:
        """Treat fields that are null as fields that were not sent."""
        return {k: v for k, v in fields.items() if v is not None} if isinstance(fields, dict) else fields

    def questions(self, tokenizer: Any) -> list[Asked]:
        """Return the questions of the request."""
        raise NotImplementedError

    def refuse_unused(self) -> None:
        """Refuse fields that request features without effect here.

        Raises:
            ApiError: For the first such field.
        """
        for name, value in (self.model_extra or {}).items():
            if value and name not in HINTS and value not in NEUTRAL.get(name, ()):
                raise ApiError(
                    400, f"{name}: expected a field that has an effect here, got {name}={value!r:.40}; "
                    "leave it out, or start the server with server.unknown_fields=ignore", name,
                )  # fmt: skip


class ChatBody(Body):
    """The body of ``/v1/chat/completions``."""

    messages: list[ChatMessage] = Field(min_length=1)

    def questions(self, tokenizer: Any) -> list[Asked]:
        return [[message.plain() for message in self.messages]]


class TextBody(Body):
    """The body of ``/v1/completions``, whose prompts reach the model unchanged."""

    prompt: str | list[str] | list[int] | list[list[int]] = Field(min_length=1)

    def questions(self, tokenizer: Any) -> list[Asked]:
        single = isinstance(self.prompt, str) or isinstance(self.prompt[0], int)
        prompts = cast(list[str | list[int]], [self.prompt] if single else self.prompt)
        size = len(tokenizer)
        if wrong := [i for p in prompts if not isinstance(p, str) for i in p if not 0 <= i < size]:
            raise ApiError(400, f"prompt: expected token ids in 0..{size - 1}, got {wrong[0]}", "prompt")
        texts = (prompt if isinstance(prompt, str) else decode(tokenizer, prompt) for prompt in prompts)
        return [{"question": t, "id": str(p), "prompt": p} for t, p in zip(texts, prompts, strict=True)]


class ResponsesBody(Body):
    """The body of ``/v1/responses``."""

    input: str | list[Thought | ChatMessage] = Field(min_length=1)
    instructions: str | None = None

    def questions(self, tokenizer: Any) -> list[Asked]:
        items = [ChatMessage(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        chat = [item.plain() for item in items if isinstance(item, ChatMessage)]
        return [[{"role": "system", "content": self.instructions}, *chat] if self.instructions else chat]
