"""What a run gives to its methods and verifiers."""

from __future__ import annotations

from dataclasses import dataclass

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.engines.base import Engine
from soft_reasoning.prompts import Prompts
from soft_reasoning.types import seed_for


@dataclass(frozen=True)
class Context:
    """What methods look up during a run.

    Attributes:
        engine: For its tokenizer and embeddings; model work goes through yielded effects.
        prompts: Builds prompts.
        grader: Extracts and compares answers.
        seed: The run's seed.
    """

    engine: Engine
    prompts: Prompts
    grader: AnswerGrader
    seed: int

    def stream(self, *stage: object) -> int:
        """Return the seed of one stage, such as ``stream(problem.id, "sample", 3)``."""
        return seed_for(self.seed, *stage)
