"""The questions of ``solve``: text, a mapping, a chat, or several of these."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NotRequired, Required, TypeAlias, TypedDict, cast

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.checks import choice
from soft_reasoning.types import Problem, UserError

ROLES = ("system", "user", "assistant")


class Message(TypedDict):
    """One message of a chat: its role (system, user or assistant) and its text."""

    role: str
    content: str


class Question(TypedDict):
    """A question with an id, which seeds its random draws; the id is the text by default.

    ``answer_type`` is its type of answer, if it is not the reasoner's.
    ``prompt`` is the complete prompt in place of the wording: a text, which the tokenizer encodes with its
    special tokens, or token ids. A verifier still uses ``question`` and the configured wording.
    """

    question: Required[str]
    id: NotRequired[str | int]
    answer_type: NotRequired[str]
    prompt: NotRequired[str | Sequence[int]]


QuestionLike: TypeAlias = str | Question | Sequence[Message] | Problem
"""One question; in a chat the last message, which is the user's. A problem is taken as it is."""


def read_questions(
    questions: QuestionLike | Iterable[QuestionLike], answer_type: str
) -> tuple[list[Problem], bool]:
    """Return the problems, and whether ``questions`` is a single question.

    Raises:
        UserError: For an invalid question.
    """
    if isinstance(questions, str | Mapping | Problem) or _is_chat(questions):
        return [read_question(cast(QuestionLike, questions), answer_type)], True
    if not isinstance(questions, Iterable) or isinstance(questions, bytes):
        raise UserError(f"question: expected a question in words or a list of them, got {questions!r:.80}")
    return [read_question(cast(QuestionLike, question), answer_type) for question in questions], False


def read_question(question: QuestionLike, answer_type: str) -> Problem:
    """Return the problem of one question."""
    if isinstance(question, Problem):
        return question
    text: Any = question
    options: Mapping[str, Any] = {}
    earlier: tuple[tuple[str, str], ...] = ()
    if isinstance(question, Mapping):
        options = cast(Mapping[str, Any], question)
        if unknown := [key for key in options if key not in Question.__annotations__]:
            known = ", ".join(Question.__annotations__)
            raise UserError(f"question: expected a question with keys among {known}, got {unknown[0]!r:.80}")
        text = options.get("question")
    elif _is_chat(question):
        *before, (role, text) = map(_message, cast(Sequence[Message], question))
        earlier = tuple(before)
        if role != "user":
            raise UserError(f"question: expected a chat that ends with the user's message, got the {role}'s")
        if earlier:
            options = {"id": json.dumps([*earlier, (role, text)], ensure_ascii=False)}
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"question: expected a question in words, got {text!r:.80}")
    name = text if options.get("id") is None else str(options["id"])
    answer_type = choice("answer_type", options.get("answer_type") or answer_type, ANSWER_TYPES)
    prompt = options.get("prompt")
    if prompt is not None and (not (isinstance(prompt, str) or _all(int, prompt)) or not prompt):
        raise UserError(f"question: expected a prompt that is a string or token ids, got {prompt!r:.80}")
    given = tuple(prompt) if isinstance(prompt, list) else prompt
    return Problem(name, text, None, answer_type, messages=earlier, given=given)


def _all(kind: type, values: Any) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(v, kind) for v in cast(list[Any], values))


def _is_chat(value: Any) -> bool:
    return bool(value) and _all(Mapping, value) and all("role" in message for message in value)


def _message(message: Message) -> tuple[str, str]:
    role, content = message["role"], message.get("content")
    if role not in ROLES or not isinstance(content, str):
        raise UserError(
            f"question: expected messages with a role ({', '.join(ROLES)}) and a string as content, got "
            f"{dict(message)!r:.80}"
        )
    return role, content
