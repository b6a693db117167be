"""The method seam: a method is written for ONE problem, as a generator."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol, TypeAlias, TypeVar

from soft_reasoning.checks import real, whole
from soft_reasoning.context import Context
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


def check_sampling(method: Any, *, fix: str = "method=cot is the greedy one") -> None:
    """Refuse a ``temperature`` (``fix`` tells what to do about 0), ``top_k`` or ``top_p`` of ``method`` that
    nothing can be drawn with."""
    real("method.temperature", method.temperature, above=0.0, fix=fix)
    whole("method.top_k", method.top_k, least=0)
    real("method.top_p", method.top_p, above=0.0, most=1.0)


def sampled(
    problem: Problem, context: Context, sampling: Sampling, count: int, max_new_tokens: int
) -> list[Request]:
    """``count`` requests for a solution, each on a stream of its own, the same for every method: methods
    that sample alike draw the very same solutions."""
    prompt = context.prompts.solve(problem)
    return [
        Request(
            prompt.ids,
            sampling=sampling,
            max_new_tokens=max_new_tokens,
            stop=context.prompts.stop,
            seed=context.stream(problem.id, "sample", i),
        )
        for i in range(count)
    ]
