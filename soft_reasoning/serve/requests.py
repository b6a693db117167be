"""Request bodies. A field that is not acted on is refused with its path, at every depth."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.engine.text import decode
from soft_reasoning.questions import Message, QuestionLike
from soft_reasoning.serve.errors import ApiError

NEUTRAL: dict[str, tuple[object, ...]] = {
    "best_of": (1,),
    "repetition_penalty": (1,),
    "tool_choice": ("auto", "none"),
    "top_k": (-1,),
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


def refused(expected: str, actual: str) -> PydanticCustomError:
    """Return the error of a field."""
    return PydanticCustomError("refused", f"expected {expected}, got {actual}")  # pyright: ignore


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
        raise refused("a string, token ids, or a list of either, none of them empty", f"{prompt!r:.40}")
    return prompts


def _are_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(i) is int for i in cast(list[object], value))


def only_text(value: object) -> object:
    """Refuse a ``response_format`` other than text."""
    if value != {"type": "text"}:
        raise refused(
            '{"type": "text"}, the only format here',
            f"{value!r:.40}; for JSON ask a server that constrains decoding, such as vLLM's with your model",
        )
    return value


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
        "metadata min_p parallel_tool_calls prompt_cache_key prompt_cache_retention "
        "reasoning_effort safety_identifier service_tier store top_p user verbosity".split()
    )
    question_field: ClassVar[str]
    """The field with the question."""

    model: str
    n: Count = 1
    temperature: float | None = Field(default=None, ge=0, le=2)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop: Stop = []
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    response_format: Annotated[object, BeforeValidator(only_text)] = None
    soft_reasoning: Extra = Extra()

    def questions(self, tokenizer: Any) -> list[QuestionLike]:
        """Return the questions of the request."""
        raise NotImplementedError


class ChatBody(Body):
    """The body of ``/v1/chat/completions``."""

    question_field = "messages"

    messages: list[ChatMessage] = Field(min_length=1)

    def questions(self, tokenizer: Any) -> list[QuestionLike]:
        return [[message.plain() for message in self.messages]]


class TextBody(Body):
    """The body of ``/v1/completions``, whose prompts reach the model unchanged."""

    question_field = "prompt"

    prompt: Annotated[list[str | list[int]], BeforeValidator(read_prompts)]

    def questions(self, tokenizer: Any) -> list[QuestionLike]:
        prompts, size = self.prompt, len(tokenizer)
        if wrong := [i for p in prompts if not isinstance(p, str) for i in p if not 0 <= i < size]:
            raise ApiError(400, f"prompt: expected token ids in 0..{size - 1}, got {wrong[0]}", "prompt")
        texts = (prompt if isinstance(prompt, str) else decode(tokenizer, prompt) for prompt in prompts)
        return [{"question": t, "id": str(p), "prompt": p} for t, p in zip(texts, prompts, strict=True)]
