"""What was learnt from questions for one model and prompt, in a file of plain numbers."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import lru_cache
from os import PathLike
from typing import ClassVar, Self, cast

import numpy as np
import torch

from soft_reasoning.checks import OptionError, finite, local_path
from soft_reasoning.engine.paths import weights_fingerprint
from soft_reasoning.schedule.method import Context
from soft_reasoning.types import Problem, UserError

log = logging.getLogger(__name__)

SAMPLE_PROBLEM = Problem("prompt", "1 2 3", None)
"""A question whose prompt identifies the wording."""
LARGEST = torch.finfo(torch.float32).max
"""Models compute with 32 bits or fewer."""
SHAPES = ("a number", "a list of numbers", "lists of numbers that are equally long")
"""What a field of 0, 1 or 2 dimensions holds."""


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """What fits one model and prompt only, and must not be measured on the questions it was learnt from.

    Attributes:
        made_for: The model's weights and the prompt, by :func:`made_for`.
        questions: The fingerprint of each question that it was learnt from, by its id.

    Raises:
        OptionError: For a field of another type or shape, or a number that is not finite in 32 bits.
    """

    made_for: Mapping[str, str] = field(default_factory=dict[str, str])
    questions: Mapping[str, str] = field(default_factory=dict[str, str])
    option: ClassVar[str]
    """The option whose value is its file."""
    command: ClassVar[str]
    """The command that writes the file."""
    numbers: ClassVar[Mapping[str, int]]
    """The fields that hold numbers, with their dimensions."""

    def __post_init__(self) -> None:
        for name in ("made_for", "questions"):
            texts: object = getattr(self, name)
            if not isinstance(texts, Mapping) or not all(isinstance(text, str) for text in texts.values()):
                raise OptionError(name, f"expected texts by name, got {texts!r:.40}")
        for name, dimensions in self.numbers.items():
            values: object = getattr(self, name)
            table = np.array(values, dtype=object)  # rows of several lengths are no numbers in it
            if table.ndim != dimensions or not table.size or not all(map(_is_number, table.flat)):
                raise OptionError(name, f"expected {SHAPES[dimensions]}, all finite, got {values!r:.40}")
            object.__setattr__(self, name, table.astype(float).tolist())

    @property
    def hidden_size(self) -> float:
        """D, the size of the embeddings and hidden states that its numbers belong to."""
        raise NotImplementedError

    @classmethod
    def load(cls, source: Self | str | PathLike[str]) -> Self:
        """Read a file of :meth:`save`; what is loaded already stays as it is.

        Raises:
            OptionError: If the file is missing or holds something else; the line names the field.
        """
        if isinstance(source, cls):
            return source
        path = local_path(cls.option, cast(str, source))
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(**dict.fromkeys(each.name for each in fields(cls)) | content)
        except (OSError, ValueError, TypeError, RecursionError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            expected = f"expected a file that {cls.command} wrote"
            raise OptionError(cls.option, f"{expected}, got {path} ({reason}); tune again") from error

    def save(self, path: str | PathLike[str]) -> None:
        """Write it as JSON."""
        local_path(self.option, path).write_text(json.dumps(asdict(self)) + "\n", encoding="utf-8")

    def check_fits(self, context: Context) -> None:
        """Reject another model or prompt than it was made for.

        Raises:
            UserError: In one line that names the difference.
        """
        for key, value in made_for(context).items():
            if self.made_for.get(key) != value:
                raise UserError(
                    f"{self.option}: expected one that was made for this {key}, got one for another; "
                    f"tune again, or take the {key} that it was made for"
                )
        if self.hidden_size != context.engine.hidden_size:
            raise UserError(
                f"{self.option}: expected numbers for a hidden size of {context.engine.hidden_size}, got "
                f"{self.hidden_size}; tune again"
            )

    def check_unseen(self, problems: Sequence[Problem]) -> None:
        """Reject ``problems`` among which are questions that it was learnt from.

        Raises:
            UserError: In one line that names one of them.
        """
        known = {mark: name for name, mark in self.questions.items()}
        seen = [known[mark] for p in problems if (mark := p.fingerprint) in known]
        if seen:
            raise UserError(
                f"{self.option}: expected questions that it was not learnt from, got {len(seen)} that it "
                f"was, such as {seen[0]}; choose others with dataset.offset or dataset.split"
            )


def _is_number(value: object) -> bool:
    return finite(value) and abs(value) <= LARGEST


def labelled(problems: Sequence[Problem]) -> list[Problem]:
    """Return each question with a reference answer once, and log how many of ``problems`` repeat others.

    Otherwise a question could be on both sides of a split, and would count several times in an interval.
    """
    first: dict[str, Problem] = {}
    problems = [problem for problem in problems if problem.gold is not None]
    for problem in problems:
        first.setdefault(problem.fingerprint, problem)
    if repeated := len(problems) - len(first):
        log.warning("%d of %d questions repeat others and are left out", repeated, len(problems))
    return list(first.values())


def origin(context: Context, problems: Sequence[Problem]) -> dict[str, Mapping[str, str]]:
    """Return the fields of :class:`Learnt` for what is learnt from ``problems``."""
    questions = {problem.id: problem.fingerprint for problem in problems}
    return {"made_for": made_for(context), "questions": questions}


def made_for(context: Context) -> dict[str, str]:
    """Return what gives vectors their meaning: fingerprints of weights, adapter and prompt.

    They are the same for every engine that runs the model. A model in memory, which has no files, is known by
    its embedding table.
    """
    config = getattr(context.engine.model, "config", None)
    name = getattr(config, "_name_or_path", "")
    if name:
        model = _fingerprint(name, getattr(config, "_commit_hash", None))
    else:
        table = context.engine.embed(range(min(context.engine.vocabulary, 1024)))
        model = hashlib.sha256(table.numpy().tobytes()).hexdigest()[:16]
    if adapter := context.engine.settings.get("adapter"):
        model += f"+{_fingerprint(adapter, None)}"
    ids = json.dumps(context.prompts.solve(SAMPLE_PROBLEM).ids)
    return {"model": model, "prompt": hashlib.sha256(ids.encode()).hexdigest()[:16]}


@lru_cache(maxsize=8)
def _fingerprint(name: str, revision: str | None) -> str:
    """The fingerprint of a model's files, which every question asks for."""
    return weights_fingerprint(name, revision)
