"""Building prompts (token ids) from problems and exemplars, and placing the soft tokens."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, TypeAlias

import torch

from soft_reasoning.checks import choice, form
from soft_reasoning.prompts.chat import COMPLETION, ChatTemplate, Message, PromptEncoder
from soft_reasoning.prompts.wording import Exemplar, Wording
from soft_reasoning.thoughts import CHANNELS, MARKS, Marks, opened, split
from soft_reasoning.types import Problem, Prompt, UserError, generator_for

Messages: TypeAlias = tuple[Message, ...]
PLACEMENTS = ("first", "middle", "last")
LAYOUTS = ("auto", "chat", "completion")
CACHED_PROMPTS = 1024
"""Number of problems whose prompts are cached."""
DATE = "2024-07-26"
"""The default date of the templates of Llama 3.1."""
SPAN_TEXTS = ("Aye, zinc", "7 (seven)")
"""Two texts with different first and last tokens, so that only the template is common to their prompts."""


class Prompts:
    """Builds the prompts of one run.

    Args:
        tokenizer: The model's tokenizer; None where the engine takes messages alone. A prompt's cue then is
            the end of the user's message.
        wording: The wording.
        exemplars: Worked problems to show.
        layout: ``completion`` encodes plain text after the tokenizer's BOS. ``chat`` wraps it as a user's
            message and appends the cue to the assistant's header. ``auto`` is chat if the tokenizer has a
            template; the attribute ``layout`` holds the choice.
        system: A system message, with ``chat``.
        date: YYYY-MM-DD. Templates that state today's date (``strftime_now``) state this date, so that a
            prompt is the same on any day.
        chat_options: Options passed to ``apply_chat_template`` (``enable_thinking`` and the like).
        max_new_tokens: Tokens per solution, in place of the method's limit.
        answer_type: The type of answers that the wording asks for; None suits every type.
        others: Builds the prompts for another type of answer, when a problem first has it.

    Raises:
        UserError: For an unknown layout, a template that is missing or loses messages, or exemplars without
            a wording.
    """

    def __init__(
        self,
        tokenizer: Any,
        wording: Wording,
        *,
        exemplars: Sequence[Exemplar] = (),
        layout: str = "auto",
        system: str | None = None,
        date: str = DATE,
        chat_options: Mapping[str, object] | None = None,
        max_new_tokens: int | None = None,
        answer_type: str | None = None,
        others: Callable[[str], Prompts] | None = None,
    ):
        choice("prompt.layout", layout, LAYOUTS)
        if not isinstance(system, str | None) or not isinstance(chat_options, Mapping | None):
            raise UserError(f"prompt: expected system as text and chat_options by name, got {system!r:.40}")
        template = getattr(tokenizer, "chat_template", None)
        if tokenizer is None:
            if layout == "completion":
                raise UserError("prompt.layout=completion: this server takes messages; give model.tokenizer")
            layout = "messages"
        elif layout == "auto":
            layout = "chat" if template else "completion"
        if layout == "chat" and not template:
            raise UserError(f"prompt.layout=chat: this tokenizer has no chat template; {COMPLETION}")
        if exemplars and not wording.exemplar:
            raise UserError("dataset.shots: this prompt has no wording for exemplars; use dataset.shots=0")
        self.tokenizer: Any = tokenizer
        self.wording = wording
        self.exemplars: tuple[Exemplar, ...] = tuple(exemplars)
        self.stop: tuple[str, ...] = tuple(wording.stop)
        self._max_new_tokens = max_new_tokens
        self._ending: tuple[tuple[str, ...], int | None] = (), None
        self.answer_type = answer_type
        self._others = None if others is None else lru_cache(maxsize=None)(others)
        self.layout = layout
        self.system = system
        day = _day(date)
        shown = (wording.exemplar.format_map(vars(exemplar)) for exemplar in exemplars)
        self._head = wording.head + "".join(shown)
        # A problem's prompt is built for a check before any model work and again in every round.
        self._solution = lru_cache(CACHED_PROMPTS)(self._solution_prompt)
        self._cue = wording.cue
        self.marks: Marks | None = None
        """The marks around the thoughts in which a solution begins, or None."""
        self._opens_thoughts = False  # the template does, in every prompt
        if layout == "chat":
            self._template = ChatTemplate(tokenizer, day, chat_options or {})
            self._template.render(self._messages(SPAN_TEXTS[0], ()))  # with the system message
            self._cue, self.marks = self._thinking()

    @cached_property
    def _encode_text(self) -> PromptEncoder:
        return PromptEncoder(self.tokenizer)

    @property
    def neutral(self) -> bool:
        """Whether a prompt is the question alone and no thoughts come first: a solution is free text."""
        return self.wording.ask == "{question}" and not (self._head or self._cue or self.marks)

    def of(self, answer_type: str) -> Prompts:
        """Return the prompts that ask for answers of a type, with the ending of these."""
        if self._others is None or self.answer_type in (None, answer_type):
            return self
        return self._others(answer_type).ending(*self._ending)

    def ending(self, stop: Sequence[str] = (), max_new_tokens: int | None = None) -> Prompts:
        """Return these prompts with more texts that end a solution, and perhaps a limit of its tokens.

        ``max_new_tokens`` replaces the limit of the prompts and of the method. Reviews end as before.
        """
        prompts = copy(self)
        prompts._ending = tuple(stop), max_new_tokens
        return prompts

    def solve(self, problem: Problem) -> Prompt:
        """Return the prompt that asks for a solution: the problem's complete prompt if it has one.

        Raises:
            UserError: If the question is empty.
        """
        prompt, (stop, limit) = self._solution(problem), self._ending
        if limit is None and problem.given is None:
            limit = self._max_new_tokens
        return replace(prompt, stop=(*prompt.stop, *stop), max_new_tokens=limit, schema=problem.schema)

    def _solution_prompt(self, problem: Problem) -> Prompt:
        question = _question(problem)
        if (text := problem.given) is not None:
            if self.tokenizer is None:
                raise UserError("expected messages for this server, got a prompt; give model.tokenizer")
            ids = self._encode_text(text) if isinstance(text, str) else text
            thinks = opened(text if isinstance(text, str) else self.tokenizer.decode(list(text))) is not None
            return Prompt(ids, thinks=thinks)
        prompt = self._build(problem, self._head, self.wording.ask, self._cue, question=question)
        return replace(prompt, thinks=self.marks is not None)

    def split(self, text: str, problem: Problem) -> tuple[str, str]:
        """Return the thoughts in the ``text`` of a problem's solution, and the text after them.

        The text is empty where the solution ends while the model thinks.
        """
        return split(text, self.solve(problem).thinks)

    def _thinking(self) -> tuple[str, Marks | None]:
        """Return the cue that opens a thinking model's thoughts, and the marks of these thoughts.

        The first generated token, which a soft token replaces, then is the first token of the thoughts.
        """
        messages = [("user", SPAN_TEXTS[0])]
        text, off = self._template.render(messages), self._template.render(messages, enable_thinking=False)
        system, _, header = text.rpartition(SPAN_TEXTS[0])
        if marks := opened(header):
            self._opens_thoughts = True
            return self._cue, marks
        if self._cue:  # it begins the answer
            return self._cue, None
        if text != off:
            source = self._template.source + off
            marks = next((marks for marks in MARKS if marks.close in source), None)
        elif CHANNELS.open in self._template.source:
            marks = CHANNELS
        else:  # a system prompt of the template asks for them
            marks = next((marks for marks in MARKS if marks.open.strip() in system), None)
        return (marks.open, marks) if marks and marks.close not in header else ("", None)

    def review(
        self,
        kind: str,
        problem: Problem,
        solutions: Sequence[str],
        *,
        shots: int | None = None,
        brief: bool = False,
        room: int | None = None,
    ) -> Prompt:
        """Return the prompt that shows ``solutions`` to the verifier ``kind``, each on one line.

        Args:
            kind: The verifier's name.
            problem: The problem.
            solutions: The solutions.
            shots: Number of worked reviews; None shows all, or as many as keep the prompt within ``room``.
            brief: Whether the solutions of worked reviews are shown as answers only.
            room: Maximum length of the prompt in tokens.

        Raises:
            UserError: If this prompt has no wording for the verifier.
        """
        wording = self.wording.review(kind)
        fields = {"question": _question(problem), "solutions": wording.listed(solutions)}
        count = len(wording.exemplars) if shots is None else shots
        while True:
            opening = wording.opening(count, brief)
            prompt = self._build(problem, opening, wording.ask, wording.cue, **fields)
            prompt = replace(prompt, thinks=self._opens_thoughts)
            if shots is not None or room is None or len(prompt.ids) <= room or not count:
                return prompt
            count -= 1

    def task(
        self,
        kind: str,
        problem: Problem,
        steps: Sequence[tuple[str, str]] = (),
        *,
        shots: int | None = None,
        **fields: str,
    ) -> Prompt:
        """Return the prompt of another task, ``wording.tasks[kind]`` with its ``fields`` filled in.

        ``steps`` are pairs (sub-question, answer), each on one line. At most ``shots`` exemplars are shown.

        Raises:
            UserError: If this prompt has no wording for the task.
        """
        wording = self.wording.task(kind)
        listed = "".join(wording.step.format(asked=question, answered=answer) for question, answer in steps)
        question = _question(problem)
        all_fields = {"question": question, "steps": listed, **fields}
        form(f"prompt.wording.tasks.{kind}.ask", wording.ask, all_fields, needed=["question", *fields])
        head = wording.head + "".join(wording.exemplars[:shots])
        prompt = self._build(problem, head, wording.ask, wording.cue, **all_fields)
        return replace(prompt, stop=(*prompt.stop, *wording.stop))

    def position(self, prompt: Prompt, placement: str, problem: Problem, *, seed: int) -> int:
        """Return the index in ``prompt.ids`` before which soft tokens are inserted.

        ``last`` is after the prompt and its cue, ``first`` before the text and after any BOS or template
        header. ``middle`` is drawn once per problem, uniformly from the positions inside the text and
        before the cue; the paper ("Impact of Special Token Placement") does not define "middle" further.
        """
        choice("placement", placement, PLACEMENTS)
        if placement == "last":
            return len(prompt.ids)
        if self.layout == "completion" or problem.given is not None:
            before, after = self._encode_text.opening(prompt.ids), 0
        else:
            before, after = self._header_lengths(problem.messages)
        if placement == "first":
            return before
        span = max(1, len(prompt.ids) - prompt.cue - after - before - 1)
        draw = generator_for(seed, problem.id, "placement")
        return before + 1 + int(torch.randint(span, (), generator=draw))

    def _header_lengths(self, messages: Messages) -> tuple[int, int]:
        """Number of tokens before and after the question's text; earlier ``messages`` count as before."""
        a, b = (self._encode(text, "", messages) for text in SPAN_TEXTS)
        return len(os.path.commonprefix([a, b])), len(os.path.commonprefix([a[::-1], b[::-1]]))

    def _build(self, problem: Problem, head: str, ask: str, cue: str, **fields: str) -> Prompt:
        text = head + ask.format(**fields)
        if self.tokenizer is None:
            messages = self._messages(f"{text}\n{cue}" if cue else text, problem.messages)
            return Prompt((), stop=self.stop, messages=messages)
        ids = self._encode(text, cue, problem.messages)
        length = len(self.tokenizer.encode(cue, add_special_tokens=False)) if cue else 0
        return Prompt(ids, cue=length, stop=self.stop)

    def _encode(self, text: str, cue: str, earlier: Messages) -> tuple[int, ...]:
        if self.layout == "completion":
            before = "".join(f"{role.capitalize()}: {content}\n\n" for role, content in earlier)
            return self._encode_text(before + text + cue)
        ids = self.tokenizer.encode(
            self._template.render(self._messages(text, earlier)), add_special_tokens=False
        )
        return tuple(ids) + tuple(self.tokenizer.encode(cue, add_special_tokens=False) if cue else ())

    def _messages(self, text: str, earlier: Messages) -> Messages:
        messages: Messages = (*earlier, ("user", text))
        if self.system is None or messages[0][0] == "system":
            return messages
        return (("system", self.system), *messages)


def _day(date: str) -> datetime:
    try:
        return datetime.strptime(date, "%Y-%m-%d")
    except (TypeError, ValueError) as error:
        raise UserError(f"prompt.date: expected a date such as {DATE}, got {date!r:.40}") from error


def _question(problem: Problem) -> str:
    question = problem.question.strip()
    if not question:
        raise UserError(f"problem {problem.id}: expected a question, got empty text")
    try:
        "".join((question, *(text for _, text in problem.messages))).encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can escape
        wrong = error.object[error.start : error.end]
        raise UserError(
            f"problem {problem.name}: expected a question in Unicode text, got {wrong!r} in it; fix it"
        ) from error
    return question
