"""Soft Reasoning from Python: SoftReasoner.from_pretrained(name).solve(question)."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias, Unpack, cast, overload

from omegaconf import DictConfig

from soft_reasoning.configuration.build import build_engine, check_solvable
from soft_reasoning.configuration.compose import PromptLike
from soft_reasoning.configuration.options import (
    LoadOptions,
    Options,
    checked,
    loading_settings,
)
from soft_reasoning.configuration.setup import Setup
from soft_reasoning.engine.base import Engine
from soft_reasoning.engine.completions.replay import StoreFile, replaying
from soft_reasoning.judge.probe import Probe
from soft_reasoning.method.soft_reasoning import SoftReasoning
from soft_reasoning.objective import SoftReasoningObjective
from soft_reasoning.questions import QuestionLike, read_question, read_questions
from soft_reasoning.schedule.engine_thread import EngineThread
from soft_reasoning.schedule.job import Job
from soft_reasoning.schedule.method import Context, Limits, Method
from soft_reasoning.schedule.progress import REDRAW, Progress
from soft_reasoning.solution import Solution, solutions_of
from soft_reasoning.task.learning import Tuning, TuningResult
from soft_reasoning.task.objective import TaskObjective
from soft_reasoning.task.probe import ProbeFitting
from soft_reasoning.task.space import TaskSpace
from soft_reasoning.types import MAX_NEW_TOKENS, Problem, Result, Round, UserError

OnRound: TypeAlias = Callable[[Round], None]
Update: TypeAlias = Future[Result] | Round
"""An event that a call waits for: a finished job or round."""


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
        overrides: Overrides of the configuration as on the command line, such as ``"d=20"``,
            except those that only a run of a data set reads.
        cache: A folder on this machine for finished completions, so no process generates them again. None
            stores nothing.
        options: method, preset, k, rounds, max_tokens, verifier and the others of
            :class:`~soft_reasoning.configuration.options.Options`.

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
        overrides: Sequence[str] = (),
        cache: str | PathLike[str] | None = None,
        **options: Unpack[Options],
    ) -> None:
        from soft_reasoning.engine.huggingface import HuggingFaceEngine  # imports transformers

        if isinstance(model, str | PathLike):
            raise UserError(f"SoftReasoner: expected a loaded model, got {model!r}; use from_pretrained")
        if hasattr(tokenizer, "get_input_embeddings") and not hasattr(model, "get_input_embeddings"):
            raise UserError(
                "SoftReasoner: expected a model and its tokenizer, got them in the other order; swap them"
            )
        name = getattr(model, "name_or_path", None) or "model"

        def loaded(config: DictConfig) -> Engine:
            most = config.engine.get("max_batch_tokens")
            return HuggingFaceEngine.from_loaded(model, tokenizer, max_batch_tokens=most)

        defaults = checked(options, "SoftReasoner")
        self._open(Setup(name, prompt, answer_type, overrides, cache, defaults), loaded)

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | PathLike[str] = "demo",
        *,
        prompt: PromptLike | None = None,
        answer_type: str | None = None,
        overrides: Sequence[str] = (),
        cache: str | PathLike[str] | None = None,
        **options: Unpack[LoadOptions],
    ) -> SoftReasoner:
        """Load a model by a name of ``conf/model``, its name on the hub, or its folder.

        "demo" is the bundled model, which has its own default prompt. Write ``./NAME`` for a folder whose
        name is also in ``conf/model``. If ``dataset.shots`` asks for exemplars, they come from the data set
        that ``overrides`` name.

        Args:
            name_or_path: The name or the folder, as the option ``model`` of the command line.
            prompt, answer_type, overrides, cache: As for the class.
            options: The options of the class, and those of loading: device, dtype, device_map, quantization,
                revision, adapter, attn_implementation, trust_remote_code.

        Raises:
            UserError: In one line, for an unknown model or option.
        """
        if not isinstance(cast(Any, name_or_path), str | PathLike) or not fspath(name_or_path):
            raise UserError(f"from_pretrained: expected a model's name or folder, got {name_or_path!r}")
        settings, defaults = loading_settings(options)
        self = cls.__new__(cls)
        setup = Setup(fspath(name_or_path), prompt, answer_type, overrides, cache, defaults, settings)
        self._open(setup, build_engine)
        return self

    def _open(self, setup: Setup, load: Callable[[DictConfig], Engine]) -> None:
        """Load the model of ``setup``, and start the thread that drives it."""
        engine, store, self._setup = load(setup.config), ExitStack(), setup

        def free() -> None:
            engine.close()
            setup.models.close()
            store.close()

        self._thread = EngineThread(engine, setup.config.max_live, free)
        weakref.finalize(self, self._thread.end)  # if the user does not close it
        try:
            setup.engine = engine
            self._default = setup.solving({})
            completions = StoreFile.of(setup.config.cache, setup.config.cache_gb)
            store.enter_context(replaying(completions, self.context.engines))
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        shown = f"method={self.method.name}, answer_type={self.answer_type}{state}"
        return f"SoftReasoner({self._setup.model!r}, {shown})"

    @property
    def answer_type(self) -> str:
        """The type of answers."""
        return self._setup.answer_type

    @property
    def method(self) -> Method:
        """The reasoner's default method."""
        return self._default[0]

    @property
    def context(self) -> Context:
        """The context of the reasoner's default method."""
        return self._default[1]

    @overload
    def solve(  # pyright: ignore[reportOverlappingOverload]
        self,
        questions: QuestionLike,
        *,
        progress: bool = False,
        on_round: OnRound | None = None,
        **options: Unpack[Options],
    ) -> Solution: ...

    @overload
    def solve(
        self,
        questions: Iterable[QuestionLike],
        *,
        progress: bool = False,
        on_round: OnRound | None = None,
        **options: Unpack[Options],
    ) -> list[Solution]: ...

    def solve(
        self,
        questions: QuestionLike | Iterable[QuestionLike],
        *,
        progress: bool = False,
        on_round: OnRound | None = None,
        **options: Unpack[Options],
    ) -> Solution | list[Solution]:
        """Answer one question (returns a Solution) or several together (returns a list in their order).

        A question is a string, the messages of a chat (a list of mappings with role and content, the last
        one the user's), or a mapping with the keys question and id. Seeds are derived from the id, which by
        default is the question's text, so a question gets the same answer alone and in any list. Several
        threads may call at once. Their questions share batches, and each gets the same answer as alone.

        Args:
            questions: A question, or a list or other iterable of questions.
            progress: Whether to show progress, in a terminal, a notebook or a log.
            on_round: Called with every finished :class:`~soft_reasoning.types.Round`, in the caller's thread.
                An exception that it raises ends the call.
            options: :class:`~soft_reasoning.configuration.options.Options` for this call.

        Raises:
            UserError: In one line, for an invalid question, a question longer than the model's context, an
                id with two questions, or a closed reasoner.
        """
        problems, alone = read_questions(questions, self.answer_type)
        updates: SimpleQueue[Update] = SimpleQueue()
        jobs = self._jobs(problems, options, on_round and updates.put)
        with self._working(jobs, updates.put), Progress(len(jobs), enabled=progress) as shown:
            while shown.done < len(jobs):
                shown.tokens = sum(job.written for job in jobs.values() if job.done())
                shown.work([job.written for job in jobs.values() if job.begun and not job.done()])
                with suppress(Empty):  # a wait without an end would miss Ctrl-C if it came just before
                    shown.done += _ended(updates.get(timeout=REDRAW), on_round)
        return self._solutions(problems, alone, jobs)

    @overload
    async def asolve(  # pyright: ignore[reportOverlappingOverload]
        self,
        questions: QuestionLike,
        *,
        on_round: OnRound | None = None,
        on_progress: Callable[[int], None] | None = None,
        **options: Unpack[Options],
    ) -> Solution: ...

    @overload
    async def asolve(
        self,
        questions: Iterable[QuestionLike],
        *,
        on_round: OnRound | None = None,
        on_progress: Callable[[int], None] | None = None,
        **options: Unpack[Options],
    ) -> list[Solution]: ...

    async def asolve(
        self,
        questions: QuestionLike | Iterable[QuestionLike],
        *,
        on_round: OnRound | None = None,
        on_progress: Callable[[int], None] | None = None,
        **options: Unpack[Options],
    ) -> Solution | list[Solution]:
        """As :meth:`solve`, without blocking the event loop; a cancelled task ends its work.

        From the start of the first question on, ``on_progress`` is called several times a second with the
        number of tokens generated so far.
        """
        problems, alone = read_questions(questions, self.answer_type)
        loop, updates = asyncio.get_running_loop(), asyncio.Queue[Update]()

        def send(update: Update) -> None:
            with suppress(RuntimeError):  # the loop was closed before the task ended
                loop.call_soon_threadsafe(updates.put_nowait, update)

        # In a thread, since composing the configuration of another method takes tenths of a second.
        jobs = await asyncio.to_thread(self._jobs, problems, options, on_round and send)
        with self._working(jobs, send):
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
                    on_progress(sum(job.written for job in jobs.values()))
        return self._solutions(problems, alone, jobs)

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
        dim: int | None = None,
        **options: Unpack[Options],
    ) -> SoftReasoningObjective:
        """Return the reward of a question as a BoTorch test problem.

        Args:
            question: The question.
            gold: Its reference answer, if known.
            negate: Whether to return minus the reward, for optimisers that minimise.
            noise_std: Standard deviation of noise that is added to each reward.
            dim: d, dimensions of the search for each soft token; None keeps the reasoner's.
            options: As for :meth:`solve`, such as ``seed`` and ``verifier``, without limits, ``k`` and what
                only the rounds of a search read, since the caller chooses the points.

        Raises:
            UserError: If the method has no search, the question is invalid or too long, or an option cannot
                act.
        """
        for name in ("max_tokens", "max_seconds", "k", "rounds", "acquisition", "stopping"):
            if options.get(name) is not None:
                raise UserError(
                    f"{name}: expected an option that the reward of a point depends on, got one that it does "
                    "not; leave it out"
                )
        problem = self.problem(question, gold)
        words = [] if dim is None else [f"d={dim}"]
        method, context = self._setup.solving(options, words)
        method, context = cast(SoftReasoning, method), context.of(problem)  # the objective checks the method

        def run(problem: Problem, method: Method) -> Result:
            return self.run_methods([problem], method, context)[0]

        return SoftReasoningObjective(problem, method, context, negate=negate, noise_std=noise_std, run=run)

    def tune(
        self,
        problems: Sequence[Problem],
        tuning: Tuning | None = None,
        *,
        history: str | PathLike[str] | None = None,
    ) -> TuningResult:
        """Learn soft tokens from a task's questions: screen, search, validate.

        Args:
            problems: The questions, as :meth:`problem` returns them. The model's programs reward questions
                without a reference answer.
            tuning: The settings; by default :class:`~soft_reasoning.task.Tuning` with the method's
                ``max_new_tokens``.
            history: A file of the search, from which the same call continues an interrupted one.

        Raises:
            UserError: For too few questions with an answer.

        Example:
            >>> learned = reasoner.tune([reasoner.problem(question, gold) for question, gold in rows])
            >>> if learned.tuned is not None:
            ...     learned.tuned.point.save("point.json")
            ...     reasoner.solve(question, method=SoftToken(point="point.json"))
        """
        tuning = tuning or Tuning(max_new_tokens=self._max_new_tokens)
        return tuning.learn(problems, self.context, history=history, run=self.run_methods)

    def fit_probe(self, problems: Sequence[Problem], fitting: ProbeFitting | None = None) -> Probe:
        """Fit a probe of hidden states on a task's questions, for ``MixedConsistency(probe=...)``.

        Args:
            problems: Some hundreds of questions, as :meth:`problem` returns them. The model's programs label
                the solutions of questions without a reference answer.
            fitting: The settings; by default :class:`~soft_reasoning.task.ProbeFitting` with the method's
                ``max_new_tokens``.

        Raises:
            UserError: For too few questions, solutions that are all correct or all wrong, or an engine that
                cannot read hidden states.

        Example:
            >>> probe = reasoner.fit_probe([reasoner.problem(question, gold) for question, gold in rows])
            >>> print(probe.measured["auc"])
            >>> reasoner.solve(question, method=MixedConsistency(probe=probe))
        """
        fitting = fitting or ProbeFitting(max_new_tokens=self._max_new_tokens)
        return fitting.fit(problems, self.context, run=self.run_methods)

    def task_objective(
        self,
        problems: Sequence[Problem],
        space: TaskSpace | None = None,
        *,
        accepted: Sequence[Sequence[str]] | None = None,
        negate: bool = False,
    ) -> TaskObjective:
        """Return the mean reward of a task's questions as a BoTorch test problem over shared soft tokens.

        Args:
            problems: The questions with their reference answers, as :meth:`problem` returns them.
            space: The soft tokens; by default one vector in place of the first answer token.
            accepted: The answers of each question that are rewarded; None is the reference answer.
            negate: Whether to return minus the mean, for optimisers that minimise.

        Raises:
            UserError: As :class:`~soft_reasoning.task.TaskObjective`.

        Example:
            >>> train = [reasoner.problem(question, gold) for question, gold in rows[:64]]
            >>> others = [reasoner.problem(question, gold) for question, gold in rows[64:192]]
            >>> found = tune(reasoner.task_objective(train), reasoner.task_objective(others))
            >>> found.point.save("point.json")
            >>> reasoner.solve(question, method=SoftToken(point="point.json"))
        """
        return TaskObjective(
            problems,
            space or TaskSpace(),
            self.context,
            accepted=accepted,
            max_new_tokens=self._max_new_tokens,
            negate=negate,
            run=self.run_methods,
        )

    @property
    def _max_new_tokens(self) -> int:
        """Tokens per solution of the default method."""
        return getattr(self.method, "max_new_tokens", MAX_NEW_TOKENS)

    def run_methods(
        self, problems: Sequence[Problem], method: Method, context: Context | None = None
    ) -> list[Result]:
        """Solve problems with a method object and without limits; return the results in their order.

        ``context`` is the reasoner's by default.

        Raises:
            UserError: As :meth:`solve`, and for an id that is there twice.
        """
        context = replace(context or self.context, limits=Limits())
        jobs = {problem.id: Job[Any](problem, method, context) for problem in problems}
        if len(jobs) < len(ids := [problem.id for problem in problems]):
            twice = max(ids, key=ids.count)
            raise UserError(f"problems: expected each id once, got {twice!r:.80} twice; rename or remove one")
        with self._working(jobs):
            return [jobs[problem.id].result() for problem in problems]

    @contextmanager
    def _working(
        self, jobs: Mapping[str, Job[Any]], send: Callable[[Update], None] | None = None
    ) -> Generator[None]:
        """Submit the ``jobs`` of a call; an error inside, Ctrl-C or a cancelled task ends them.

        Problems that cannot be solved are rejected before any model work.
        """
        if send is not None:
            for job in jobs.values():
                job.add_done_callback(send)
        self._thread.submit([*jobs.values()], partial(check_solvable, [*jobs.values()]))
        try:
            yield
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

    def _jobs(
        self,
        problems: Sequence[Problem],
        changes: Options,
        watch: Callable[[Update], None] | None,
    ) -> dict[str, Job[Any]]:
        """Return a job for each id among ``problems``.

        Raises:
            UserError: For an id with two questions.
        """
        method, context = self._setup.solving(changes)
        jobs = dict[str, Job[Any]]()
        for problem in problems:
            job = jobs.setdefault(problem.id, Job(problem, method, context, watch))
            if job.problem != problem:
                raise UserError(
                    f"solve: expected different ids, got two questions with {problem.id!r}; rename one"
                )
        return jobs

    @staticmethod
    def _solutions(
        problems: Sequence[Problem], alone: bool, jobs: Mapping[str, Job[Any]]
    ) -> Solution | list[Solution]:
        """The solutions of ``problems``, or the only one if ``alone``."""
        by_id = solutions_of(jobs)
        solutions = [by_id[problem.id] for problem in problems]
        return solutions[0] if alone else solutions


def _ended(update: Update, on_round: OnRound | None) -> bool:
    """Whether ``update`` is a finished job, whose error is raised; rounds go to ``on_round``."""
    if isinstance(update, Round):
        assert on_round is not None
        on_round(update)
        return False
    update.result()
    return True
