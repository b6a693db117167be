"""Request bodies: the fields common to all, and the questions of each kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from soft_reasoning.engine.text import decode
from soft_reasoning.questions import Message, QuestionLike
from soft_reasoning.serve.errors import ApiError
from soft_reasoning.serve.schema import check_schema
from soft_reasoning.types import Problem

HINTS = frozenset(
    "metadata min_p parallel_tool_calls prompt_cache_key prompt_cache_retention "
    "reasoning_effort safety_identifier service_tier store top_p user verbosity".split()
)
"""Fields without effect here that are accepted with any value, since an answer without them is valid."""

NEUTRAL: dict[str, tuple[object, ...]] = {
    "best_of": (1,),
    "function_call": ("auto", "none"),
    "length_penalty": (1,),
    "modalities": (["text"],),
    "repetition_penalty": (1,),
    "skip_special_tokens": (True,),
    "tool_choice": ("auto", "none"),
    "top_k": (-1,),
}
"""Values of other fields that have no effect, besides null, false, 0 and empty values."""


OF_MESSAGES = frozenset("annotations name reasoning reasoning_content".split())
"""Further fields of messages without effect here, such as those of an earlier answer that is sent back."""


def read_content(content: object) -> str:
    """Return the text of a message's content, which may be a list of parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise refused("a string or parts of type text", _kind(content))
    for part in cast(list[Any], content):
        kind = part.get("type", "none") if isinstance(part, dict) else _kind(part)
        if kind != "text" or not isinstance(part.get("text"), str):
            raise refused("a string or parts of type text", f"a part of type {kind}")
    return "".join(part["text"] for part in cast(list[Any], content))


def refuse(what: str) -> BeforeValidator:
    """Return a validator that rejects all values but empty ones."""

    def check(value: object) -> None:
        if value:
            raise refused(f"no {what}", "some, which this model cannot read; leave the message out")

    return BeforeValidator(check)


def refused(expected: str, actual: str) -> PydanticCustomError:
    """Return the error of a field."""
    return PydanticCustomError("refused", f"expected {expected}, got {actual}")  # pyright: ignore


def _kind(value: object) -> str:
    return "null" if value is None else f"{value!r:.40}"


class ChatMessage(BaseModel):
    """A message of a chat; an answer of an earlier request may be sent back unchanged."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[str, BeforeValidator(read_content)]
    tool_calls: Annotated[None, refuse("calls of tools")] = None
    function_call: Annotated[None, refuse("calls of tools")] = None
    audio: Annotated[None, refuse("audio")] = None

    def plain(self) -> Message:
        """Return the message in the format of ``solve``."""
        return {"role": "system" if self.role == "developer" else self.role, "content": self.content}


def read_prompts(prompt: object) -> list[object]:
    """Return the prompts of a request for completions: texts, or lists of token ids."""
    prompts = cast(list[object], prompt) if isinstance(prompt, list) and not _are_ids(prompt) else [prompt]
    if not prompts or not all(p and (isinstance(p, str) or _are_ids(p)) for p in prompts):
        raise refused("a string, token ids, or a list of either, none of them empty", _kind(prompt))
    return prompts


def _are_ids(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(type(i) is int for i in cast(list[object], value))


class Form(BaseModel):
    """The form of an answer, the field ``response_format``."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: dict[str, object] = {}

    def ask(self, problem: Problem, answer_type: str | None) -> Problem:
        """Return ``problem`` with this form: its question asks for it, and other answers are unread.

        Raises:
            UserError: For a schema that is none.
        """
        if self.type == "text":
            return replace(problem, answer_type=answer_type or problem.answer_type)
        schema = {"type": "object"}
        if self.type == "json_schema":
            schema = self.json_schema.get("schema") or {}
        text = check_schema(schema)
        wanted = "a JSON object" if self.type == "json_object" else f"JSON that fits this JSON Schema: {text}"
        question = f"{problem.question}\n\nAnswer with {wanted}\nWrite nothing else."
        return replace(problem, question=question, answer_type="json", schema=text)


class Extra(BaseModel):
    """The field ``soft_reasoning``: options without a field of OpenAI's API."""

    model_config = ConfigDict(extra="forbid")

    preset: str | None = Field(default=None, pattern=r"^\w+$")
    k: int | None = Field(default=None, ge=1)
    rounds: int | None = Field(default=None, ge=0)
    max_seconds: float | None = Field(default=None, gt=0)
    answer_type: str | None = None


Count = Annotated[int, Field(ge=1)]
Stop = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    Field(max_length=16),  # OpenAI takes 4; tasks of lm-evaluation-harness have more
    BeforeValidator(lambda stop: [stop] if isinstance(stop, str) else stop),
]


class Body(BaseModel):
    """Fields of all requests for an answer; ``model_extra`` holds fields that are not read."""

    model_config = ConfigDict(extra="allow")

    model: str
    messages: list[ChatMessage] = []
    n: Count = 1
    temperature: float | None = Field(default=None, ge=0, le=2)
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    stop: Stop = []
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | int | None = None
    stream: bool | None = None
    stream_options: dict[str, object] | None = None
    response_format: Form = Form()
    soft_reasoning: Extra = Extra()

    @model_validator(mode="before")
    @classmethod
    def without_null(cls, fields: Any) -> Any:
        """Treat fields that are null as fields that were not sent."""
        return {k: v for k, v in fields.items() if v is not None} if isinstance(fields, dict) else fields

    asked_in: ClassVar[str]
    """The field with the question."""

    def questions(self, tokenizer: Any) -> list[QuestionLike]:
        """Return the questions of the request."""
        raise NotImplementedError

    def refuse_unused(self) -> None:
        """Reject fields that request features without effect here.

        Raises:
            ApiError: For the first such field.
        """
        extra = {
            name: value
            for name, value in (self.model_extra or {}).items()
            if name not in HINTS and value not in NEUTRAL.get(name, ())
        }
        for i, message in enumerate(self.messages):
            values = (message.model_extra or {}).items()
            extra |= {f"messages.{i}.{name}": value for name, value in values if name not in OF_MESSAGES}
        for name, value in extra.items():
            if value:
                raise ApiError(
                    400,
                    f"{name}: expected a field that has an effect here, got {name}={value!r:.40}; "
                    "leave it out, or start the server with server.unknown_fields=ignore",
                    name,
                )


class ChatBody(Body):
    """The body of ``/v1/chat/completions``."""

    messages: list[ChatMessage] = Field(min_length=1)
    asked_in = "messages"

    def questions(self, tokenizer: Any) -> list[QuestionLike]:
        return [[message.plain() for message in self.messages]]


class TextBody(Body):
    """The body of ``/v1/completions``, whose prompts reach the model unchanged."""

    prompt: Annotated[list[str | list[int]], BeforeValidator(read_prompts)]
    asked_in = "prompt"

    def questions(self, tokenizer: Any) -> list[QuestionLike]:
        prompts, size = self.prompt, len(tokenizer)
        if wrong := [i for p in prompts if not isinstance(p, str) for i in p if not 0 <= i < size]:
            raise ApiError(400, f"prompt: expected token ids in 0..{size - 1}, got {wrong[0]}", "prompt")
        texts = (prompt if isinstance(prompt, str) else decode(tokenizer, prompt) for prompt in prompts)
        return [{"question": t, "id": str(p), "prompt": p} for t, p in zip(texts, prompts, strict=True)]
