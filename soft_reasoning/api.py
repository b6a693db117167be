"""Soft Reasoning from Python: SoftReasoner.from_pretrained(name).solve(question)."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from os import PathLike, fspath
from queue import SimpleQueue
from typing import Any, TypeAlias, Unpack, cast, overload

from omegaconf import DictConfig

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.checks import choice
from soft_reasoning.configuration.build import build_engine
from soft_reasoning.configuration.compose import is_bundled, model_overrides, override, prompt_for
from soft_reasoning.configuration.options import (
    LoadOptions,
    Options,
    check_overrides,
    checked,
    loading_settings,
)
from soft_reasoning.configuration.parts import Parts, PartsMaker, check_solvable
from soft_reasoning.configuration.prompt_files import PromptLike, is_file_name, prompt_settings
from soft_reasoning.data.questions import Asked, Question, read_question, read_questions
from soft_reasoning.engines.base import Engine
from soft_reasoning.methods.cot import ChainOfThought
from soft_reasoning.runs.progress import Progress
from soft_reasoning.scheduling.context import Context, Limits
from soft_reasoning.scheduling.job import Clock
from soft_reasoning.scheduling.method import Method
from soft_reasoning.scheduling.worker import Call, Update, Worker
from soft_reasoning.solution import Solution
from soft_reasoning.types import Candidate, Problem, Result, Round, UserError

OnRound: TypeAlias = Callable[[Round], None]


class SoftReasoner:
    """Methods bound to a loaded model.

    ``SoftReasoner(model, tokenizer)`` takes a causal language model of transformers as it is;
    :meth:`from_pretrained` loads one. All calls share it, whatever their method, and may come from any thread
    and any event loop: one thread of the reasoner's own drives the model. As a context manager it frees the
    model at the end.

    Args:
        model: A causal language model, in evaluation mode afterwards.
        tokenizer: Its tokenizer. Where it has a chat template, prompts use it.
        prompt: The name of a shipped prompt (by default ``math`` for numbers, else that of ``answer_type``),
            a YAML file, a mapping with the same keys, or a :class:`~soft_reasoning.prompts.Wording`.
        answer_type: The type of answers: number, boolean, choice, text, latex, json, code or open (any text).
            By default that of the prompt; without a prompt a question is any question (``prompt="any"``,
            open answers), but for the bundled model, which solves word problems alone.
        overrides: Overrides of the configuration as on the command line, such as ``"embedding.dim=20"``, but
            for those that only a run of a data set reads.
        options: method, preset, k, rounds, max_tokens, verifier and the others of
            :class:`~soft_reasoning.configuration.options.Options`.

    Raises:
        UserError: In one line, for an option that does not exist, and for a prompt that asks for answers of
            another type.

    Example:
        >>> with SoftReasoner.from_pretrained("demo") as reasoner:
        ...     result = reasoner.solve(
        ...         "Sam has 8 cards. 1) Sam gets 10. 2) Sam loses 5. How many cards does Sam have now?"
        ...     )
        ...     print(result.answer)
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        prompt: PromptLike | None = None,
        answer_type: str | None = None,
        overrides: Sequence[str] = (),
        **options: Unpack[Options],
    ) -> None:
        from soft_reasoning.engines.huggingface import HuggingFaceEngine  # imports transformers

        if isinstance(model, str | PathLike):
            raise UserError(f"SoftReasoner: expected a loaded model, got {model!r}; use from_pretrained")
        if hasattr(tokenizer, "get_input_embeddings") and not hasattr(model, "get_input_embeddings"):
            raise UserError("SoftReasoner: expected a model and its tokenizer, got them in the other order; "
                            "swap them")  # fmt: skip
        name = getattr(model, "name_or_path", None) or "model"

        def loaded(config: DictConfig) -> Engine:
            most = config.engine.get("max_batch_tokens")
            return HuggingFaceEngine.from_loaded(model, tokenizer, max_batch_tokens=most)

        self._open(name, prompt, answer_type, overrides, checked(options, "SoftReasoner"), {}, loaded)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | PathLike[str] = "demo",
        *,
        prompt: PromptLike | None = None,
        answer_type: str | None = None,
        overrides: Sequence[str] = (),
        **options: Unpack[LoadOptions],
    ) -> SoftReasoner:
        """Load a model by its name on the hub or its folder; "demo" is the one that ships.

        The bundled model has a prompt of its own by default. A data set given by ``overrides`` gives its
        exemplars where ``dataset.shots`` asks for any.

        Args:
            name_or_path: The name or the folder.
            prompt, answer_type, overrides: As for the class.
            options: Those of the class, and how the model is loaded: device, dtype, device_map, quantization,
                revision, adapter, attn_implementation, trust_remote_code.

        Raises:
            UserError: In one line, for a model or an option that does not exist.
        """
        if not isinstance(cast(Any, name_or_path), str | PathLike) or not fspath(name_or_path):
            raise UserError(f"from_pretrained: expected a model's name or folder, got {name_or_path!r}")
        settings, own = loading_settings(options)
        self = cls.__new__(cls)
        name = fspath(name_or_path)
        self._open(name, prompt, answer_type, overrides, own, settings, build_engine)
        return self

    def _open(
        self,
        model: str,
        prompt: PromptLike | None,
        answer_type: str | None,
        overrides: Sequence[str],
        options: Options,
        settings: Mapping[str, Any],
        load: Callable[[DictConfig], Engine],
    ) -> None:
        """Build the parts of the reasoner's own options, load the model and make the worker."""
        check_overrides(overrides)
        if answer_type is not None:
            choice("answer_type", answer_type, ANSWER_TYPES)
        default = "demo" if is_bundled(model) else prompt_for(answer_type or "open")
        shipped = prompt is None or (isinstance(prompt, str) and not is_file_name(prompt))
        base = [
            *([override("model.path", model)] if is_bundled(model) else model_overrides(model)),
            f"prompt={(prompt if shipped else None) or default}",
            override("seed", options.pop("seed", 0)),
        ]
        self._name = model
        own_prompt = None if shipped else prompt_settings(cast(PromptLike, prompt))
        self._parts = PartsMaker(
            base, list(overrides), options, prompt=own_prompt, answer_type=answer_type, settings=settings,
            load=load,
        )  # fmt: skip
        self._worker = Worker(self._parts.engine, self._parts.own.config.max_live)
        weakref.finalize(self, self._worker.close)  # where nobody closes it
        try:
            self._parts.check()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return (
            f"SoftReasoner({self._name!r}, method={self.method.name}, answer_type={self.answer_type}{state})"
        )

    @property
    def answer_type(self) -> str:
        """The type of answers."""
        return self._parts.answer_type

    @property
    def method(self) -> Method:
        """The reasoner's own method."""
        return self._parts.own.method

    @property
    def context(self) -> Context:
        """What the reasoner's own method reads."""
        return self._parts.own.context

    @overload
    def solve(  # pyright: ignore[reportOverlappingOverload]
        self, questions: Asked, *,
        progress: bool = False, on_round: OnRound | None = None, **options: Unpack[Options],
    ) -> Solution: ...  # fmt: skip

    @overload
    def solve(
        self, questions: Iterable[Asked], *,
        progress: bool = False, on_round: OnRound | None = None, **options: Unpack[Options],
    ) -> list[Solution]: ...  # fmt: skip

    def solve(
        self, questions: Asked | Iterable[Asked], *,
        progress: bool = False, on_round: OnRound | None = None, **options: Unpack[Options],
    ) -> Solution | list[Solution]:  # fmt: skip
        """Answer one question (a Solution) or several together (a list, in the order given).

        A question is a text, the messages of a chat (a list of mappings with role and content, the last one
        the user's) or a mapping with the keys question and id. The id is what seeds are drawn from; by
        default a question's own text is its id, so that it gets the same answer alone and in any list.
        Several threads may call at once: their questions share batches, and each gets the same answer as
        alone.

        Args:
            questions: A question, or a list or other iterable of questions.
            progress: Whether to show progress, in a terminal, a notebook or a log.
            on_round: Called with every finished :class:`~soft_reasoning.types.Round`, in the caller's thread.
                What it raises ends the call.
            options: :class:`~soft_reasoning.configuration.options.Options` for this call.

        Raises:
            UserError: In one line, for what is no question or longer than the model's context, for an id with
                two questions, and for a closed reasoner.
        """
        problems, alone = read_questions(questions, self.answer_type)
        updates: SimpleQueue[Update] = SimpleQueue()
        call, parts = self._call(problems, options, updates.put)
        with self._submitted(call), Progress(len(call.problems), enabled=progress) as shown:
            while True:
                shown.done = len(call.results)
                shown.show(Clock(generated_tokens=call.generated_tokens))
                if call.complete:
                    return self._solutions(problems, alone, call, parts)
                call.take(updates.get(), on_round)

    @overload
    async def asolve(  # pyright: ignore[reportOverlappingOverload]
        self, questions: Asked, *, on_round: OnRound | None = None, **options: Unpack[Options]
    ) -> Solution: ...

    @overload
    async def asolve(
        self, questions: Iterable[Asked], *, on_round: OnRound | None = None, **options: Unpack[Options]
    ) -> list[Solution]: ...

    async def asolve(
        self, questions: Asked | Iterable[Asked], *,
        on_round: OnRound | None = None, **options: Unpack[Options],
    ) -> Solution | list[Solution]:  # fmt: skip
        """As :meth:`solve`, from any event loop, which goes on meanwhile; a cancelled task ends its work."""
        problems, alone = read_questions(questions, self.answer_type)
        loop, updates = asyncio.get_running_loop(), asyncio.Queue[Update]()

        def send(update: Update) -> None:
            try:
                loop.call_soon_threadsafe(updates.put_nowait, update)
            except RuntimeError:  # the loop was closed with the task in it
                self._worker.cancel(call)

        # In a thread, since composing the configuration of new options takes tenths of a second.
        call, parts = await asyncio.to_thread(self._call, problems, options, send)
        with self._submitted(call):
            while not call.complete:
                call.take(await updates.get(), on_round)
        return self._solutions(problems, alone, call, parts)

    def problem(self, question: str | Question, gold: str | None = None) -> Problem:
        """The question as methods see it, with its reference answer where there is one.

        Raises:
            UserError: If it is no question.
        """
        return replace(read_question(question, self.answer_type), gold=gold)

    def run_method(self, problem: Problem, method: Method) -> Result:
        """Solve one problem with a method object, without limits, as :meth:`solve` does with others.

        Raises:
            UserError: As :meth:`solve`.
        """
        updates: SimpleQueue[Update] = SimpleQueue()
        call = _checked([problem], method, replace(self.context, limits=Limits()), updates.put)
        with self._submitted(call):
            while not call.complete:
                call.take(updates.get())
        return call.results[problem.id]

    @contextmanager
    def _submitted(self, call: Call) -> Generator[None]:
        """Have ``call`` worked on; an error inside, Ctrl-C or a cancelled task end it."""
        self._worker.submit(call)
        try:
            yield
        except BaseException:
            self._worker.cancel(call)
            raise

    @property
    def max_live(self) -> int:
        """Most questions solved at a time, of all calls together."""
        return self._worker.max_live

    @property
    def closed(self) -> bool:
        """Whether the model was given back."""
        return self._worker.closed

    def close(self) -> None:
        """Give the model's memory back; calls in work in other threads get an error."""
        self._worker.close()

    def __enter__(self) -> SoftReasoner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(
        self, problems: Sequence[Problem], changes: Mapping[str, Any], send: Callable[[Update], None]
    ) -> tuple[Call, Parts]:
        """Return a call of the worker for the different ones among ``problems``, and its parts.

        Raises:
            UserError: For an id with two questions.
        """
        unique: dict[str, Problem] = {}
        for problem in problems:
            if unique.setdefault(problem.id, problem) != problem:
                raise UserError(f"solve: expected one question an id, got two for {problem.id!r}; rename one")
        parts, different = self._parts.of(changes), [*unique.values()]
        return _checked(different, parts.method, parts.context, send), parts

    def _solutions(
        self, problems: Sequence[Problem], alone: bool, call: Call, parts: Parts
    ) -> Solution | list[Solution]:
        """The results of ``problems`` with their stories; ``alone`` is one question."""
        method, grader, reasoner = parts.method, parts.context.grader, weakref.ref(self)
        made = {
            problem.id: Solution.of(
                call.results[problem.id], problem, method.name, getattr(method, "final", None), grader,
                cache(partial(_greedy, reasoner, problem, parts.config.max_new_tokens)),
            )
            for problem in problems
        }  # fmt: skip
        solutions = [made[problem.id] for problem in problems]
        return solutions[0] if alone else solutions


def _checked(
    problems: Sequence[Problem], method: Method, context: Context, send: Callable[[Update], None]
) -> Call:
    """Return a call of the worker; what cannot be solved is refused before any model work."""
    return Call(problems, method, context, partial(check_solvable, problems, method, context), send)


def _greedy(reference: weakref.ref[Any], problem: Problem, max_new_tokens: int) -> Candidate | None:
    """Decode ``problem`` greedily; None once the reasoner is closed or gone."""
    reasoner = reference()
    if reasoner is None or reasoner.closed:
        return None
    return reasoner.run_method(problem, ChainOfThought(max_new_tokens)).candidates[0]
