"""Soft Reasoning from Python: SoftReasoner.from_pretrained(name).solve(question)."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, Unpack, cast, overload

from soft_reasoning.checks import OptionError
from soft_reasoning.configuration.context import (
    SecondModels,
    build_engine,
    build_prompts,
    check_problems,
)
from soft_reasoning.configuration.data import PromptLike
from soft_reasoning.configuration.options import LoadOptions, Options, check_of_points, checked, loading
from soft_reasoning.configuration.setup import Setup
from soft_reasoning.engine.base import Engine
from soft_reasoning.engine.completions import StoreFile, replaying
from soft_reasoning.method.soft_reasoning import SoftReasoning
from soft_reasoning.objective import SoftReasoningObjective
from soft_reasoning.questions import QuestionLike, read_question, read_questions
from soft_reasoning.schedule.engine_thread import EngineThread
from soft_reasoning.schedule.job import Job
from soft_reasoning.schedule.method import Context, Limits, Method, Round
from soft_reasoning.schedule.progress import REDRAW, Progress
from soft_reasoning.solution import Solution, solutions_of
from soft_reasoning.types import Problem, Result, UserError

CACHE_GB = 4.0
OnRound: TypeAlias = Callable[[Round], None]
Update: TypeAlias = Future[Result] | Round
"""An event that a call waits for: a finished job or round."""


class CallOptions(Options, total=False):
    """Keyword arguments of a call.

    Attributes:
        progress: Whether to show progress, in a terminal, a notebook or a log.
        on_round: Called with every finished :class:`~soft_reasoning.Round`, in the caller's thread. An
            exception that it raises ends the call.
        on_progress: For ``asolve``: called several times a second with the number of tokens generated so far,
            and the thoughts and the text so far of the first question by ``cot``; else they are empty.
    """

    progress: bool
    on_round: OnRound | None
    on_progress: Callable[[int, str, str], None] | None


class SoftReasoner:
    """Methods bound to a loaded model.

    ``SoftReasoner(model, tokenizer)`` takes a causal language model of transformers, and
    :meth:`from_pretrained` loads one. All calls share the model and may come from any thread and any event
    loop, because one thread drives it. As a context manager the reasoner frees the model at the end.

    Args:
        model: A causal language model; it is set to evaluation mode.
        tokenizer: The model's tokenizer. If it has a chat template, prompts use the template.
        prompt: The name of a shipped prompt (by default ``math`` for numbers, else that of ``answer_type``),
            a YAML file, a mapping with the same keys, or a :class:`~soft_reasoning.prompts.Wording`.
        answer_type: The type of answers: number, boolean, choice, text, latex, json, code or open (any text).
            By default the type of the prompt. Without a prompt, questions may be of any kind
            (``prompt="any"``, open answers). Exceptions are the bundled model, which solves only word
            problems, and methods and verifiers that write programs (``prompt="math"``, numbers).
        cache: A folder on this machine for finished completions, so no process generates them again. None
            stores nothing.
        options: method, preset, k, rounds, max_tokens, verifier and the others of
            :class:`~soft_reasoning.configuration.options.Options`.

    Attributes:
        answer_type: The type of answers.
        method: The default method.
        context: The context of the default method.

    Raises:
        UserError: In one line, for an unknown option, and for a prompt that asks for answers of another type.

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
        cache: str | PathLike[str] | None = None,
        **options: Unpack[Options],
    ) -> None:
        from soft_reasoning.engine.huggingface import HuggingFaceEngine  # imports transformers

        if isinstance(model, str | PathLike):
            raise UserError(f"SoftReasoner: expected a loaded model, got {model!r}; use from_pretrained")
        if hasattr(tokenizer, "get_input_embeddings") and not hasattr(model, "get_input_embeddings"):
            raise UserError("SoftReasoner: expected a model, then its tokenizer; swap them")
        name = getattr(model, "name_or_path", None) or "model"
        setup = Setup.from_options(name, prompt, answer_type, checked(options, "SoftReasoner"))
        self._open(HuggingFaceEngine.from_loaded(model, tokenizer), replace(setup, cache=cache))

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | PathLike[str] = "demo",
        *,
        prompt: PromptLike | None = None,
        answer_type: str | None = None,
        cache: str | PathLike[str] | None = None,
        **options: Unpack[LoadOptions],
    ) -> SoftReasoner:
        """Load a model by a name of ``conf/models.yaml``, its name on the hub, or its folder.

        "demo" is the bundled model, which has its own default prompt. Write ``./NAME`` for a folder whose
        name is also in ``conf/models.yaml``.

        Args:
            name_or_path: The name or the folder, as the option ``model`` of the command line.
            prompt, answer_type, cache: As for the class.
            options: The options of the class, and those of loading
                (:class:`~soft_reasoning.configuration.options.LoadOptions`).

        Raises:
            UserError: In one line, for an unknown model or option.
        """
        if not isinstance(cast(Any, name_or_path), str | PathLike) or not fspath(name_or_path):
            raise UserError(f"from_pretrained: expected a model's name or folder, got {name_or_path!r}")
        given, defaults = loading(options)
        grader, engine = given.pop("grader", "default"), given.pop("engine", None)
        device = {"device": given.pop("device")} if "device" in given else {}
        setup = Setup.from_options(fspath(name_or_path), prompt, answer_type, defaults, given)
        if isinstance(grader, str):
            grader = setup.setting.build("grader", grader)
        if isinstance(engine, str | None):
            node = setup.setting.node("engine", engine) | device
            try:
                engine = build_engine({"engine": node, "model": setup.setting.model})
            except OptionError as error:
                raise OptionError(error.name.removeprefix("engine."), error.message) from error
        return cls.from_setup(engine, replace(setup, cache=cache, grader=grader))

    @classmethod
    def from_setup(cls, engine: Engine, setup: Setup) -> SoftReasoner:
        """Return a reasoner of objects, as the server builds them from its configuration."""
        self = cls.__new__(cls)
        self._open(engine, setup)
        return self

    def _open(self, engine: Engine, setup: Setup) -> None:
        """Build the context once, and start the thread that drives ``engine``."""
        store, models, self.setup = ExitStack(), SecondModels(), setup

        def free() -> None:  # without self, which the thread must not keep alive
            engine.close()
            models.close()
            store.close()

        self._thread, self._models = EngineThread(engine, setup.max_live, free), models
        weakref.finalize(self, self._thread.end)  # if the user does not close it
        try:
            prompts = build_prompts(setup.prompt, engine, setup.exemplars)
            self._base = Context(engine, prompts, setup.grader or setup.setting.build("grader"), seed=0)
            self.method, self.context = setup.solving({}, self._base, models)
            self.answer_type = setup.answer_type
            completions = StoreFile.of(None if setup.cache is None else fspath(setup.cache), CACHE_GB)
            store.enter_context(replaying(completions, self.context.engines))
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        shown = f"method={self.method.name}, answer_type={self.answer_type}{state}"
        return f"SoftReasoner({self.setup.model!r}, {shown})"

    @overload
    def solve(self, questions: QuestionLike, **options: Unpack[CallOptions]) -> Solution: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    def solve(self, questions: Iterable[QuestionLike], **options: Unpack[CallOptions]) -> list[Solution]: ...
    def solve(
        self, questions: QuestionLike | Iterable[QuestionLike], **options: Unpack[CallOptions]
    ) -> Solution | list[Solution]:
        """Answer one question (returns a Solution) or several together (returns a list in their order).

        A question is a string, the messages of a chat (a list of mappings with role and content, the last
        one the user's), or a mapping with the keys question and id. Seeds are derived from the id, which by
        default is the question's text, so a question gets the same answer alone and in any list. Several
        threads may call at once. Their questions share batches, and each gets the same answer as alone.

        Args:
            questions: A question, or a list or other iterable of questions.
            options: ``progress``, ``on_round``, and
                :class:`~soft_reasoning.configuration.options.Options` for this call.

        Raises:
            UserError: In one line, for an invalid question, a question longer than the model's context, an
                id with two questions, or a closed reasoner.
        """
        progress, on_round = options.pop("progress", False), options.pop("on_round", None)
        problems, alone = read_questions(questions, self.answer_type)
        updates: SimpleQueue[Update] = SimpleQueue()
        chosen = self.setup.solving(cast(Options, options), self._base, self._models)
        working = self._working(problems, *chosen, updates.put, on_round is not None)
        with working as jobs, Progress(len(jobs), enabled=progress) as shown:
            while shown.done < len(jobs):
                shown.tokens = sum(job.written for job in jobs.values() if job.done())
                shown.work([job.written for job in jobs.values() if job.begun and not job.done()])
                with suppress(Empty):  # a wait without an end would miss Ctrl-C if it came just before
                    update = updates.get(timeout=REDRAW)
                    shown.done += _ended(update, on_round)
        solutions = solutions_of(jobs)
        return solutions[problems[0].id] if alone else [solutions[problem.id] for problem in problems]

    @overload
    async def asolve(self, questions: QuestionLike, **options: Unpack[CallOptions]) -> Solution: ...  # pyright: ignore[reportOverlappingOverload]
    @overload
    async def asolve(
        self, questions: Iterable[QuestionLike], **options: Unpack[CallOptions]
    ) -> list[Solution]: ...
    async def asolve(
        self, questions: QuestionLike | Iterable[QuestionLike], **options: Unpack[CallOptions]
    ) -> Solution | list[Solution]:
        """As :meth:`solve`, without blocking the event loop; a cancelled task ends its work.

        ``on_progress`` is called from the start of the first question on.
        """
        on_round, on_progress = options.pop("on_round", None), options.pop("on_progress", None)
        problems, alone = read_questions(questions, self.answer_type)
        loop, updates = asyncio.get_running_loop(), asyncio.Queue[Update]()

        def send(update: Update) -> None:
            with suppress(RuntimeError):  # the loop was closed before the task ended
                loop.call_soon_threadsafe(updates.put_nowait, update)

        chosen = self.setup.solving(cast(Options, options), self._base, self._models)
        with self._working(problems, *chosen, send, on_round is not None) as jobs:
            ended = 0
            while ended < len(jobs):
                try:
                    async with asyncio.timeout(REDRAW):
                        update = await updates.get()
                except TimeoutError:
                    pass
                else:
                    ended += _ended(update, on_round)
                if on_progress is not None and any(job.effect is not None for job in jobs.values()):
                    on_progress(sum(job.written for job in jobs.values()), *next(iter(jobs.values())).draft)
        solutions = solutions_of(jobs)
        return solutions[problems[0].id] if alone else [solutions[problem.id] for problem in problems]

    def problem(self, question: QuestionLike, gold: str | float | None = None) -> Problem:
        """Return the question as methods see it, with its reference answer if it has one.

        Raises:
            UserError: For an invalid question, and for a reference answer that is neither text nor a number.
        """
        if isinstance(gold, int | float) and not isinstance(gold, bool):
            gold = str(gold)
        if not isinstance(gold, str | None):
            raise UserError(f"gold: expected text or a number, got {gold!r:.80}; give the answer as text")
        return replace(read_question(question, self.answer_type), gold=gold)

    def objective(
        self,
        question: QuestionLike,
        gold: str | float | None = None,
        *,
        negate: bool = False,
        noise_std: float | None = None,
        **options: Unpack[Options],
    ) -> SoftReasoningObjective:
        """Return the reward of a question as a BoTorch test problem.

        Args:
            question: The question.
            gold: Its reference answer, if known.
            negate: Whether to return minus the reward, for optimisers that minimise.
            noise_std: Standard deviation of noise that is added to each reward.
            options: As for :meth:`solve`, such as ``d``, ``seed`` and ``verifier``, without limits, ``k`` and
                what only the rounds of a search read, since the caller chooses the points.

        Raises:
            UserError: If the method has no search, the question is invalid or too long, or an option cannot
                act.
        """
        check_of_points(options)
        problem = self.problem(question, gold)
        method, context = self.setup.solving(options, self._base, self._models)
        method, context = cast(SoftReasoning, method), context.of(problem)  # the objective checks the method

        def run(problems: Sequence[Problem], method: Method) -> Sequence[Result]:
            return self.run_methods(problems, method, context)

        return SoftReasoningObjective(problem, method, context, negate=negate, noise_std=noise_std, run=run)

    def run_methods(
        self, problems: Sequence[Problem], method: Method, context: Context | None = None
    ) -> list[Result]:
        """Solve problems with a method object and without limits; return the results in their order.

        ``context`` is the reasoner's by default.

        Raises:
            UserError: As :meth:`solve`.
        """
        context = replace(context or self.context, limits=Limits())
        with self._working(problems, method, context) as jobs:
            return [jobs[problem.id].result() for problem in problems]

    @contextmanager
    def _working(
        self,
        problems: Sequence[Problem],
        method: Method,
        context: Context,
        send: Callable[[Update], None] | None = None,
        rounds: bool = False,
    ) -> Generator[dict[str, Job]]:
        """Submit a job for each id among ``problems``; an error inside, Ctrl-C or a cancelled task ends them.

        ``send`` gets the finished jobs and, with ``rounds``, the rounds. Problems that cannot be solved are
        rejected before any model work.

        Raises:
            UserError: For an id with two questions.
        """
        jobs = dict[str, Job]()
        for problem in problems:
            job = jobs.setdefault(problem.id, Job(problem, method, context, send if rounds else None))
            if job.problem != problem:
                raise UserError(
                    f"solve: expected different ids, got two questions with {problem.id!r}; rename one"
                )
        try:
            if send is not None:
                for job in jobs.values():
                    job.add_done_callback(send)
            if jobs:
                self._thread.submit([*jobs.values()], partial(check_problems, problems, context))
            yield jobs
        finally:
            for job in jobs.values():
                job.cancel()

    @property
    def closed(self) -> bool:
        """Whether the model was freed."""
        return self._thread.closed

    def close(self) -> None:
        """Free the model's memory; unfinished calls in other threads get an error."""
        self._thread.close()

    def __enter__(self) -> SoftReasoner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ended(update: Update, on_round: OnRound | None) -> bool:
    """Whether ``update`` is a finished job, whose error is raised; rounds go to ``on_round``."""
    if isinstance(update, Round):
        assert on_round is not None
        on_round(update)
        return False
    update.result()
    return True
