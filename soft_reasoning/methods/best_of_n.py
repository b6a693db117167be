"""Best of n: self-consistency's samples, of which the one with the highest reward answers.

It tells what the reward is worth without a search: same verifier, same coherence, no optimiser.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from soft_reasoning.methods.base import read_candidate, sampled
from soft_reasoning.rewards.combine import Reward
from soft_reasoning.rewards.verifiers import NoVerifier, Verdict, Verifier
from soft_reasoning.types import Generate, Result, Sampling, UserError

SELECT = ("verifier", "coherence")


@dataclass(frozen=True)
class BestOfN:
    """``samples`` solutions at ``temperature`` and ``top_k``, the same as self-consistency's under the same
    settings. ``select`` "verifier" takes the parsed candidate of highest ``reward``, that of highest
    coherence among equals; "coherence" asks no verifier. The earliest wins what is still a tie."""

    verifier: Verifier
    reward: Reward
    select: str = "verifier"
    samples: int = 5
    temperature: float = 0.8
    top_k: int = 50
    top_p: float = 1.0
    max_new_tokens: int = 300
    name: str = "best_of_n"
    independent: ClassVar[bool] = True  # its candidates are, so pass@m can be estimated

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise UserError(f"method.samples: expected at least 1, got {self.samples}")
        if self.temperature <= 0:
            raise UserError(f"method.temperature: expected more than 0, got {self.temperature}; "
                            "method=cot is the greedy one")  # fmt: skip
        if self.select not in SELECT:
            raise UserError(f"method.select: expected one of {', '.join(SELECT)}, got {self.select!r}")
        if self.select == "verifier" and isinstance(self.verifier, NoVerifier):
            raise UserError("method.select=verifier: expected a verifier, got verifier=none; "
                            "use method.select=coherence")  # fmt: skip

    def solve(self, problem, context):
        sampling = Sampling(self.temperature, self.top_k, self.top_p)
        completions = yield Generate(sampled(problem, context, sampling, self.samples, self.max_new_tokens))
        found = [
            replace(read_candidate(c, problem, context), coherence=self.reward.of_coherence(c))
            for c in completions
        ]
        verdict = Verdict(scores=(None,) * len(found))
        if self.select == "verifier":
            verdict = yield from self.verifier.verify(problem, found, context, stage="round-0")
        found = [
            replace(
                c, verified=score, reward=c.coherence if score is None else self.reward(score, c.coherence)
            )
            for c, score in zip(found, verdict.scores, strict=True)
        ]
        parsed = [c for c in found if c.answer is not None]
        best = max(parsed, key=lambda c: (c.reward, c.coherence), default=None)
        said = {
            "answers": list(verdict.answers),
            "weights": list(verdict.weights),
            "texts": list(verdict.texts),
        }
        trace = ({"round": 0, "rewards": [c.reward for c in found], "verifier": said},)
        return Result(None if best is None else best.answer, tuple(found), trace)
