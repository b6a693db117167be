"""Soft Reasoning from Python: SoftReasoner.from_pretrained(name).solve(question)."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from queue import SimpleQueue
from typing import Any, Unpack, cast, overload

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from soft_reasoning.answers import ANSWER_TYPES
from soft_reasoning.calls import Found, OnRound, Parts, call_of, greedy_of, method_of
from soft_reasoning.checks import choice
from soft_reasoning.configuration.build import (
    build_context,
    build_dataset,
    build_engine,
    check_prior,
    check_wording,
    prior_of,
)
from soft_reasoning.configuration.compose import check_prompt, is_bundled, override, prompt_for
from soft_reasoning.configuration.errors import one_line
from soft_reasoning.configuration.options import Changes, Options, check_overrides, configured, without_parts
from soft_reasoning.configuration.prompt_files import PromptLike, is_file_name, prompt_settings
from soft_reasoning.context import Context, Limits
from soft_reasoning.data.questions import Asked, Question, read_question, read_questions
from soft_reasoning.engines.base import Engine
from soft_reasoning.methods.base import Method
from soft_reasoning.runs.progress import Progress
from soft_reasoning.scheduler import Clock
from soft_reasoning.solution import Solution
from soft_reasoning.types import Problem, Result, UserError
from soft_reasoning.worker import Call, Update, Worker

MOST_PARTS = 64
"""Combinations of options whose parts are kept."""


class SoftReasoner:
    """Methods bound to a loaded model.

    ``SoftReasoner(model, tokenizer)`` takes a causal language model of transformers as it is;
    :meth:`from_pretrained` loads one. All calls share it, whatever their method, and may come from any thread
    and any event loop: one thread of the reasoner's own drives the model. As a context manager it frees the
    model at the end.

    Args:
        model: A causal language model, in evaluation mode afterwards.
        tokenizer: Its tokenizer. Where it has a chat template, prompts use it.
        method: A method's name, by default ``soft_reasoning``, or an object of one's own.
        prompt: The name of a shipped prompt (by default ``math`` for numbers, else that of ``answer_type``),
            a YAML file, a mapping with the same keys, or a :class:`~soft_reasoning.prompts.Wording`.
        answer_type: The type of answers: number, boolean, choice, text or latex.
        preset: Which parts Soft Reasoning has: default, informed, paper, paper_literal or released.
        k: Candidates of a round, or samples.
        rounds: Rounds after the first.
        max_tokens: Most generated tokens per question; it holds within a round.
        max_seconds: Most seconds per question, which questions solved together share.
        temperature: Sampling temperature of the candidates; 0 is greedy.
        seed: Seed of every draw.
        overrides: Overrides of the configuration as on the command line, such as ``"embedding.dim=20"``, but
            for those that only a run of a data set reads.

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
        method: str | Method | None = None,
        prompt: PromptLike | None = None,
        answer_type: str = "number",
        preset: str | None = None,
        k: int | None = None,
        rounds: int | None = None,
        max_tokens: int | None = None,
        max_seconds: float | None = None,
        temperature: float | None = None,
        seed: int = 0,
        overrides: Sequence[str] = (),
    ) -> None:
        from soft_reasoning.engines.huggingface import HuggingFaceEngine  # imports transformers

        if isinstance(model, str | PathLike):
            raise UserError(f"SoftReasoner: expected a loaded model, got {model!r}; use from_pretrained")
        options = Options(method, preset, k, rounds, max_tokens, max_seconds, temperature)
        name = getattr(model, "name_or_path", None) or "model"
        self._configure(name, options, prompt, answer_type, seed, overrides)

        def loaded(config: DictConfig) -> Engine:
            most = config.engine.get("max_batch_tokens")
            return HuggingFaceEngine.from_loaded(model, tokenizer, max_batch_tokens=most)

        self._open({}, loaded)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | PathLike[str] = "demo",
        *,
        method: str | Method | None = None,
        prompt: PromptLike | None = None,
        answer_type: str = "number",
        preset: str | None = None,
        k: int | None = None,
        rounds: int | None = None,
        max_tokens: int | None = None,
        max_seconds: float | None = None,
        temperature: float | None = None,
        seed: int = 0,
        overrides: Sequence[str] = (),
        **model_options: Any,
    ) -> SoftReasoner:
        """Load a model by its name on the hub or its folder; "demo" is the one that ships.

        The bundled model has a prompt of its own by default. A data set given by ``overrides`` gives its
        exemplars where ``dataset.shots`` asks for any.

        Args:
            name_or_path: The name or the folder.
            method, prompt, answer_type, preset, k, rounds: As for the class.
            max_tokens, max_seconds, temperature, seed, overrides: As for the class.
            model_options: Keys of the model's configuration (dtype, device_map, ...).

        Raises:
            UserError: In one line, for a model or an option that does not exist.
        """
        if not _is_path(name_or_path):
            raise UserError(f"from_pretrained: expected a model's name or folder, got {name_or_path!r}")
        self = cls.__new__(cls)
        options = Options(method, preset, k, rounds, max_tokens, max_seconds, temperature)
        self._configure(fspath(name_or_path), options, prompt, answer_type, seed, overrides)
        self._open(model_options, build_engine)
        return self

    def _configure(
        self,
        model: str,
        options: Options,
        prompt: PromptLike | None,
        answer_type: str,
        seed: int,
        overrides: Sequence[str],
    ) -> None:
        """Check the arguments and keep them."""
        check_overrides(overrides)
        choice("answer_type", answer_type, ANSWER_TYPES)
        default = "demo" if is_bundled(model) else prompt_for(answer_type)
        shipped = prompt is None or (isinstance(prompt, str) and not is_file_name(prompt))
        self._prompt = None if shipped else prompt_settings(cast(PromptLike, prompt))
        self._base = [
            f"prompt={(prompt if shipped else None) or default}",
            override("model.path", model),
            override("seed", seed),
        ]
        self._overrides, self._options = list(overrides), options
        self.answer_type: str = answer_type
        self._made: OrderedDict[Hashable, Parts] = OrderedDict()  # those used last at the end
        self._making = threading.Lock()

    def _open(self, model_options: Mapping[str, Any], load: Callable[[DictConfig], Engine]) -> None:
        """Build the parts of the reasoner's own options, load the model and make the worker."""
        with _one_line_errors():
            config = self._config(self._options)
            for key, value in model_options.items():  # as they are: Hydra's grammar has no {"": "cpu"}
                choice("from_pretrained: options", key, [str(one) for one in config.model])
                config.model[key] = value
            method = method_of(self._options, config)
            self._exemplars = build_dataset(config).exemplars(config.seed)
            engine = load(config)
            context = self._options.applied(build_context(config, engine, self._exemplars))
            self._own = parts = Parts(config, method, context)
            self._worker = Worker(engine, config.max_live)
            weakref.finalize(self, self._worker.close)  # where nobody closes it
            try:
                check_wording(method, parts.context)
                if prior_of(method) is not None:
                    check_prior(config, method, parts.context)
            except BaseException:
                self.close()
                raise

    @property
    def method(self) -> Method:
        """The reasoner's own method."""
        return self._own.method

    @property
    def context(self) -> Context:
        """What the reasoner's own method reads."""
        return self._own.context

    @overload
    def solve(  # pyright: ignore[reportOverlappingOverload]
        self, questions: Asked, *,
        progress: bool = False, on_round: OnRound | None = None, **options: Unpack[Changes],
    ) -> Solution: ...  # fmt: skip

    @overload
    def solve(
        self, questions: Iterable[Asked], *,
        progress: bool = False, on_round: OnRound | None = None, **options: Unpack[Changes],
    ) -> list[Solution]: ...  # fmt: skip

    def solve(
        self, questions: Asked | Iterable[Asked], *,
        progress: bool = False, on_round: OnRound | None = None, **options: Unpack[Changes],
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
            options: Keyword arguments of the class (method, preset, k, rounds, max_tokens, max_seconds,
                temperature, seed), for this call, ``max_new_tokens`` (of each completion) and ``stop`` (texts
                that end a candidate, besides the prompt's own).

        Raises:
            UserError: In one line, for what is no question or longer than the model's context, for an id with
                two questions, and for a closed reasoner.
        """
        problems, alone = read_questions(questions, self.answer_type)
        updates: SimpleQueue[Update] = SimpleQueue()
        call, parts = self._call(problems, options, updates.put)
        found = Found(call, parts, on_round, partial(greedy_of, weakref.ref(self), config=parts.config))
        with self._submitted(call), Progress(len(call.problems), enabled=progress) as shown:
            while True:
                shown.done = len(found.results)
                shown.show(Clock(generated_tokens=found.tokens))
                if found.complete:
                    break
                found.take(updates.get())
        return found.solutions(problems)[0] if alone else found.solutions(problems)

    @overload
    async def asolve(  # pyright: ignore[reportOverlappingOverload]
        self, questions: Asked, *, on_round: OnRound | None = None, **options: Unpack[Changes]
    ) -> Solution: ...

    @overload
    async def asolve(
        self, questions: Iterable[Asked], *, on_round: OnRound | None = None, **options: Unpack[Changes]
    ) -> list[Solution]: ...

    async def asolve(
        self,
        questions: Asked | Iterable[Asked],
        *,
        on_round: OnRound | None = None,
        **options: Unpack[Changes],
    ) -> Solution | list[Solution]:
        """As :meth:`solve`, from any event loop, which goes on meanwhile; a cancelled task ends its work."""
        problems, alone = read_questions(questions, self.answer_type)
        loop, updates = asyncio.get_running_loop(), asyncio.Queue[Update]()

        def send(what: Update) -> None:
            try:
                loop.call_soon_threadsafe(updates.put_nowait, what)
            except RuntimeError:  # the loop was closed with the task in it
                self._worker.cancel(call)

        # In a thread, since composing the configuration of new options takes tenths of a second.
        call, parts = await asyncio.to_thread(self._call, problems, options, send)
        found = Found(call, parts, on_round, partial(greedy_of, weakref.ref(self), config=parts.config))
        with self._submitted(call):
            while not found.complete:
                found.take(await updates.get())
        return found.solutions(problems)[0] if alone else found.solutions(problems)

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
        context = replace(self.context, limits=Limits())
        with self._submitted(call_of([problem], method, context, updates.put)):
            while True:
                _, outcome = updates.get()
                if isinstance(outcome, Exception):
                    raise outcome
                if isinstance(outcome, Result):
                    return outcome

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
        self, problems: Sequence[Problem], changes: Changes, send: Callable[[Update], None]
    ) -> tuple[Call, Parts]:
        """Return a call of the worker for the different ones among ``problems``, and its parts.

        Raises:
            UserError: For an id with two questions.
        """
        unique: dict[str, Problem] = {}
        for problem in problems:
            if unique.setdefault(problem.id, problem) != problem:
                raise UserError(f"solve: expected one question an id, got two for {problem.id!r}; rename one")
        if changes.get("method") == self.method.name:  # its options and overrides hold
            changes = cast(Changes, {key: value for key, value in changes.items() if key != "method"})
        parts, asked = self._parts(self._options.changed(changes)), list(unique.values())
        return call_of(asked, parts.method, parts.context, send), parts

    def _parts(self, options: Options) -> Parts:
        """The parts of ``options``; those used last are kept."""
        found = self._own if options.key == self._options.key else self._kept(options)
        parts = replace(found, context=options.applied(found.context))
        if parts.context.seed != self.context.seed and prior_of(parts.method) is not None:
            config = cast(DictConfig, OmegaConf.merge(parts.config, {"seed": parts.context.seed}))
            check_prior(config, parts.method, parts.context)
        return parts

    def _kept(self, options: Options) -> Parts:
        with self._making:
            found = self._made.pop(options.key, None)
            if found is None:
                with _one_line_errors():
                    config = self._config(options)
                    method = method_of(options, config)
                    context = build_context(config, self.context.engine, self._exemplars)
                    found = Parts(config, method, context)
            self._made[options.key] = found
            while len(self._made) > MOST_PARTS:
                self._made.popitem(last=False)
        return found

    def _config(self, options: Options) -> DictConfig:
        own = options.method is self._options.method or options.method == self._options.method
        overrides = self._overrides if own else without_parts(self._overrides)
        config = configured(options, [*self._base, *overrides])
        if self._prompt is not None:
            config.prompt = self._prompt
        check_prompt(config, "answer_type", self.answer_type)
        if config.methods is not None:
            raise UserError(
                "overrides: expected one method, got a comparison; give method=NAME, or compare with "
                "soft-reasoning compare"
            )
        return config


@contextmanager
def _one_line_errors() -> Generator[None]:
    """Turn an error of the configuration into one line."""
    try:
        yield
    except (HydraException, OmegaConfBaseException) as error:
        raise UserError(one_line(error)) from error


def _is_path(value: Any) -> bool:
    return isinstance(value, str | PathLike) and bool(fspath(cast(str, value)))
