"""Best of n: of the samples of self-consistency, the one with the highest reward is the answer.

It shows the value of the reward without a search: same verifier, same coherence, no optimiser.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from soft_reasoning.checks import choice, whole
from soft_reasoning.context import Context
from soft_reasoning.methods.base import Steps, check_sampling, read_candidate, sampled
from soft_reasoning.rewards.combine import Reward
from soft_reasoning.rewards.verifiers import NoVerifier, Verifier
from soft_reasoning.types import Generate, Problem, Result, Sampling, UserError

SELECT = ("verifier", "coherence")


@dataclass(frozen=True)
class BestOfN:
    """Samples solutions, as self-consistency does under the same settings, and selects one.

    Args:
        verifier: Scores the solutions.
        reward: Combines score and coherence.
        select: ``verifier`` takes the parsed candidate of highest reward, then of highest coherence.
            ``coherence`` does not run the verifier. The earliest candidate wins a tie.
        samples: Number of solutions.
        together: Candidates that the verifier sees at a time, as in a round of Soft Reasoning.
        temperature: Sampling temperature.
        top_k: Most likely tokens that are sampled from; 0 is off.
        top_p: Their total probability; 1 is off.
        max_new_tokens: Tokens per solution.
    """

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
    independent: ClassVar[bool] = True  # candidates are i.i.d., so pass@m can be estimated

    def __post_init__(self) -> None:
        for key in ("samples", "together", "max_new_tokens"):
            whole(f"method.{key}", getattr(self, key), least=1)
        check_sampling(self)
        choice("method.select", self.select, SELECT)
        if self.select == "verifier" and isinstance(self.verifier, NoVerifier):
            raise UserError("method.select=verifier: expected a verifier, got verifier=none; "
                            "use method.select=coherence")  # fmt: skip

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
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
