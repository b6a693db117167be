"""The method seam: a method is written for ONE problem, as a generator."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from soft_reasoning.types import Generate, NextLogits, Problem, Propose, Result

if TYPE_CHECKING:
    from soft_reasoning.answers import Grader
    from soft_reasoning.engines.base import Engine
    from soft_reasoning.prompts import Prompts

Wish = Generate | NextLogits | Propose
"""What a method may yield; each type's docstring says what answers it."""


@dataclass(frozen=True)
class Context:
    """What a run hands to its methods. ``engine`` is for looking up (tokenizer, embeddings); everything
    that costs model work goes through a yielded wish."""

    engine: Engine
    prompts: Prompts
    grader: Grader
    seed: int


class Method(Protocol):
    """Solves one problem at a time, reading like pseudo-code; the scheduler batches across problems.

    A method never reads ``problem.gold`` (a gold-reading verifier, ``oracle``, is for analysis alone),
    draws only from ``types.generator_for(context.seed, problem.id, stage)``, and leaves ``Result.usage``
    to the scheduler.
    """

    name: str

    def solve(self, problem: Problem, context: Context) -> Generator[Wish, Any, Result]:
        ...
