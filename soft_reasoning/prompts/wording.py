"""The wording of prompts; all texts are in ``conf/prompts/*.yaml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from soft_reasoning.checks import OptionError, form, texts
from soft_reasoning.types import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class ReviewWording:
    """The wording of a verifier's prompt: ``head``, worked reviews, ``ask`` and ``cue``.

    A worked review is ``ask``, ``cue`` and ``worked``, filled in from an entry of ``exemplars``.

    Attributes:
        ask: The question to the verifier, with {question} and {solutions}.
        head: The task.
        cue: The text that the model's answer follows.
        solution: The template of one solution, with {i} and {text}.
        first: The number {i} of the first solution.
        lines: Whether solutions keep their line breaks, as poems and code need; else each is one line.
        worked: The answer of a worked review, with the fields of its entry.
        exemplars: Entries with a question, its solutions (each ending in its "Answer: ...") and the fields
            of ``worked``.
    """

    ask: str
    head: str = ""
    cue: str = ""
    solution: str = "{i}. {text}"
    first: int = 1
    worked: str = ""
    exemplars: Sequence[Mapping[str, Any]] = ()
    lines: bool = False

    def __post_init__(self) -> None:
        _check_texts(self, "head", "cue")
        form("ask", self.ask, {"question": "", "solutions": ""}, needed=["question", "solutions"])
        form("solution", self.solution, {"i": 1, "text": ""}, needed=["text"])
        for entry in self.exemplars:
            form("worked", self.worked, entry)

    def listed(self, solutions: Sequence[str]) -> str:
        """Return ``solutions`` as a list."""
        texts = [text.strip() if self.lines else " ".join(text.split()) for text in solutions]
        return "\n".join(self.solution.format(i=i, text=text) for i, text in enumerate(texts, self.first))

    def opening(self, shots: int | None = None, brief: bool = False) -> str:
        """Return ``head`` and the first ``shots`` worked reviews (None: all).

        ``brief`` keeps only the answers of their solutions.

        Raises:
            UserError: If the wording has fewer.
        """
        if shots is not None and shots > len(self.exemplars):
            count = len(self.exemplars)
            raise UserError(f"verifier.shots: expected at most {count}, this prompt's reviews, got {shots}")
        text = self.head
        for entry in self.exemplars[:shots]:
            shown = [s[max(0, s.rfind("Answer:")) :] if brief else s for s in entry["solutions"]]
            text += self.ask.format(question=entry["question"], solutions=self.listed(shown))
            text += self.cue + self.worked.format(**entry)
        return text


@dataclass(frozen=True)
class TaskWording:
    """The wording of another task of a method, such as a sub-question.

    Attributes:
        ask: The question, with {question}, {steps} and the fields that the method names.
        head: The task.
        exemplars: Worked examples after the head, verbatim.
        cue: The text that the model's answer follows.
        step: The template of one {steps} entry, with {asked} and {answered}, for each sub-question so far.
        stop: Strings that end generation, in addition to those of the wording.
    """

    ask: str
    head: str = ""
    exemplars: Sequence[str] = ()
    cue: str = ""
    step: str = "Q: {asked}\nA: {answered}\n"
    stop: Sequence[str] = ()

    def __post_init__(self) -> None:  # ``Prompts.task`` checks ``ask``, whose fields the method names
        texts("stop", self.stop)
        _check_texts(self, "head", "cue")
        form("step", self.step, {"asked": "", "answered": ""})


@dataclass(frozen=True)
class Exemplar:
    """A worked problem in a few-shot prompt; ``thought`` has neither the prompt's cue nor the final line."""

    question: str
    thought: str
    answer: str


@dataclass(frozen=True)
class Wording:
    """The wording of one family of benchmarks.

    A solving prompt is ``head``, the exemplars, ``ask`` and ``cue``.

    Attributes:
        ask: The question, with {question}.
        head: The task.
        cue: The text that the model's answer follows.
        exemplar: The template of an exemplar, with {question}, {thought} and {answer}.
        stop: Strings that end generation.
        reviews: A :class:`ReviewWording` for each verifier.
        tasks: A :class:`TaskWording` for each other task of a method.

    Raises:
        UserError: For a template that cannot be filled in.
    """

    ask: str
    head: str = ""
    cue: str = ""
    exemplar: str = ""
    stop: Sequence[str] = ()
    reviews: Mapping[str, ReviewWording] = field(default_factory=dict)
    tasks: Mapping[str, TaskWording] = field(default_factory=dict)

    def __post_init__(self) -> None:
        texts("stop", self.stop)
        _check_texts(self, "head", "cue")
        form("ask", self.ask, {"question": ""}, needed=["question"])
        if self.exemplar:
            shown = {"question": "", "thought": "", "answer": ""}
            form("exemplar", self.exemplar, shown, needed=["question"])

    def review(self, kind: str) -> ReviewWording:
        """Return the wording of the verifier ``kind``.

        Raises:
            UserError: If there is none.
        """
        return _named(self.reviews, kind, f"verifier={kind}: this prompt has no wording for it")

    def task(self, kind: str) -> TaskWording:
        """Return the wording of the task ``kind``.

        Raises:
            UserError: If there is none.
        """
        return _named(self.tasks, kind, f"prompt: this prompt has no wording for the task {kind}")


def _named(wordings: Mapping[str, T], kind: str, message: str) -> T:
    if kind not in wordings:
        raise UserError(f"{message}; it has: {', '.join(sorted(wordings)) or 'none'}")
    return wordings[kind]


def _check_texts(wording: object, *names: str) -> None:
    for name in names:
        if not isinstance(text := getattr(wording, name), str):
            raise OptionError(name, f"expected a string, got {text!r}")
