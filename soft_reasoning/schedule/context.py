"""The run's context, which methods and verifiers read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.checks import real, whole
from soft_reasoning.engine.base import Engine
from soft_reasoning.prompts import Prompts
from soft_reasoning.types import seed_for


@dataclass(frozen=True)
class Limits:
    """Bounds of each problem, also within a round; None is no bound.

    Args:
        max_tokens: Maximum number of generated tokens, candidates and verifier together. Requests of one
            effect share the remaining tokens equally.
        max_seconds: Time limit. Problems share the time, so this bound is not reproducible.
    """

    max_tokens: int | None = None
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            whole("max_tokens", self.max_tokens, least=1)
        if self.max_seconds is not None:
            real("max_seconds", self.max_seconds, above=0.0)


@dataclass(frozen=True)
class Context:
    """The values that methods read during a run.

    Attributes:
        engine: For its tokenizer and embeddings; model work goes through yielded effects.
        prompts: Builds prompts.
        grader: Extracts and compares answers.
        seed: The run's seed.
        limits: Bounds of each problem, which the scheduler enforces.
        judges: Contexts of other models that act as judges, by name.
    """

    engine: Engine
    prompts: Prompts
    grader: AnswerGrader
    seed: int
    limits: Limits = Limits()
    judges: Mapping[str, Context] = field(default_factory=dict[str, "Context"])

    @property
    def engines(self) -> list[Engine]:
        """The run's engine and those of the judges."""
        return [self.engine, *(judge.engine for judge in self.judges.values())]

    def stream(self, *stage: object) -> int:
        """Return the seed of one stage, such as ``stream(problem.id, "sample", 3)``."""
        return seed_for(self.seed, *stage)
