"""Power sampling: a solution drawn from p^alpha by Metropolis-Hastings (Karan and Du 2025, arXiv 2510.14901).

p^alpha weighs whole solutions, so it looks ahead: a token is likelier if its likeliest continuations are. A
low temperature, in contrast, sharpens each token alone. The solution grows in blocks. After each block, some
steps draw a position t uniformly, rewrite the solution from there at temperature 1/alpha (the proposal q),
and accept it with probability min(1, p^alpha(x') q(x|x') / (p^alpha(x) q(x'|x))). As q(x) = p(x)^alpha /
prod Z over its tokens, with Z the sum of p^alpha over the next tokens, that is min(1, prod Z' / prod Z *
n / n') over the tokens from t on, where n and n' are the lengths of the two solutions. (The released code
leaves out n / n' and the tokens of a longer solution after the end of the shorter.) Draws and sums are over
the 20 likeliest tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch

from soft_reasoning.checks import counts, real, whole
from soft_reasoning.methods.base import majority_vote
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.scheduling.solutions import resume, solution_request
from soft_reasoning.types import Completion, FinishReason, Problem, Result, Sampling, generator_for

LIKELIEST = 20
EMPTY = Completion((), (), "", FinishReason.LENGTH, 0)


@dataclass(frozen=True)
class PowerSampling:
    """Draws one solution from the model's distribution to the power ``alpha``.

    Args:
        alpha: The power; 1 is plain sampling.
        blocks: Blocks of at most ``max_new_tokens`` / ``blocks`` tokens.
        steps: Metropolis-Hastings steps after each block; 0 samples at temperature 1 / ``alpha``.
        max_new_tokens: Tokens of the solution.
    """

    alpha: float = 4.0
    blocks: int = 16
    steps: int = 10
    max_new_tokens: int = 300
    name: str = "power_sampling"

    def __post_init__(self) -> None:
        real("alpha", self.alpha, least=1.0)
        counts(self, "blocks", "max_new_tokens")
        whole("steps", self.steps, least=0)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        limit = context.prompts.solve(problem).token_limit(self.max_new_tokens)
        draw = generator_for(context.seed, problem.id, "power")
        current, accepted, step = EMPTY, 0, 0
        for block in range(1, self.blocks + 1):
            end = math.ceil(limit * block / self.blocks)
            current = yield from self._rewrite(problem, context, current, len(current.token_ids), end, -block)
            for _ in range(self.steps if current.token_ids else 0):
                length = len(current.token_ids)
                at = int(torch.randint(length, (), generator=draw))
                proposed = yield from self._rewrite(problem, context, current, at, end, step)
                step += 1
                if len(proposed.token_ids) == at:  # the budget is spent
                    break
                gain = self.mass(proposed, at) - self.mass(current, at)
                gain += math.log(length / len(proposed.token_ids))
                if math.log(max(1e-300, float(torch.rand((), dtype=torch.float32, generator=draw)))) < gain:
                    current, accepted = proposed, accepted + 1
            if current.finish_reason != FinishReason.LENGTH:
                break
        return majority_vote([current], problem, context, {"round": 0, "steps": step, "accepted": accepted})

    def mass(self, completion: Completion, start: int) -> float:
        """Return the sum of log Z over the tokens of ``completion`` from ``start`` on."""
        tops = (torch.tensor(top.logprobs, dtype=torch.float32) for top in completion.top_logprobs[start:])
        return sum(float(top.double().mul(self.alpha).logsumexp(0)) for top in tops)

    def _rewrite(
        self, problem: Problem, context: Context, completion: Completion, at: int, end: int, number: int
    ) -> Steps[Completion]:
        """The first ``at`` tokens of ``completion``, and a new continuation up to ``end`` tokens."""
        request = replace(
            solution_request(problem, context, end),
            sampling=Sampling(1 / self.alpha, LIKELIEST),
            max_new_tokens=end,
            seed=context.stream(problem.id, "power", number),
            top_logprobs=LIKELIEST,
        )
        prefix = replace(
            completion,
            token_ids=completion.token_ids[:at],
            logprobs=completion.logprobs[:at],
            top_logprobs=completion.top_logprobs[:at],
            finish_reason=FinishReason.LENGTH,
        )
        [rewritten] = yield from resume([request], [prefix], context.engine)
        return rewritten
