"""A task learnt from its questions: screen the spaces, search the most promising one, validate its points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike

from soft_reasoning.checks import choice, counts, real, switch, whole
from soft_reasoning.judge.programs import Programs
from soft_reasoning.schedule.method import Context
from soft_reasoning.task.objective import Evaluation, Run, TaskObjective, one_prompt, program_answers
from soft_reasoning.task.screening import SPACES, Screened, screen
from soft_reasoning.task.space import TaskSpace
from soft_reasoning.task.tuning import Tuned, tune
from soft_reasoning.types import MAX_NEW_TOKENS, Problem, UserError


@dataclass(frozen=True)
class TuningResult:
    """What a task taught.

    Attributes:
        screened: Each space after random points.
        space: The name of the space that was searched; None if there was nothing to find.
        tuned: What the search found there; None without a search.
    """

    screened: Sequence[Screened]
    space: str | None = None
    tuned: Tuned | None = None


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Learns soft tokens that all questions of a task share.

    Args:
        space: The only space that is screened and searched, by its name in ``SPACES``; None screens all.
        points: Random points of each space in the screening.
        evaluations: Points of the search.
        validation: Share of the questions on which the best points are compared; the screening and the
            search see the others.
        anyway: Whether to search, too, where the screening shows nothing to find.
        max_new_tokens: Tokens per solution, and per program where programs give the answers.

    Raises:
        OptionError: For a value out of its range.
    """

    space: str | None = None
    points: int = 12
    evaluations: int = 72
    validation: float = 0.6
    anyway: bool = False
    max_new_tokens: int = MAX_NEW_TOKENS

    def __post_init__(self) -> None:
        if self.space is not None:
            choice("space", self.space, list(SPACES))
        whole("points", self.points, least=2)
        whole("evaluations", self.evaluations, least=12)
        real("validation", self.validation, above=0.0, below=1.0)
        switch("anyway", self.anyway)
        counts(self, "max_new_tokens")

    @property
    def spaces(self) -> Mapping[str, TaskSpace]:
        """The spaces that are screened."""
        return SPACES if self.space is None else {self.space: SPACES[self.space]}

    @property
    def work(self) -> int:
        """Number of points that are evaluated at most."""
        return self.points * len(self.spaces) + self.evaluations

    def learn(
        self,
        problems: Sequence[Problem],
        context: Context,
        *,
        history: str | PathLike[str] | None = None,
        run: Run | None = None,
        on_screened: Callable[[Screened], None] = lambda _: None,
        on_evaluation: Callable[[Evaluation], None] = lambda _: None,
    ) -> TuningResult:
        """Screen the spaces on the first of ``problems``, and search the one with the largest reach.

        A solution is rewarded for its question's reference answer. Where a question has none, the model
        writes programs, and a solution is rewarded for the share of them whose answer it has.

        Args:
            problems: The questions.
            context: The engine, prompts, grader and seed.
            history: As for :func:`~soft_reasoning.task.tune`.
            run: As for :class:`~soft_reasoning.task.TaskObjective`.
            on_screened: Called after each space.
            on_evaluation: Called after each point of the search.

        Raises:
            UserError: For too few questions with an answer, or questions of several answer types.
        """
        context = one_prompt(problems, context)
        pairs = rewarded(problems, context, run, self.max_new_tokens)
        count = round((1 - self.validation) * len(pairs))
        if count < 2 or count == len(pairs):
            raise UserError(
                f"validation: expected two questions or more for the search and one for the comparison, got "
                f"{len(pairs)} with an answer, of which {self.validation:g} are kept; give more questions"
            )
        parts = pairs[:count], pairs[count:]
        screened = screen(
            [problem for problem, _ in parts[0]],
            context,
            self.spaces,
            points=self.points,
            accepted=[answers for _, answers in parts[0]],
            max_new_tokens=self.max_new_tokens,
            run=run,
            on_screened=on_screened,
        )
        searched = [space for space in screened if space.promising] or (screened if self.anyway else [])
        if not searched:
            return TuningResult(screened)
        chosen = max(searched, key=lambda space: space.reach)
        search, validation = (
            TaskObjective(
                [problem for problem, _ in part],
                self.spaces[chosen.name],
                context,
                accepted=[answers for _, answers in part],
                max_new_tokens=self.max_new_tokens,
                run=run,
            )
            for part in parts
        )
        tuned = tune(
            search, validation, evaluations=self.evaluations, history=history, on_evaluation=on_evaluation
        )
        return TuningResult(screened, chosen.name, tuned)


def rewarded(
    problems: Sequence[Problem], context: Context, run: Run | None, max_new_tokens: int
) -> list[tuple[Problem, tuple[str, ...]]]:
    """Return the problems with the answers that are rewarded, without problems that have none.

    They are the reference answer, or where there is none those of programs that the model writes, of up to
    ``max_new_tokens``.
    """
    unlabelled = [problem for problem in problems if problem.gold is None]
    written: dict[str, tuple[str, ...]] = {}
    if unlabelled:
        programs = Programs(max_new_tokens=max_new_tokens)
        programs.check_wording(context.prompts.wording)
        answers = program_answers(unlabelled, context, programs, run)
        written = {problem.id: found for problem, found in zip(unlabelled, answers, strict=True)}
    pairs = [(p, written[p.id] if p.gold is None else (p.gold,)) for p in problems]
    return [(problem, answers) for problem, answers in pairs if answers]
