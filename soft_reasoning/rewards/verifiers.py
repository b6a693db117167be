"""Verifiers: the same model judges a round's candidates (Section 2.2, Appendix "Prompts for Verifiers").

A verifier is a generator like a method: it yields effects and returns a :class:`Verdict`. It sees the
problem without its gold answer. Candidates whose answer could not be parsed are not shown and score 0; a
verifier that has none to show is not asked, and gives no answer of its own (``fresh``, which is shown none,
always is).
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from soft_reasoning.checks import choice, real, whole
from soft_reasoning.context import Context
from soft_reasoning.rewards.coherence import coherence
from soft_reasoning.types import (
    GREEDY,
    Candidate,
    Completion,
    Effect,
    Generate,
    Problem,
    Prompt,
    Request,
    Sampling,
    UserError,
)  # fmt: skip

SHOWN = ("reasoning", "answer")
CONFIDENCES = ("none", "mean_prob", "sequence_prob")


@dataclass(frozen=True)
class Verdict:
    """``scores`` in [0, 1], one a candidate (None: not judged); ``answers`` the verifier's own, one a
    sample it wrote, and ``weights`` in [0, 1] how much each of them counts; ``texts`` what it wrote, of
    ``tokens`` in all. ``agreement``: the scores before confidence; where nothing is said, the scores."""

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
        """``stage`` names the round, for seeds; ``earlier`` are the verdicts of the rounds before."""
        ...


@dataclass(frozen=True)
class NoVerifier:
    """Judges nothing: rewards are coherence alone and only candidates vote."""

    name: str = "none"

    def verify(self, problem, candidates, context, *, stage, earlier=()):
        return Verdict(scores=(None,) * len(candidates))
        yield


@dataclass(frozen=True)
class Oracle:
    """Compares with the gold answer: for analysis only, an upper bound on what a verifier can give."""

    name: str = "oracle"

    def verify(self, problem, candidates, context, *, stage, earlier=()):
        if problem.gold is None:
            raise UserError(
                "verifier=oracle: expected a problem with a gold answer, got none; use another verifier"
            )
        return Verdict(scores=tuple(float(context.grader.correct(c.answer, problem)) for c in candidates))
        yield


@dataclass(frozen=True)
class ModelVerifier:
    """Shared by the four verifiers of the paper: prompts, samples, token limit.

    ``show`` "reasoning" shows each candidate's text, "answer" its parsed answer alone; where the context has
    no room for all, the last are not shown, and agree with a solution or not all the same. ``shots`` worked
    reviews stand before it (None: all that the prompt has and the context has room for). ``samples`` > 1
    draws that many judgements at ``temperature``; a score is the share of them that call the candidate right.
    ``confidence`` weights each judgement, and its answer in a final vote, by the probability that the model
    gave to what it wrote: ``mean_prob``, the mean over tokens, or ``sequence_prob``, their product.
    """

    name: str
    samples: int = 1
    temperature: float = 0.0
    show: str = "reasoning"
    shots: int | None = None
    confidence: str = "none"
    max_new_tokens: int = 300

    def __post_init__(self) -> None:
        for key in ("samples", "max_new_tokens"):
            whole(f"verifier.{key}", getattr(self, key), least=1)
        real("verifier.temperature", self.temperature, least=0.0)
        if self.samples > 1:
            fix = "several samples of temperature 0 are equal"
            real("verifier.temperature", self.temperature, above=0.0, fix=fix)
        if self.shots is not None:
            whole("verifier.shots", self.shots, least=0)
        for key, known in (("show", SHOWN), ("confidence", CONFIDENCES)):
            choice(f"verifier.{key}", getattr(self, key), known)

    def _requests(
        self, problem, shown: Sequence[Candidate], context: Context, stage: str, earlier: Sequence[Verdict]
    ) -> list[Request]:
        prompt = self._prompt(problem, shown, context, earlier)
        base = Request(
            prompt_ids=prompt.ids, max_new_tokens=self.max_new_tokens, stop=context.prompts.stop,
            role="verifier",
            sampling=Sampling(self.temperature) if self.temperature > 0 else GREEDY,
        )  # fmt: skip
        return [
            replace(base, seed=context.stream(problem.id, self.name, stage, sample))
            for sample in range(self.samples)
        ]

    def verify(self, problem, candidates, context, *, stage, earlier=()):
        problem = problem.without_gold()
        shown = [i for i, c in enumerate(candidates) if c.answer is not None]
        scores, agreement = [0.0] * len(candidates), [0.0] * len(candidates)
        groups = self._groups(shown)
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
        weights = [self._weight(completion) for completion in completions]
        for g, group in enumerate(groups):
            for s in range(g * self.samples, (g + 1) * self.samples):
                agreed, answer = self._judge(
                    completions[s].text, [candidates[i] for i in group], problem, context
                )
                answers += [answer] if self.answers_itself else []
                for i, one in zip(group, agreed, strict=True):
                    scores[i] += weights[s] * one / self.samples
                    agreement[i] += one / self.samples
        return Verdict(
            tuple(scores), tuple(answers), tuple(c.text for c in completions), tuple(weights[: len(answers)]),
            tokens=sum(c.generated_tokens for c in completions), agreement=tuple(agreement),
        )  # fmt: skip

    def _prompt(
        self, problem, shown: Sequence[Candidate], context: Context, earlier: Sequence[Verdict]
    ) -> Prompt:
        brief = self.show == "answer"
        recalled = list(self._recalled(earlier))
        texts = [f"Answer: {c.answer}" if brief else c.text for c in shown]
        room = context.engine.context_length - self.max_new_tokens
        while True:
            prompt = context.prompts.review(
                self.name, problem, [*recalled, *texts], shots=self.shots, brief=brief, room=room
            )
            if len(prompt.ids) <= room or len(recalled) + len(texts) < 2:
                return prompt
            (recalled or texts).pop(0 if recalled else -1)  # the oldest; then the last, which keeps numbers

    def _recalled(self, earlier: Sequence[Verdict]) -> Sequence[str]:
        """What of earlier rounds precedes the candidates in the prompt: nothing."""
        return ()

    def _weight(self, completion: Completion) -> float:
        if self.confidence == "none":
            return 1.0
        if self.confidence == "mean_prob":
            return coherence(completion, "mean_prob")
        return math.exp(coherence(completion, "sum_logprob"))


class _Multi:
    """All candidates in one prompt."""

    def _groups(self, shown: list[int]) -> list[list[int]]:
        return [shown] if shown else []


class _Single:
    """One prompt a candidate."""

    def _groups(self, shown: list[int]) -> list[list[int]]:
        return [[i] for i in shown]


class _Generate:
    """The verifier writes a fresh solution; candidates that agree with its answer score 1."""

    answers_itself = True

    def _read(self, text: str, answer_type: str, context) -> str | None:
        return context.grader.extract(text, answer_type)

    def answer_alone(self, problem, context, *, stage):
        """Solve with no candidate shown: each sample's completion, answer and weight."""
        completions = yield Generate(self._requests(problem.without_gold(), (), context, stage, ()))
        return [(c, self._read(c.text, problem.answer_type, context), self._weight(c)) for c in completions]

    def _judge(self, text, candidates, problem, context):
        answer = self._read(text, problem.answer_type, context)
        equal = context.grader.equal
        return [
            float(answer is not None and equal(c.answer, answer, problem.answer_type)) for c in candidates
        ], answer


class _Judge:
    """The verifier names the right candidates on its last ``Correct:`` line: their numbers, or None."""

    answers_itself = False

    def _judge(self, text, candidates, problem, context):
        named = verdict_numbers(text)
        return [float(i in named) for i in range(1, len(candidates) + 1)], None


def verdict_numbers(text: str) -> tuple[int, ...]:
    """The integers of up to three digits on the last ``Correct:`` line of ``text``, in order, or on its first
    line where no such line stands (the prompt may end in ``Correct:``); "None" and anything else without
    digits is empty."""
    marked = re.findall(r"Correct:([^\n]*)", text)
    line = marked[-1] if marked else text.strip().partition("\n")[0]
    return tuple(int(number) for number in re.findall(r"(?<!\d)\d{1,3}(?!\d)", line)[:64])


@dataclass(frozen=True)
class MultiGenerate(_Multi, _Generate, ModelVerifier):
    """A fresh solution from all candidates (the paper's choice)."""

    name: str = "multi_generate"


@dataclass(frozen=True)
class SingleGenerate(_Single, _Generate, ModelVerifier):
    """A fresh solution from one candidate."""

    name: str = "single_generate"


@dataclass(frozen=True)
class MultiJudge(_Multi, _Judge, ModelVerifier):
    """The numbers of the right candidates."""

    name: str = "multi_judge"


@dataclass(frozen=True)
class SingleJudge(_Single, _Judge, ModelVerifier):
    """1 for a right candidate, 0 or None for a wrong one; the first 0 or 1 counts."""

    name: str = "single_judge"

    def _judge(self, text, candidates, problem, context):
        return [float(next((n for n in verdict_numbers(text) if n in (0, 1)), 0))], None


@dataclass(frozen=True)
class Fresh(_Multi, _Generate, ModelVerifier):
    """A solution written without sight of the candidates: what reading them adds is the others' gain on it.

    Greedy, it says the same in every round; with ``samples`` at a temperature each round draws its own, and
    their vote with the candidates is self-consistency.
    """

    name: str = "fresh"

    def _groups(self, shown):
        return [shown]

    def _prompt(self, problem, shown, context, earlier):
        return context.prompts.solve(problem)
