"""LatentSeek: a policy gradient on the first hidden states of an answer (Li et al. 2025, arXiv 2505.13308).

The method takes the last hidden states z of the first tokens of a greedy solution. Each step moves them by
Adam on the loss -R * sum of log softmax(LMHead(z))[argmax], with the gradient through the LM head alone. The
likeliest tokens of the new z begin the next solution, which is completed greedily and judged. The reward R in
[-1, 0] is the score of any verifier minus 1 (the released code asks four checks with its own wording). The
method ends when R exceeds a threshold or after the last step, and returns the latest solution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from soft_reasoning.checks import real, whole
from soft_reasoning.engines.abilities import HiddenStates, LMHead
from soft_reasoning.engines.base import Engine
from soft_reasoning.rewards.verifiers import Verdict, Verifier, verify
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.gradients import HeadGradient, HeadLogits, ReadStates
from soft_reasoning.scheduling.job import BudgetSpent
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.scheduling.solutions import join, read_candidate, solution_request
from soft_reasoning.types import (
    Candidate,
    Completion,
    FinishReason,
    Generate,
    Problem,
    Request,
    Result,
    Round,
)

MAX_STATES = 300
"""Maximum number of states that are moved."""


@dataclass(frozen=True)
class LatentSeek:
    """Moves the first hidden states of a solution until a verifier's score is high enough.

    Args:
        verifier: Scores each solution; R is its score minus 1.
        share: rho, share of the greedy solution's states that are moved.
        steps: Maximum number of steps, each of which writes a solution.
        rate: Learning rate of Adam.
        threshold: The method ends when R is higher.
        max_new_tokens: Tokens of a solution.
    """

    verifier: Verifier
    share: float = 0.1
    steps: int = 10
    rate: float = 0.03
    threshold: float = -0.2
    max_new_tokens: int = 300
    name: str = "latentseek"
    needs: ClassVar = (HiddenStates, LMHead)

    def __post_init__(self) -> None:
        real("share", self.share, above=0.0, most=1.0)
        whole("steps", self.steps, least=0)
        whole("max_new_tokens", self.max_new_tokens, least=1)
        real("rate", self.rate, above=0.0)
        real("threshold", self.threshold, least=-1.0, most=0.0)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        request = solution_request(problem, context, self.max_new_tokens)
        seen: list[Candidate] = []
        verdicts: list[Verdict] = []
        trace: list[dict[str, object]] = []
        [completion] = yield Generate([request])
        states, adam, tokens = None, None, None
        while True:
            candidate = replace(read_candidate(completion, problem, context), round=len(seen))
            verdict = yield from verify(self.verifier, problem, [candidate], context, verdicts)
            verdicts.append(verdict)
            reward = (verdict.scores[0] or 0.0) - 1.0
            seen.append(replace(candidate, verified=verdict.scores[0], reward=reward))
            trace.append({"round": len(trace), "rewards": [reward]})
            spent = yield Round(problem, len(seen) - 1, seen[-1:], trace[-1])
            if spent or reward > self.threshold or len(seen) > self.steps:
                break
            try:
                if states is None or adam is None or tokens is None:
                    count = min(int(self.share * len(completion.token_ids)), MAX_STATES)
                    if not count:
                        break
                    read = yield ReadStates(request.prompt_ids + completion.token_ids[:count])
                    states = read[len(request.prompt_ids) - 1 : -1].clone().requires_grad_()
                    adam = torch.optim.Adam([states], lr=self.rate)
                    tokens = yield from likeliest_tokens(states)
                _, states.grad = yield HeadGradient(states.detach(), policy_loss(tokens, reward))
                adam.step()
                tokens = yield from likeliest_tokens(states)
                completion = yield from _solution(request, tokens, context.engine)
            except BudgetSpent:  # the latest solution is the answer
                break
        return Result(seen[-1].answer, tuple(seen), tuple(trace))


def _solution(request: Request, tokens: Tensor, engine: Engine) -> Steps[Completion]:
    """The greedy solution that begins with ``tokens``, with the model's log-probabilities."""
    ids = tuple(tokens.tolist())
    states = yield ReadStates(request.prompt_ids + ids)
    logits = yield HeadLogits(states[len(request.prompt_ids) - 1 : -1])
    logprobs = logits.log_softmax(-1).gather(-1, tokens.unsqueeze(-1)).squeeze(-1).tolist()
    start = Completion(ids, tuple(logprobs), "", FinishReason.LENGTH, len(request.prompt_ids))
    room = max(1, request.max_new_tokens - len(ids))
    [rest] = yield Generate([replace(request, prompt_ids=request.prompt_ids + ids, max_new_tokens=room)])
    return join(start, rest, request, engine)


def likeliest_tokens(states: Tensor) -> Steps[Tensor]:
    """Return the likeliest tokens (n,) of ``states`` (n, D)."""
    logits = yield HeadLogits(states.detach())
    return logits.argmax(-1)


def policy_loss(tokens: Tensor, reward: float):
    """Return the loss -R * sum of log softmax(logits)[tokens] as an objective of ``HeadGradient``."""

    def loss(logits: Tensor, rows: slice) -> Tensor:
        chosen = tokens[rows].to(logits.device).unsqueeze(-1)
        return -reward * logits.log_softmax(-1).gather(-1, chosen).sum()

    return loss
