"""What a tokenizer adds to a prompt: its special tokens, and its chat template around messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeAlias

from soft_reasoning.types import UserError

SOME_TEXT = "7 (seven)"
Message: TypeAlias = tuple[str, str]
"""The role and the text of a message."""
SAMPLE = "Aye, zinc"
"""The beginning of texts that no template contains."""
OF_DATES = "aAbBcdHIjmMpSUwWxXyYZ%"
"""Letters of the fields of dates and times."""
COMPLETION = "use prompt.layout=completion"
WITHOUT_SYSTEM = "leave the system message out (prompt.system)"


class PromptEncoder:
    """Texts to the token ids of prompts.

    A prompt begins as the tokenizer begins every text (with BOS, for most), also where the text already holds
    these tokens, and never ends with the tokens that it puts at the end (EOS), since a solution follows.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        bare, whole = tokenizer.encode(SOME_TEXT, add_special_tokens=False), tokenizer.encode(SOME_TEXT)
        starts = range(len(whole) - len(bare) + 1)
        before = next((n for n in starts if whole[n : n + len(bare)] == bare), 0)
        self.before: list[int] = whole[:before]
        """The tokens at the beginning of every prompt."""
        self._after = len(whole) - before - len(bare)

    def __call__(self, text: str) -> tuple[int, ...]:
        """Return the token ids of ``text`` as a prompt."""
        ids, size = list(self._tokenizer.encode(text)), len(self.before)
        start = size if ids[size : 2 * size] == self.before else 0
        return tuple(ids[start : len(ids) - self._after])

    def opening(self, ids: Sequence[int]) -> int:
        """Return the number of such tokens at the beginning of the prompt ``ids``."""
        if self.before and list(ids[: len(self.before)]) == self.before:
            return len(self.before)
        return int(ids[0] == getattr(self._tokenizer, "bos_token_id", None))


class ChatTemplate:
    """Renders messages by a tokenizer's chat template.

    Some templates read a message's content as a text, others as a list of parts, and skip what is in the
    other form without an error. So for each order of roles some messages of known text are rendered first.

    Args:
        tokenizer: A tokenizer with a chat template.
        date: The day that the template gets as today's.
        options: Options of ``apply_chat_template``.

    Raises:
        UserError: If none of several templates is chosen.
    """

    def __init__(self, tokenizer: Any, date: datetime, options: Mapping[str, object]) -> None:
        self._tokenizer, self._options = tokenizer, dict(options)
        self.source: str = _chosen(tokenizer, self._options.pop("chat_template", None))
        dated = _today(date) if "strftime_now" in self.source else ""
        self._options |= {
            "chat_template": dated + self.source,
            "tokenize": False,
            "add_generation_prompt": True,
        }
        self._roles_of_parts = lru_cache(self._find_roles_of_parts)

    def render(self, messages: Sequence[Message], **options: object) -> str:
        """Return the prompt's text, which ends with the assistant's header.

        ``options`` replace those of the class.

        Raises:
            UserError: If the template fails, or leaves out a message.
        """
        text = self._apply(messages, self._roles_of_parts(tuple(role for role, _ in messages)), **options)
        squeezed = _squeeze(text)
        for role, content in messages:  # a template may leave out the thoughts of earlier answers
            if role != "assistant" and _squeeze(content) not in squeezed:
                raise _left_out(role, f"text ({content[-60:]!r})")
        return text

    def _find_roles_of_parts(self, roles: tuple[str, ...]) -> frozenset[str]:
        """Return the roles whose messages the template reads as lists of parts."""
        messages = [(role, f"{SAMPLE} {i}.") for i, role in enumerate(roles)]
        everyone = frozenset(roles)
        best, reason = len(roles) + 1, UserError()
        for of_parts in (frozenset[str](), frozenset({"user"}), everyone - {"system"}, everyone):
            try:
                text = self._apply(messages, of_parts)
            except UserError as error:
                lost, why = len(roles), error
            else:
                missing = [role for role, content in messages if content not in text]
                if not missing and "'type':" not in text:  # not the list itself
                    return of_parts
                lost, why = len(missing), _left_out(missing[0] if missing else "user", "message")
            if lost < best:
                best, reason = lost, why
        raise reason

    def _apply(self, messages: Sequence[Message], of_parts: frozenset[str], **options: object) -> str:
        entries = [
            {"role": role, "content": [{"type": "text", "text": text}] if role in of_parts else text}
            for role, text in messages
        ]
        try:
            return str(self._tokenizer.apply_chat_template(entries, **self._options | options))
        except Exception as error:  # a template is a program of the model's author, which may raise any error
            why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            fix = WITHOUT_SYSTEM if messages[0][0] == "system" else COMPLETION
            raise UserError(
                f"prompt.layout=chat: this chat template rejects the prompt ({why}); {fix}"
            ) from error


def _chosen(tokenizer: Any, wanted: Any) -> str:
    """The template ``wanted`` (a name or a text), or the tokenizer's default."""
    templates, name = tokenizer.chat_template, wanted or "default"
    if not isinstance(templates, dict):
        return templates if wanted is None else wanted
    if name not in templates and "{" not in name:  # with a brace it is a template
        names = sorted(map(str, templates))
        raise UserError(
            f"prompt.layout=chat: expected one of this tokenizer's chat templates ({', '.join(names)}), got "
            f"{wanted or 'none, and none is the default'}; add +prompt.chat_options.chat_template={names[0]}"
        )
    return templates.get(name, name)


def _today(day: datetime) -> str:
    """A macro that replaces the template's clock, since templates are given no functions."""
    fields = [f"{sign}{letter}" for letter in OF_DATES for sign in ("%", "%-")]
    replaced = "".join(f"|replace('{field}', '{day.strftime(field)}')" for field in fields)
    return "{%- macro strftime_now(format) -%}{{ format" + replaced + " }}{%- endmacro -%}"


def _squeeze(text: str) -> str:
    return "".join(text.split())


def _left_out(role: str, what: str) -> UserError:
    fix = f"choose another by prompt.chat_options.chat_template, or {COMPLETION}"
    return UserError(
        "prompt.layout=chat: expected a chat template that shows every message, and this one leaves out the "
        f"{role}'s {what}; {WITHOUT_SYSTEM if role == 'system' else fix}"
    )
