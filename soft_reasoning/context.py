"""What a run hands to its methods and verifiers."""

from __future__ import annotations

from dataclasses import dataclass

from soft_reasoning.answers import AnswerGrader
from soft_reasoning.engines.base import Engine
from soft_reasoning.prompts import Prompts
from soft_reasoning.types import seed_for


@dataclass(frozen=True)
class Context:
    """``engine`` is for looking up (tokenizer, embeddings); everything that costs model work goes
    through a yielded effect. ``seed`` is the run's."""

    engine: Engine
    prompts: Prompts
    grader: AnswerGrader
    seed: int

    def stream(self, *stage: object) -> int:
        """The seed of one stage, such as ``stream(problem.id, "sample", 3)``."""
        return seed_for(self.seed, *stage)
