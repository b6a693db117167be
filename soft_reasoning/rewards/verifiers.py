"""Verifiers: the same model judges a round's candidates (paper, "Optimisation Objective").

A verifier is a generator like a method:
it yields effects and returns a :class:`Verdict`. It sees the problem without its gold answer. Candidates
without a parsed answer are not shown and score 0. A verifier with nothing to show is not asked and gives no
answer of its own (``fresh``, which sees no candidates, always is).

The model's own verifiers are composed of a presentation (together, one by one, unseen) and a judgement (a
fresh solution, a named choice); ``conf/verifier/`` names the combinations.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from soft_reasoning.answers import FREE
from soft_reasoning.checks import choice, real, whole
from soft_reasoning.rewards.coherence import coherence
from soft_reasoning.rewards.judgement import FreshSolution, Judgement, NamedChoice
from soft_reasoning.rewards.presentation import Presentation, Review, Together
from soft_reasoning.scheduling.context import Context
from soft_reasoning.types import (
    GREEDY,
    Candidate,
    Completion,
    Effect,
    Generate,
    Problem,
    Request,
    Sampling,
    UserError,
)  # fmt: skip

SHOWN = ("reasoning", "answer")
CONFIDENCES = ("none", "mean_prob", "sequence_prob")


@dataclass(frozen=True)
class Verdict:
    """A verifier's judgement of a round.

    Attributes:
        scores: One in [0, 1] per candidate; None if it was not judged.
        answers: The verifier's own answers, one per sample that it wrote.
        texts: What it wrote.
        weights: Weight in [0, 1] of each answer.
        tokens: Number of tokens it wrote.
        agreement: The scores before confidence; by default the scores.
    """

    scores: tuple[float | None, ...]
    answers: tuple[str | None, ...] = ()
    texts: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    tokens: int = 0
    agreement: tuple[float | None, ...] = ()

    def __post_init__(self) -> None:
        if not self.agreement:
            object.__setattr__(self, "agreement", self.scores)


class Verifier(Protocol):
    """Scores the candidates of a round."""

    name: str

    def verify(
        self,
        problem: Problem,
        candidates: Sequence[Candidate],
        context: Context,
        *,
        stage: str,
        earlier: Sequence[Verdict] = (),
    ) -> Generator[Effect, Any, Verdict]:
        """Judge ``candidates``.

        ``stage`` names the round, for seeds; ``earlier`` holds the verdicts of the previous rounds.
        """
        ...


@dataclass(frozen=True)
class NoVerifier:
    """Judges nothing, so rewards are coherence only and only candidates vote."""

    name: str = "none"

    def verify(
        self,
        problem: Problem,
        candidates: Sequence[Candidate],
        context: Context,
        *,
        stage: str,
        earlier: Sequence[Verdict] = (),
    ) -> Generator[Effect, Any, Verdict]:
        return Verdict(scores=(None,) * len(candidates))
        yield


@dataclass(frozen=True)
class Oracle:
    """Compares with the gold answer, for analysis only: an upper bound for every verifier."""

    name: str = "oracle"

    def verify(
        self,
        problem: Problem,
        candidates: Sequence[Candidate],
        context: Context,
        *,
        stage: str,
        earlier: Sequence[Verdict] = (),
    ) -> Generator[Effect, Any, Verdict]:
        if problem.gold is None:
            raise UserError(
                "verifier=oracle: expected a problem with a gold answer, got none; use another verifier"
            )
        return Verdict(
            scores=tuple(float(bool(context.grader.correct(c.answer, problem))) for c in candidates)
        )
        yield


@runtime_checkable
class AnswersAlone(Protocol):
    """A verifier that may be able to solve a problem without candidates."""

    @property
    def answers_itself(self) -> bool: ...

    def answer_alone(
        self, problem: Problem, context: Context, *, stage: str
    ) -> Generator[Effect, Any, list[tuple[Completion, str | None, float]]]:
        """Return each sample's completion, answer and weight."""
        ...


@dataclass(frozen=True)
class ModelVerifier:
    """The model judges the candidates: ``presentation`` shows them, ``judgement`` reads the model's text.

    Args:
        name: Its wording, an entry of ``prompt.wording.reviews``.
        presentation: Which candidates share a prompt, and what it shows.
        judgement: How scores are read from the text.
        samples: Judgements per prompt; a score is the share of them that call the candidate right.
        temperature: Sampling temperature of the judgements.
        show: ``reasoning`` shows each candidate's text, ``answer`` only its parsed answer. If the context
            has no room for all, the last ones are not shown; they are still compared with the verifier's
            answer.
        shots: Worked reviews before the candidates; None is as many as the prompt has and the context
            allows.
        confidence: Weighs each judgement, and its answer in a final vote, by the model's probability of its
            text: ``mean_prob`` is the mean over tokens, ``sequence_prob`` their product, ``none`` is 1.
        max_new_tokens: Tokens per judgement.

    Raises:
        UserError: For a value out of its range.

    Example:
        >>> ModelVerifier(name="single_judge", presentation=OneByOne(), judgement=NamedChoice())
    """

    name: str = "multi_generate"
    presentation: Presentation = field(default_factory=Together)
    judgement: Judgement = field(default_factory=FreshSolution)
    samples: int = 1
    temperature: float = 0.0
    show: str = "reasoning"
    shots: int | None = None
    confidence: str = "none"
    max_new_tokens: int = 300

    def __post_init__(self) -> None:
        for key in ("samples", "max_new_tokens"):
            whole(key, getattr(self, key), least=1)
        real("temperature", self.temperature, least=0.0)
        if self.samples > 1:
            fix = "several samples of temperature 0 are equal"
            real("temperature", self.temperature, above=0.0, fix=fix)
        if self.shots is not None:
            whole("shots", self.shots, least=0)
        for key, known in (("show", SHOWN), ("confidence", CONFIDENCES)):
            choice(key, getattr(self, key), known)

    @property
    def answers_itself(self) -> bool:
        """Whether it writes answers of its own."""
        return self.judgement.writes_answer

    def answer_alone(
        self, problem: Problem, context: Context, *, stage: str
    ) -> Generator[Effect, Any, list[tuple[Completion, str | None, float]]]:
        """Solve the problem without candidates: each sample's completion, answer and weight."""
        completions = yield Generate(self._requests(problem.without_gold(), (), context, stage, ()))
        kind, grader = problem.answer_type, context.grader
        return [(c, self.judgement.read(c.text, kind, grader), self._weight(c)) for c in completions]

    def verify(
        self,
        problem: Problem,
        candidates: Sequence[Candidate],
        context: Context,
        *,
        stage: str,
        earlier: Sequence[Verdict] = (),
    ) -> Generator[Effect, Any, Verdict]:
        if self.judgement.writes_answer and problem.answer_type in FREE:  # no two texts would agree
            name = self.name.replace("generate", "judge")
            chooser = replace(self, name=name, judgement=NamedChoice())
            return (yield from chooser.verify(problem, candidates, context, stage=stage, earlier=earlier))
        problem = problem.without_gold()
        shown = [i for i, c in enumerate(candidates) if c.answer is not None]
        scores, agreement = [0.0] * len(candidates), [0.0] * len(candidates)
        groups = self.presentation.groups(shown)
        if not groups:
            return Verdict(scores=tuple(scores))
        requests = [
            request
            for g, group in enumerate(groups)
            for request in self._requests(
                problem, [candidates[i] for i in group], context, f"{stage}-{g}", earlier
            )
        ]
        completions: list[Completion] = yield Generate(requests)
        answers: list[str | None] = []
        kind, grader = problem.answer_type, context.grader
        weights = [self._weight(completion) for completion in completions]
        for g, group in enumerate(groups):
            for s in range(g * self.samples, (g + 1) * self.samples):
                text, judged = completions[s].text, [candidates[i] for i in group]
                agreed = self.judgement.scores(text, judged, problem, grader)
                answers += [self.judgement.read(text, kind, grader)] if self.answers_itself else []
                for i, one in zip(group, agreed, strict=True):
                    scores[i] += weights[s] * one / self.samples
                    agreement[i] += one / self.samples
        return Verdict(
            tuple(scores), tuple(answers), tuple(c.text for c in completions), tuple(weights[: len(answers)]),
            tokens=sum(c.generated_tokens for c in completions), agreement=tuple(agreement),
        )  # fmt: skip

    def _requests(
        self,
        problem: Problem,
        shown: Sequence[Candidate],
        context: Context,
        stage: str,
        earlier: Sequence[Verdict],
    ) -> list[Request]:
        brief = self.show == "answer"
        room = context.engine.context_length - self.max_new_tokens
        prompt = self.presentation.prompt(
            Review(problem, context, self.name, self.shots, brief, room),
            [f"Answer: {c.answer}" if brief else context.prompts.split(c.text)[1] for c in shown],
            earlier,
        )
        base = Request(
            prompt_ids=prompt.ids, max_new_tokens=self.max_new_tokens, stop=prompt.stop,
            role="verifier",
            sampling=Sampling(self.temperature) if self.temperature > 0 else GREEDY,
        )  # fmt: skip
        return [
            replace(base, seed=context.stream(problem.id, self.name, stage, sample))
            for sample in range(self.samples)
        ]

    def _weight(self, completion: Completion) -> float:
        if self.confidence == "none":
            return 1.0
        if self.confidence == "mean_prob":
            return coherence(completion, "mean_prob")
        return math.exp(coherence(completion, "sum_logprob"))
