"""Power sampling token by token, from rollouts (Ji et al. 2026, arXiv 2601.21590).

A token's probability under p^alpha is proportional to p(x_t)^alpha zeta(x_t), where zeta(x_t) is the sum of
p(rest)^alpha over all rests of the solution, that is the mean of p(rest)^(alpha - 1) over rests drawn from p
(their Equation 3). Short rollouts estimate it for the likeliest tokens, and a jackknife lowers the bias of
dividing by an estimated sum (Equations 5 and 6). ``power_sampling`` does the same by a Markov chain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from soft_reasoning.checks import counts, real
from soft_reasoning.methods.base import majority_vote
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.scheduling.solutions import join
from soft_reasoning.thoughts import answer_start
from soft_reasoning.types import (
    Completion,
    FinishReason,
    Generate,
    Problem,
    Request,
    Result,
    Sampling,
    generator_for,
)


@dataclass(frozen=True)
class PowerLookahead:
    """Draws one solution from the model's distribution to the power ``alpha``, looking ahead at every token.

    Args:
        alpha: The power; 1 is plain sampling among the ``candidates``.
        candidates: Number of likeliest tokens to choose from.
        rollouts: Rollouts of each candidate.
        lookahead: Tokens of a rollout.
        max_new_tokens: Tokens of the solution.
    """

    alpha: float = 4.0
    candidates: int = 4
    rollouts: int = 4
    lookahead: int = 32
    max_new_tokens: int = 300
    name: str = "power_lookahead"

    def __post_init__(self) -> None:
        real("alpha", self.alpha, least=1.0)
        counts(self, "candidates", "rollouts", "lookahead", "max_new_tokens")

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        prompt, engine = context.prompts.solve(problem), context.engine
        draw = generator_for(context.seed, problem.id, "power")
        prefix, requests = Completion((), (), "", FinishReason.LENGTH, len(prompt.ids)), 0
        limit = min(prompt.token_limit(self.max_new_tokens), engine.context_length - len(prompt.ids) - 1)
        while prefix.finish_reason == FinishReason.LENGTH and prefix.generated_tokens < limit:
            look = Request(prompt.ids + prefix.token_ids, max_new_tokens=0, top_logprobs=self.candidates)
            [completion] = yield Generate([look])
            if not completion.top_logprobs:  # the budget is spent
                break
            likeliest = completion.top_logprobs[0]
            longer = [
                join(prefix, replace(prefix, token_ids=(token,), logprobs=(logprob,)), prompt, engine)
                for token, logprob in zip(*likeliest, strict=True)
            ]
            rollouts = [
                Request(
                    prompt.ids + solution.token_ids,
                    sampling=Sampling(1.0),
                    max_new_tokens=self.lookahead,
                    stop=prompt.stop,
                    thinks=answer_start(solution.text, prompt.thinks) is None,
                    seed=context.stream(problem.id, "power", requests + i * self.rollouts + r),
                )
                for i, solution in enumerate(longer)
                for r in range(self.rollouts if solution.finish_reason == FinishReason.LENGTH else 0)
            ]
            rests = iter((yield Generate(rollouts)) if rollouts else ())
            requests += self.candidates * self.rollouts
            log_rests = [
                [sum(next(rests).logprobs) if unfinished else 0.0 for _ in range(self.rollouts)]
                for unfinished in (solution.finish_reason == FinishReason.LENGTH for solution in longer)
            ]
            first, rest = (torch.tensor(x, dtype=torch.float64) for x in (likeliest.logprobs, log_rests))
            prefix = longer[int(torch.multinomial(conditional(first, rest, self.alpha), 1, generator=draw))]
        return majority_vote([prefix], problem, context, {"round": 0, "rollouts": requests})


def conditional(first: Tensor, rest: Tensor, alpha: float) -> Tensor:
    """Return the probabilities (K,) of K tokens under p^alpha.

    Args:
        first: (K,) log-probabilities of the tokens.
        rest: (K, M) log-probabilities of M rollouts after each.
        alpha: The power.
    """
    weight = (alpha - 1) * rest

    def normalised(weights: Tensor) -> Tensor:
        return (alpha * first + weights.logsumexp(-1)).softmax(-1)

    M = rest.shape[-1]
    if M == 1:
        return normalised(weight)
    without = [normalised(torch.cat([weight[:, :r], weight[:, r + 1 :]], dim=-1)) for r in range(M)]
    corrected = (M * normalised(weight) - (M - 1) * torch.stack(without).mean(0)).clamp_min(0.0)
    return corrected / corrected.sum()
