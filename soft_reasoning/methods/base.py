"""The method seam: a method is written for ONE problem, as a generator."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, TypeVar

from soft_reasoning.checks import real, whole
from soft_reasoning.context import Context
from soft_reasoning.rewards.combine import Reward
from soft_reasoning.rewards.verifiers import Verdict, Verifier
from soft_reasoning.search.stopping import Stopping
from soft_reasoning.types import Candidate, Completion, Effect, Problem, Request, Result, Sampling

T = TypeVar("T")
Steps: TypeAlias = Generator[Effect, Any, T]
"""A generator that yields effects, receives their answers and returns a T."""


class Method(Protocol):
    """Solves one problem at a time, reading like pseudo-code; the scheduler batches across problems.

    A method never reads ``problem.gold`` (a gold-reading verifier, ``oracle``, is for analysis alone),
    draws only from ``types.generator_for(context.seed, problem.id, stage)``, and leaves ``Result.usage``
    to the scheduler.

    A method whose first round's candidates are independent samples of one distribution, their number fixed
    beforehand, says so by ``independent = True``; pass@m is estimated for it alone.
    """

    name: str

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        """Yields effects, receives their answers, returns the result."""
        ...


def read_candidate(completion: Completion, problem: Problem, context: Context, round: int = 0) -> Candidate:
    """The candidate that ``completion`` is: its text, its parsed answer and its length."""
    return Candidate(
        text=completion.text,
        answer=context.grader.extract(completion.text, problem.answer_type),
        round=round,
        generated_tokens=completion.generated_tokens,
        finish_reason=completion.finish_reason,
    )


def judge_round(
    found: Sequence[Candidate],
    problem: Problem,
    context: Context,
    *,
    verifier: Verifier,
    reward: Reward,
    earlier: Sequence[Verdict],
) -> Steps[tuple[list[Candidate], Verdict]]:
    """Verify a round's candidates, whose coherence is known, together, and reward them.

    ``earlier`` holds the verdicts of the rounds before.
    """
    verdict = yield from verifier.verify(
        problem, found, context, stage=f"round-{len(earlier)}", earlier=earlier
    )
    judged = [
        replace(c, verified=score, agreement=agreed, reward=reward(score, c.coherence))
        for c, score, agreed in zip(found, verdict.scores, verdict.agreement, strict=True)
    ]
    return judged, verdict


class Rounds:
    """The rounds of one problem so far: ``seen`` candidates, ``verdicts`` and ``trace``."""

    def __init__(self) -> None:
        self._began, self._written = time.monotonic(), 0
        self._rewards: list[list[float]] = []
        self.seen: list[Candidate] = []
        self.verdicts: list[Verdict] = []
        self.trace: list[dict[str, Any]] = []

    def add(self, found: Sequence[Candidate], verdict: Verdict, **more: Any) -> None:
        """A round that is judged; ``more`` goes into its entry of the trace."""
        self.seen += found
        self.verdicts.append(verdict)
        self._rewards.append([c.reward for c in found])
        self._written += verdict.tokens + sum(c.generated_tokens for c in found)
        said = {"answers": verdict.answers, "weights": verdict.weights, "texts": verdict.texts}
        self.trace.append(
            {
                "round": len(self._rewards) - 1,
                "rewards": self._rewards[-1],
                "verifier": {key: list(value) for key, value in said.items()},
                **more,
            }
        )

    def end(self, stopping: Stopping) -> bool:
        """Whether ``stopping`` says to stop now; the trace tells why."""
        reason = stopping.reason(
            self._rewards,
            agreement=self.verdicts[-1].agreement,
            tokens=self._written,
            seconds=time.monotonic() - self._began,
        )
        if reason is not None:
            self.trace[-1]["ended"] = reason
        return reason is not None


def check_sampling(given: Any, *, where: str = "method", fix: str = "method=cot is the greedy one") -> None:
    """Refuse a ``temperature`` (``fix`` tells what to do about 0), ``top_k`` or ``top_p`` of ``given`` that
    nothing can be drawn with; ``where`` they are configured."""
    real(f"{where}.temperature", given.temperature, above=0.0, fix=fix)
    whole(f"{where}.top_k", given.top_k, least=0)
    real(f"{where}.top_p", given.top_p, above=0.0, most=1.0)


def sampled(
    problem: Problem,
    context: Context,
    sampling: Sampling,
    count: int,
    max_new_tokens: int,
    *,
    first: int = 0,
) -> list[Request]:
    """``count`` requests for a solution, each on a stream of its own, the same for every method: methods
    that sample alike draw the very same solutions. ``first`` counts those drawn before."""
    prompt = context.prompts.solve(problem)
    return [
        Request(
            prompt.ids,
            sampling=sampling,
            max_new_tokens=max_new_tokens,
            stop=context.prompts.stop,
            seed=sample_seed(problem, context, first + i),
        )
        for i in range(count)
    ]


def sample_seed(problem: Problem, context: Context, index: int) -> int:
    """The seed of a problem's ``index``-th sampled candidate, counted over all rounds."""
    return context.stream(problem.id, "sample", index)
