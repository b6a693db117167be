"""What ``solve`` takes: a question in words, a mapping, a chat, or several of these."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NotRequired, Required, TypeAlias, TypedDict, cast

from soft_reasoning.checks import whole
from soft_reasoning.types import GivenPrompt, Problem, UserError

ROLES = ("system", "user", "assistant")


class Message(TypedDict):
    """One message of a chat: who says it (system, user or assistant), and its text."""

    role: str
    content: str


class Question(TypedDict):
    """A question with an id, which its random draws are seeded by; by default that is its text.

    ``prompt`` is the whole prompt in place of the wording: a text, which the tokenizer encodes with its
    special tokens, or token ids. With it, ``stop`` and ``max_new_tokens`` bound a completion. A verifier is
    still asked about ``question`` in its own wording.
    """

    question: Required[str]
    id: NotRequired[str | int]
    prompt: NotRequired[str | Sequence[int]]
    stop: NotRequired[Sequence[str]]
    max_new_tokens: NotRequired[int]


Asked: TypeAlias = str | Question | Sequence[Message]
"""One question. Of a chat it is the last message, which is the user's."""


def read_questions(given: Asked | Iterable[Asked], answer_type: str) -> tuple[list[Problem], bool]:
    """Return the problems, and whether it is a single one.

    Raises:
        UserError: For what is no question.
    """
    if isinstance(given, str | Mapping) or _is_chat(given):
        return [read_question(cast(Asked, given), answer_type)], True
    if not isinstance(given, Iterable) or isinstance(given, bytes):
        raise UserError(f"solve: expected a question in words or a list of them, got {given!r:.80}")
    return [read_question(cast(Asked, one), answer_type) for one in given], False


def read_question(given: Asked, answer_type: str) -> Problem:
    """Return one question as a problem."""
    name: Any = None
    earlier: tuple[tuple[str, str], ...] = ()
    text: Any = given
    own: GivenPrompt | None = None
    if isinstance(given, Mapping):
        text, name = cast(Mapping[str, Any], given).get("question"), given.get("id")
        own = _given_prompt(cast(Mapping[str, Any], given))
    elif _is_chat(given):
        messages = [_message(one) for one in cast(Sequence[Message], given)]
        *before, (role, text) = messages
        if role != "user":
            raise UserError(f"solve: expected a chat that ends with the user's message, got one of {role}")
        if before:
            name, earlier = json.dumps(messages, ensure_ascii=False), tuple(before)
    if not isinstance(text, str) or not text.strip():
        raise UserError(f"solve: expected a question in words, got {text!r:.80}")
    return Problem(text if name is None else str(name), text, None, answer_type, messages=earlier, given=own)


def _given_prompt(given: Mapping[str, Any]) -> GivenPrompt | None:
    """The prompt that a mapping holds, if any."""
    prompt, stop, most = given.get("prompt"), given.get("stop", ()), given.get("max_new_tokens")
    if prompt is None:
        if set(given) & {"stop", "max_new_tokens"}:
            raise UserError("solve: expected stop and max_new_tokens with a prompt, got them without one; "
                            "set prompt.wording.stop and max_new_tokens")  # fmt: skip
        return None
    if not (isinstance(prompt, str) or _all(int, prompt)) or not prompt:
        raise UserError(f"solve: expected a prompt that is a text or token ids, got {prompt!r:.80}")
    if not _all(str, stop) or not all(stop):
        raise UserError(f"solve: expected stop to be a list of texts, none of them empty, got {stop!r:.80}")
    if most is not None:
        whole("max_new_tokens", most, least=1)
    return GivenPrompt(prompt if isinstance(prompt, str) else tuple(prompt), tuple(stop), most)


def _all(kind: type, given: Any) -> bool:
    return isinstance(given, list | tuple) and all(isinstance(one, kind) for one in cast(list[Any], given))


def _is_chat(given: Any) -> bool:
    if not isinstance(given, list | tuple) or not given:
        return False
    return all(isinstance(one, Mapping) and "role" in one for one in cast(Sequence[Any], given))


def _message(one: Message) -> tuple[str, str]:
    role, content = one["role"], one.get("content")
    if role not in ROLES or not isinstance(content, str):
        raise UserError(
            f"solve: expected messages with a role ({', '.join(ROLES)}) and a text as content, got "
            f"{dict(one)!r:.80}"
        )
    return role, content
