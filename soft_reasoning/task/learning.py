"""A task learnt from its questions: screen the spaces, search the most promising one, validate its points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from soft_reasoning.checks import choice, counts, real, switch, whole
from soft_reasoning.judge.programs import Programs
from soft_reasoning.learnt import distinct
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.schedule.scheduler import Run, run_steps
from soft_reasoning.task.objective import Evaluation, TaskObjective, one_prompt
from soft_reasoning.task.screening import SPACES, Screened, screen
from soft_reasoning.task.space import TaskSpace
from soft_reasoning.task.tuning import INITIAL, Tuned, tune
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
        whole("evaluations", self.evaluations, least=INITIAL)
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
        run: Run | None = None,
        on_screened: Callable[[Screened], None] = lambda _: None,
        on_evaluation: Callable[[Evaluation], None] = lambda _: None,
    ) -> TuningResult:
        """Screen the spaces on the first of ``problems``, and search the one with the largest reach.

        A solution is rewarded for its question's reference answer. Where a question has none, the model
        writes programs, and a solution is rewarded for the share of them whose answer it has. A question that
        is there several times counts once.

        Args:
            problems: The questions.
            context: The engine, prompts, grader and seed.
            run: As for :class:`~soft_reasoning.task.TaskObjective`.
            on_screened: Called after each space.
            on_evaluation: Called after each point of the search.

        Raises:
            UserError: For too few questions with an answer, or questions of several answer types.
        """
        context = one_prompt(problems, context)
        problems, accepted = rewarded(problems, context, self.max_new_tokens, run)
        count = round((1 - self.validation) * len(problems))
        if count < 2 or count == len(problems):
            raise UserError(
                f"validation: expected two questions or more for the search and one for the comparison, got "
                f"{len(problems)} with an answer, of which {self.validation:g} are kept; give more questions"
            )
        objective = partial(
            TaskObjective, context=context, accepted=accepted, max_new_tokens=self.max_new_tokens, run=run
        )
        seen, others = problems[:count], problems[count:]
        screened: list[Screened] = []
        greedy: Evaluation | None = None
        for name, space in self.spaces.items():
            searched = objective(seen, space)
            greedy = greedy or searched.ask([None])[0]
            screened.append(screen(name, searched, greedy, points=self.points))
            on_screened(screened[-1])
        candidates = [space for space in screened if space.promising] or (screened if self.anyway else [])
        if not candidates:
            return TuningResult(screened)
        chosen = max(candidates, key=lambda space: space.reach).name
        search, validation = (objective(part, self.spaces[chosen]) for part in (seen, others))
        tuned = tune(search, validation, evaluations=self.evaluations, on_evaluation=on_evaluation)
        return TuningResult(screened, chosen, tuned)


def rewarded(
    problems: Sequence[Problem], context: Context, max_new_tokens: int, run: Run | None = None
) -> tuple[list[Problem], dict[str, Sequence[str]]]:
    """Return the questions that can teach something, each once, and the answers that are rewarded, by id.

    These are the reference answer, or where there is none those of programs that the model writes, of up to
    ``max_new_tokens``. A question none of whose programs runs has none and is left out.

    Raises:
        UserError: For a question without a reference answer and a prompt that does not ask for programs.
    """
    problems = distinct(problems)
    accepted: dict[str, Sequence[str]] = {p.id: [p.gold] for p in problems if p.gold is not None}
    unlabelled = [problem for problem in problems if problem.gold is None]
    if unlabelled:
        programs = Programs(max_new_tokens=max_new_tokens)
        programs.check_wording(context.prompts.wording)

        def compute(problem: Problem, context: Context) -> Steps[list[str]]:
            written = yield from programs.write(problem, context, 0, programs.samples, role="verifier")
            return [program.answer for program in written if program.answer is not None]

        computed = run_steps(compute, unlabelled, context, run=run)
        accepted |= {p.id: answers for p, answers in zip(unlabelled, computed, strict=True) if answers}
    return [problem for problem in problems if problem.id in accepted], accepted
