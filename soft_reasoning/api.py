"""Soft Reasoning from Python: SoftReasoner.from_pretrained(name).solve(question)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, cast

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.build import (
    build_context,
    build_dataset,
    build_engine,
    build_method,
    check_lengths,
    check_prior,
    check_unseen,
)
from soft_reasoning.checks import choice
from soft_reasoning.config import check_prompt, compose_config, one_line, override, prompt_for
from soft_reasoning.context import Context
from soft_reasoning.data.demo import FOLDER
from soft_reasoning.evaluation.progress import Progress
from soft_reasoning.methods.base import Method
from soft_reasoning.scheduler import MAX_LIVE, Clock, drive
from soft_reasoning.types import Problem, Result, UserError

OF_RUNS = (
    "budget", "dataset.limit", "dataset.offset", "dataset.sample", "fresh", "hydra", "label", "launcher",
    "limit", "ray",
)  # fmt: skip
"""What only a run of a data set reads."""


class SoftReasoner:
    """A method bound to a loaded model.

    Build one with :meth:`from_pretrained`. As a context manager it frees the model at the end.

    Example:
        >>> with SoftReasoner.from_pretrained("demo") as reasoner:
        ...     result = reasoner.solve("Sam has 8 cards. 1) Sam gets 10. How many cards does Sam have now?")
        ...     print(result.answer)
    """

    def __init__(
        self, method: Method, context: Context, answer_type: str = "number", max_live: int = MAX_LIVE
    ):
        self.method = method
        self.context = context
        self.answer_type = answer_type
        self.max_live = max_live
        self._closed = False

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | PathLike[str] = "demo",
        *,
        prompt: str | None = None,
        answer_type: str = "number",
        seed: int = 0,
        overrides: Sequence[str] = (),
        **options: Any,
    ) -> SoftReasoner:
        """Load a model by its name on the hub or its folder; "demo" is the one that ships.

        ``prompt`` is a choice of the configuration group of that name (by default ``demo`` for the
        bundled model, ``math`` for numbers, else that of the name of ``answer_type``). ``overrides`` are
        configuration overrides as on the command line, such as ``"method=random_embedding"`` or
        ``"embedding.dim=20"``, but for those that only a run of a data set reads; a data set gives its
        exemplars where ``dataset.shots`` asks for any. ``options`` go to the model's configuration
        (dtype, device_map, ...).

        Raises UserError, in one line, for a model or an option that does not exist, and for a prompt that
        asks for answers of another type.
        """
        if not _is_path(name_or_path):
            raise UserError(f"from_pretrained: expected a model's name or folder, got {name_or_path!r}")
        if not _are_texts(overrides):
            raise UserError(f'overrides: expected a list such as ["method=cot"], got {overrides!r}')
        for one in overrides:
            key = one.lstrip("+~").partition("=")[0]
            if any(key == known or key.startswith((f"{known}.", f"{known}/")) for known in OF_RUNS):
                raise UserError(f"overrides: expected what solving a question takes, got {one}, which only "
                                "python -m soft_reasoning.run reads; leave it out")  # fmt: skip
        choice("answer_type", answer_type, ANSWER_TYPES)
        bundled = (
            name_or_path == "demo"
            or Path(name_or_path).expanduser().resolve() == (FOLDER / "model").resolve()
        )
        default = "demo" if bundled else prompt_for(answer_type)
        config = compose_config(
            [
                f"prompt={prompt or default}",
                override("model.path", fspath(name_or_path)),
                override("seed", seed),
                *overrides,
            ]
        )
        check_prompt(config, "answer_type", answer_type)
        for key, value in options.items():  # as they are: Hydra's grammar has no {"": "cpu"}
            choice("from_pretrained: options", key, [str(one) for one in config.model])
            config.model[key] = value
        if config.methods is not None:
            raise UserError(
                "overrides: expected one method, got a comparison; give method=NAME, or compare "
                "with python -m soft_reasoning.run"
            )
        try:
            method = build_method(config)
            exemplars = build_dataset(config).exemplars(config.seed)
            context = build_context(config, build_engine(config), exemplars)
            check_prior(config, method, context)
            return cls(method, context, answer_type, config.max_live)
        except (HydraException, OmegaConfBaseException) as error:
            raise UserError(one_line(error)) from error

    def solve(
        self,
        questions: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]],
        *,
        progress: bool = False,
    ) -> Result | list[Result]:
        """Answer one question (a Result) or several together (a list, in the order given).

        A Result has ``.answer`` (text; None when nothing could be read), ``.candidates`` and ``.trace``.
        A mapping with the keys question and id fixes the id that seeds are drawn from; otherwise a
        question's own text is its id, so that it gets the same answer alone and in any list.
        ``progress`` shows on standard error how far a list is.

        Raises UserError, in one line, for what is no question or longer than the model's context, for an id
        with two questions, and after :meth:`close`.
        """
        if self._closed:
            raise UserError("solve: expected an open SoftReasoner, got a closed one; load it again")
        alone = isinstance(questions, str | Mapping)
        if not alone and not _is_list(questions):
            raise UserError(f"solve: expected a question in words or a list of them, got {questions!r}")
        problems = [self._problem(q) for q in ([questions] if alone else questions)]
        unique: dict[str, Problem] = {}
        for problem in problems:
            if unique.setdefault(problem.id, problem) != problem:
                raise UserError(f"solve: expected one question an id, got two for {problem.id!r}; rename one")
        check_lengths(list(unique.values()), self.context)
        check_unseen(list(unique.values()), self.method)
        results: dict[str, Result] = {}
        with Progress(len(unique), enabled=progress) as shown:
            for problem, result in drive(
                unique.values(), self.method, self.context,
                max_live=self.max_live, clock=Clock(), on_tick=shown.show,
            ):  # fmt: skip
                results[problem.id] = result
                shown.done += 1
        return results[problems[0].id] if alone else [results[p.id] for p in problems]

    def close(self) -> None:
        """Give the model's memory back."""
        if not self._closed:
            self._closed = True
            self.context.engine.close()

    def __enter__(self) -> SoftReasoner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def problem(self, question: str | Mapping[str, Any], gold: str | None = None) -> Problem:
        """The question as methods see it, with its reference answer where there is one.

        Raises:
            UserError: If it is no question, or longer than the model's context.
        """
        problem = replace(self._problem(question), gold=gold)
        check_lengths([problem], self.context)
        check_unseen([problem], self.method)
        return problem

    def _problem(self, question: str | Mapping[str, Any]) -> Problem:
        asked = question if isinstance(question, Mapping) else {"question": question}
        text, name = asked.get("question"), asked.get("id")
        if not isinstance(text, str) or not text.strip():
            raise UserError(f"solve: expected a question in words, got {text!r}")
        return Problem(text if name is None else str(name), text, None, self.answer_type)


def _is_path(value: Any) -> bool:
    return isinstance(value, str | PathLike) and bool(fspath(cast(str, value)))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in cast(list[Any], value))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, bytes)
