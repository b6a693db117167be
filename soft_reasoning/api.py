"""Soft Reasoning from Python: SoftReasoner.from_pretrained(name).solve(question)."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias, cast

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
from soft_reasoning.engines.abilities import check_abilities
from soft_reasoning.evaluation.progress import Progress
from soft_reasoning.methods.base import Method
from soft_reasoning.scheduler import MAX_LIVE, Clock, Outcome
from soft_reasoning.types import Problem, Result, UserError
from soft_reasoning.worker import Call, Tell, Worker

OF_RUNS = (
    "budget", "dataset.limit", "dataset.offset", "dataset.sample", "fresh", "hydra", "label", "launcher",
    "limit", "ray",
)  # fmt: skip
"""What only a run of a data set reads."""


Questions: TypeAlias = str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]]
"""A question in words, a mapping with the key question (and id), or a list of these."""


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
        self._worker = Worker(context.engine, max_live)
        weakref.finalize(self, self._worker.close)  # where nobody closes it

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
        questions: Questions,
        *,
        progress: bool = False,
    ) -> Result | list[Result]:
        """Answer one question (a Result) or several together (a list, in the order given).

        A Result has ``.answer`` (text; None when nothing could be read), ``.candidates`` and ``.trace``.
        A mapping with the keys question and id fixes the id that seeds are drawn from; otherwise a
        question's own text is its id, so that it gets the same answer alone and in any list.
        ``progress`` shows on standard error how far a list is. Several threads may call at once: their
        questions share batches, and each gets the same answer as alone.

        Raises UserError, in one line, for what is no question or longer than the model's context, for an id
        with two questions, and for a closed reasoner.
        """
        problems, alone = self._problems(questions)
        results: dict[str, Result] = {}
        told: SimpleQueue[tuple[Problem | None, Outcome]] = SimpleQueue()
        call = self._call(problems, lambda problem, outcome: told.put((problem, outcome)))
        self._worker.submit(call)
        try:
            with Progress(len(call.problems), enabled=progress) as shown:
                shown.show(Clock())
                while len(results) < len(call.problems):
                    _note(results, *told.get())
                    shown.done = len(results)
                    shown.show(Clock(generated_tokens=_written(results)))
        except BaseException:  # an error, or Ctrl-C
            self._worker.cancel(call)
            raise
        return results[problems[0].id] if alone else [results[p.id] for p in problems]

    async def asolve(self, questions: Questions) -> Result | list[Result]:
        """As :meth:`solve`, from any event loop, which goes on meanwhile; a cancelled task ends its work."""
        problems, alone = self._problems(questions)
        results: dict[str, Result] = {}
        loop, told = asyncio.get_running_loop(), asyncio.Queue[tuple[Problem | None, Outcome]]()

        def tell(problem: Problem | None, outcome: Outcome) -> None:
            try:
                loop.call_soon_threadsafe(told.put_nowait, (problem, outcome))
            except RuntimeError:  # the loop was closed with the task in it
                self._worker.cancel(call)

        call = self._call(problems, tell)
        self._worker.submit(call)
        try:
            while len(results) < len(call.problems):
                _note(results, *await told.get())
        except BaseException:  # an error, or the task was cancelled
            self._worker.cancel(call)
            raise
        return results[problems[0].id] if alone else [results[p.id] for p in problems]

    def run_method(self, problem: Problem, method: Method) -> Result:
        """Solve one problem with another method, as :meth:`solve` does with the reasoner's own."""
        told: SimpleQueue[Outcome] = SimpleQueue()
        call = self._call([problem], lambda _, outcome: told.put(outcome), method)
        self._worker.submit(call)
        try:
            outcome = told.get()
        except BaseException:  # Ctrl-C
            self._worker.cancel(call)
            raise
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def close(self) -> None:
        """Give the model's memory back; calls in work in other threads get an error."""
        self._worker.close()

    def __enter__(self) -> SoftReasoner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def problem(self, question: str | Mapping[str, Any], gold: str | None = None) -> Problem:
        """The question as methods see it, with its reference answer where there is one.

        Raises:
            UserError: If it is no question.
        """
        return replace(self._problem(question), gold=gold)

    def _call(self, problems: Sequence[Problem], tell: Tell, method: Method | None = None) -> Call:
        """Return a call of the worker for the different ones among ``problems``.

        Raises:
            UserError: For an id with two questions.
        """
        unique: dict[str, Problem] = {}
        for problem in problems:
            if unique.setdefault(problem.id, problem) != problem:
                raise UserError(f"solve: expected one question an id, got two for {problem.id!r}; rename one")
        chosen, asked = method or self.method, list(unique.values())

        def check() -> None:
            check_abilities(chosen, self.context.engine)
            check_lengths(asked, self.context)
            check_unseen(asked, chosen)

        return Call(asked, chosen, self.context, check, tell)

    def _problems(self, questions: Questions) -> tuple[list[Problem], bool]:
        """The problems, and whether it is one that was not in a list."""
        alone = isinstance(questions, str | Mapping)
        if not alone and not _is_list(questions):
            raise UserError(f"solve: expected a question in words or a list of them, got {questions!r}")
        return [self._problem(q) for q in ([questions] if alone else questions)], alone

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


def _note(results: dict[str, Result], problem: Problem | None, outcome: Outcome) -> None:
    """Add a result to ``results``, or raise the error that came in its place."""
    if isinstance(outcome, Exception):
        raise outcome
    assert problem is not None
    results[problem.id] = outcome


def _written(results: Mapping[str, Result]) -> int:
    return sum(usage.generated_tokens for one in results.values() for usage in one.usage.values())
