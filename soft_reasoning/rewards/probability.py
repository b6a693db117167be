"""A verifier that reads one probability per candidate and writes nothing.

The model is asked whether a solution is right; the score is the probability of Yes against No as its next
token. For most judges of mathematics such short verdicts match or beat long reviews (SLMJury, arXiv
2606.07810).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from soft_reasoning.rewards.prefix_value import Prefix, SelfJudged
from soft_reasoning.rewards.verifiers import Verdict
from soft_reasoning.scheduling.context import Context
from soft_reasoning.types import Candidate, Effect, Problem, Prompt


@dataclass(frozen=True)
class ProbabilityVerifier:
    """Scores each candidate by the probability that the model calls its solution right.

    Each solution has a prompt of its own, that of ``prefix_scorer`` (``prompt.wording.tasks.prefix_right``);
    equal solutions share one. Candidates without an answer score 0. Nothing is generated.

    Example:
        >>> ProbabilityVerifier()
    """

    name: str = "probability"

    def verify(
        self,
        problem: Problem,
        candidates: Sequence[Candidate],
        context: Context,
        *,
        stage: str,
        earlier: Sequence[Verdict] = (),
    ) -> Generator[Effect, Any, Verdict]:
        texts = list(dict.fromkeys(c.text for c in candidates if c.answer is not None))
        if not texts:
            return Verdict(scores=(0.0,) * len(candidates))
        solutions = [Prefix((), text) for text in texts]
        values = yield from SelfJudged().values(problem, Prompt(()), solutions, context)
        right = dict(zip(texts, values.tolist(), strict=True))
        scores = tuple(0.0 if c.answer is None else right[c.text] for c in candidates)
        return Verdict(scores, texts=tuple(f"Yes: {right[text]:.3f}" for text in texts))
