"""Verified sampling: rounds of temperature samples under Soft Reasoning's verifier and rules.

This control shows the effect of the searched soft token: it has the same verifier, reward, stopping rule and
final rule, but no soft token. With a single round it is ``method=best_of_n``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from soft_reasoning.checks import counts, real
from soft_reasoning.method.rounds import Rounds, VerifiedMethod
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.schedule.solutions import read_candidate, sample_solutions
from soft_reasoning.types import MAX_NEW_TOKENS, Problem, Result, Sampling


@dataclass(frozen=True, kw_only=True)
class VerifiedSampling(VerifiedMethod):
    """Samples rounds of solutions as self-consistency does, and verifies them.

    The other parts are those of :class:`VerifiedMethod`.

    Args:
        decoding: How solutions are sampled.
        samples: k, candidates per round.
        max_new_tokens: Tokens per candidate.

    Raises:
        UserError: For a value out of its range.
    """

    decoding: Sampling = Sampling(temperature=0.8, top_k=50)
    samples: int = 5
    max_new_tokens: int = MAX_NEW_TOKENS
    name: str = "verified_sampling"
    short: ClassVar[Mapping[str, str]] = {
        "k": "samples",
        "rounds": "stopping.rounds",
        "temperature": "decoding.temperature",
    }
    independent: ClassVar[bool] = True  # a round's candidates are i.i.d., so pass@m can be estimated

    def __post_init__(self) -> None:
        counts(self, "samples", "max_new_tokens")
        fix = "use decoding=sampled with a temperature above 0"
        real("decoding.temperature", self.decoding.temperature, above=0.0, fix=fix)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        rounds = Rounds(self, problem, context)
        while True:
            number, first = len(rounds.verdicts), len(rounds.candidates)
            completions = yield from sample_solutions(
                problem, context, self.max_new_tokens, self.decoding, range(first, first + self.samples)
            )
            coherence = self.reward.coherence_of
            candidates = [read_candidate(c, problem, context, number, coherence(c)) for c in completions]
            yield from rounds.verify(candidates)
            if (yield from rounds.end()):
                return rounds.result()
