"""Best of n: self-consistency's samples, of which the one with the highest reward answers.

It tells what the reward is worth without a search: same verifier, same coherence, no optimiser.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from soft_reasoning.checks import choice, whole
from soft_reasoning.methods.base import check_sampling, read_candidate, sampled
from soft_reasoning.rewards.combine import Reward
from soft_reasoning.rewards.verifiers import NoVerifier, Verifier
from soft_reasoning.types import Generate, Result, Sampling, UserError

SELECT = ("verifier", "coherence")


@dataclass(frozen=True)
class BestOfN:
    """``samples`` solutions at ``temperature`` and ``top_k``, the same as self-consistency's under the same
    settings. ``select`` "verifier" takes the parsed candidate of highest ``reward``, that of highest
    coherence among equals; "coherence" asks no verifier. The earliest wins what is still a tie. The verifier
    is shown ``together`` candidates at a time, as in a round of Soft Reasoning, so that any number fits."""

    verifier: Verifier
    reward: Reward
    select: str = "verifier"
    samples: int = 5
    together: int = 5
    temperature: float = 0.8
    top_k: int = 50
    top_p: float = 1.0
    max_new_tokens: int = 300
    name: str = "best_of_n"
    independent: ClassVar[bool] = True  # its candidates are, so pass@m can be estimated

    def __post_init__(self) -> None:
        for key in ("samples", "together", "max_new_tokens"):
            whole(f"method.{key}", getattr(self, key), least=1)
        check_sampling(self)
        choice("method.select", self.select, SELECT)
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
        verdicts = []
        if self.select == "verifier":
            for number, start in enumerate(range(0, len(found), self.together)):
                shown, stage = found[start : start + self.together], f"round-{number}"
                verdicts.append((yield from self.verifier.verify(problem, shown, context, stage=stage)))
        scores = [score for v in verdicts for score in v.scores] or [None] * len(found)
        agreement = [agreed for v in verdicts for agreed in v.agreement] or [None] * len(found)
        found = [
            replace(
                c, verified=score, agreement=agreed,
                reward=c.coherence if score is None else self.reward(score, c.coherence),
            )
            for c, score, agreed in zip(found, scores, agreement, strict=True)
        ]  # fmt: skip
        parsed = [c for c in found if c.answer is not None]
        best = max(parsed, key=lambda c: (c.reward, c.coherence), default=None)
        said = {
            "answers": [answer for v in verdicts for answer in v.answers],
            "weights": [weight for v in verdicts for weight in v.weights],
            "texts": [text for v in verdicts for text in v.texts],
        }
        trace = ({"round": 0, "rewards": [c.reward for c in found], "verifier": said},)
        return Result(None if best is None else best.answer, tuple(found), trace)
