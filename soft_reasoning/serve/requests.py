"""Request bodies. A field that is not acted on is refused with its path, at every depth."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.engine.base import Engine
from soft_reasoning.engine.text import decode
from soft_reasoning.questions import Message, QuestionLike
from soft_reasoning.serve.errors import ApiError

NEUTRAL: dict[str, tuple[object, ...]] = {
    "best_of": (1,),
    "reasoning_effort": ("none",),
    "repetition_penalty": (1,),
    "tool_choice": ("auto", "none"),
    "top_k": (-1,),
    "verbosity": ("medium",),
}
"""Values of fields that request nothing, besides null, false, 0 and empty values."""


class Strict(BaseModel):
    """Refuses fields that it does not have, unless they request nothing; null is as not sent."""

    model_config = ConfigDict(extra="forbid")

    hints: ClassVar[frozenset[str]] = frozenset()
    """Fields that are accepted with any value, since an answer without them is valid."""

    @model_validator(mode="before")
    @classmethod
    def leave_out(cls, fields: Any) -> Any:
        """Leave out what requests nothing."""
        if not isinstance(fields, dict):
            return fields
        return {
            name: value
            for name, value in cast(dict[str, Any], fields).items()
            if value is not None
            and name not in cls.hints
            and (name in cls.model_fields or value and value not in NEUTRAL.get(name, ()))
        }


class Part(Strict):
    """A part of a message's content."""

    hints = frozenset(["cache_control"])

    type: Literal["text"]
    text: str


class ChatMessage(Strict):
    """A message of a chat; an answer of an earlier request may be sent back unchanged."""

    hints = frozenset(["annotations", "name", "reasoning", "reasoning_content"])

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[
        list[Part],
        BeforeValidator(lambda text: [{"type": "text", "text": text}] if isinstance(text, str) else text),
    ]

    def plain(self) -> Message:
        """Return the message in the format of ``solve``."""
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": "".join(part.text for part in self.content)}


def read_prompts(prompt: object) -> list[object]:
    """Return the prompts of a request for completions: texts, or lists of token ids."""
    prompts = cast(list[object], prompt) if isinstance(prompt, list) and not _are_ids(prompt) else [prompt]
    if not prompts or not all(p and (isinstance(p, str) or _are_ids(p)) for p in prompts):
        expected = "expected a string, token ids, or a list of either, none of them empty"
        raise PydanticCustomError("refused", f"{expected}, got {prompt!r:.40}")  # pyright: ignore
    return prompts


def _are_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(i) is int for i in cast(list[object], value))


def read_format(value: object) -> str:
    """Return the JSON Schema that a ``response_format`` asks for; empty for any text."""
    match value:
        case {"type": "text", **more} if not more:
            return ""
        case {"type": "json_object", **more} if not more:
            return '{"type": "object"}'
        case {"type": "json_schema", "json_schema": {"schema": dict() as schema, **rest}, **more}:
            if not more and rest.keys() <= {"description", "name", "strict"}:
                return json.dumps(schema)
        case _:
            pass
    expected = "expected a type (text, json_object or json_schema) and with json_schema its name and schema"
    raise PydanticCustomError("refused", f"{expected} alone, got {value!r:.60}")  # pyright: ignore


class Extra(Strict):
    """The field ``soft_reasoning``: options without a field of OpenAI's API."""

    preset: str | None = None
    k: int | None = Field(default=None, ge=1)
    rounds: int | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, gt=0)
    answer_type: str | None = Field(default=None, pattern=f"^({'|'.join(ANSWER_TYPES)})$")


class StreamOptions(Strict):
    """The field ``stream_options``."""

    include_usage: bool = False


Count = Annotated[int, Field(ge=1)]
Stop = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    Field(max_length=16),  # OpenAI takes 4; tasks of lm-evaluation-harness have more
    BeforeValidator(lambda stop: [stop] if isinstance(stop, str) else stop),
]


class Body(Strict):
    """Fields of all requests for an answer."""

    hints = frozenset(
        "metadata parallel_tool_calls prompt_cache_key prompt_cache_retention safety_identifier service_tier "
        "store user".split()
    )
    question_field: ClassVar[str]
    """The field with the question."""

    model: str
    n: Count = 1
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, gt=0, le=1)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop: Stop = []
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    response_format: Annotated[str, BeforeValidator(read_format)] = ""
    soft_reasoning: Extra = Extra()

    def questions(self, engine: Engine) -> list[QuestionLike]:
        """Return the questions of the request."""
        raise NotImplementedError


class ChatBody(Body):
    """The body of ``/v1/chat/completions``."""

    question_field = "messages"

    messages: list[ChatMessage] = Field(min_length=1)

    def questions(self, engine: Engine) -> list[QuestionLike]:
        return [[message.plain() for message in self.messages]]


class TextBody(Body):
    """The body of ``/v1/completions``, whose prompts reach the model unchanged."""

    question_field = "prompt"

    prompt: Annotated[list[str | list[int]], BeforeValidator(read_prompts)]

    def questions(self, engine: Engine) -> list[QuestionLike]:
        prompts, size = self.prompt, engine.vocabulary
        if wrong := [i for p in prompts if not isinstance(p, str) for i in p if not 0 <= i < size]:
            raise ApiError(400, f"prompt: expected token ids in 0..{size - 1}, got {wrong[0]}", "prompt")
        texts = (
            prompt if isinstance(prompt, str) else decode(engine.tokenizer, prompt) for prompt in prompts
        )
        return [{"question": t, "id": str(p), "prompt": p} for t, p in zip(texts, prompts, strict=True)]
