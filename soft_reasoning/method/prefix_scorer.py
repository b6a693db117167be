"""Prefix scorer: decoding steered by the value of the solution so far (Mudgal et al. 2023).

Block by block it keeps the best of K sampled continuations, or token by token it tilts the model's
distribution by the value of each next token. The model itself estimates the value. The paper does not state
K, M, lambda or the scorer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import torch
from torch import Tensor

from soft_reasoning.checks import choice, counts, real
from soft_reasoning.method.base import majority_vote
from soft_reasoning.schedule.effects import BudgetSpent
from soft_reasoning.schedule.method import Context, Steps
from soft_reasoning.schedule.solutions import ask_yes_no, join, solution_request
from soft_reasoning.types import (
    MAX_NEW_TOKENS,
    Completion,
    FinishReason,
    Generate,
    Problem,
    Request,
    Result,
    Sampling,
    generator_for,
)

FORMS = ("block", "token")
TASK = "prefix_right"
"""The entry of ``wording.tasks`` that asks whether a solution is correct so far; its field is {partial}."""


Longer: TypeAlias = tuple[Completion, float | None, dict[str, Any]]
"""A longer solution, its value (None where the budget is spent), and an entry of the trace."""


@dataclass(frozen=True)
class PrefixScorer:
    """Decodes with the value V of unfinished solutions.

    Args:
        form: ``block`` keeps the best of ``candidates`` continuations of ``block_tokens`` tokens until the
            solution ends. ``token`` draws each token with probability in proportion to pi_ref(token) *
            exp(``strength`` * V).
        candidates: K, continuations per block.
        block_tokens: M, tokens per block.
        temperature: Temperature of pi_ref, the model's distribution.
        top_tokens: Number of likeliest tokens to draw from, with ``token``.
        strength: lambda, with ``token``.
        max_new_tokens: Tokens of the solution.
    """

    form: str = "block"
    candidates: int = 5
    block_tokens: int = 32
    temperature: float = 0.8
    top_tokens: int = 20
    strength: float = 1.0
    max_new_tokens: int = MAX_NEW_TOKENS
    name: str = "prefix_scorer"
    short: ClassVar[Mapping[str, str]] = {"k": "candidates", "temperature": "temperature"}

    def __post_init__(self) -> None:
        choice("form", self.form, FORMS)
        counts(self, "candidates", "block_tokens", "top_tokens", "max_new_tokens")
        real("temperature", self.temperature, above=0.0, fix="method=cot decodes greedily")
        real("strength", self.strength)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        request = solution_request(problem, context, self.max_new_tokens)
        left = context.engine.context_length - len(request.prompt_ids)
        room = min(request.max_new_tokens, max(1, left))  # the engine refuses a prompt that leaves none
        step = self._block if self.form == "block" else self._token
        prefix, value = Completion((), (), "", FinishReason.LENGTH, 0), None
        trace: list[dict[str, Any]] = []
        while prefix.generated_tokens < room and prefix.finish_reason == FinishReason.LENGTH:
            ids = request.prompt_ids + prefix.token_ids
            rest = replace(request, prompt_ids=ids, max_new_tokens=room - prefix.generated_tokens)
            prefix, value, entry = yield from step(problem, rest, prefix, len(trace), context)
            trace.append(entry)
            if value is None:  # the budget is spent
                prefix = replace(prefix, finish_reason=FinishReason.BUDGET)
        result = majority_vote([prefix], problem, context, *trace)
        return replace(result, candidates=(replace(result.candidates[0], verified=value),))

    def _block(
        self, problem: Problem, rest: Request, prefix: Completion, number: int, context: Context
    ) -> Steps[Longer]:
        """The best of K blocks after ``prefix``, its value, and an entry of the trace."""
        tokens = min(self.block_tokens, rest.max_new_tokens)
        block = replace(rest, sampling=Sampling(self.temperature), max_new_tokens=tokens)
        seeds = [context.stream(problem.id, "block", number, i) for i in range(self.candidates)]
        blocks = yield Generate([replace(block, seed=seed) for seed in seeds])
        if not any(block.token_ids for block in blocks):
            return prefix, None, {"values": [], "chosen": None, "blocks": []}
        longer, values = yield from _longer(problem, prefix, blocks, rest, context)
        best = int(values.argmax())
        entry = {"values": values.tolist(), "chosen": best, "blocks": [block.text for block in blocks]}
        return longer[best], float(values[best]), entry

    def _token(
        self, problem: Problem, rest: Request, prefix: Completion, number: int, context: Context
    ) -> Steps[Longer]:
        """One more token, drawn from the tilted distribution, its value, and an entry of the trace."""
        [look] = yield Generate([Request(rest.prompt_ids, max_new_tokens=1, top_logprobs=self.top_tokens)])
        if not look.top_logprobs:
            return prefix, None, {"token": None, "value": None, "probability": None}
        [top] = look.top_logprobs
        tokens = [
            Completion((i,), (logprob,), "", FinishReason.LENGTH, 0) for i, logprob in zip(*top, strict=True)
        ]
        longer, values = yield from _longer(problem, prefix, tokens, rest, context)
        logprobs = torch.tensor(top.logprobs, dtype=torch.float64)
        probabilities = tilt(logprobs / self.temperature, values, self.strength)
        draw = generator_for(context.seed, problem.id, "token", number)
        chosen = int(torch.multinomial(probabilities, 1, generator=draw))
        value, probability = float(values[chosen]), float(probabilities[chosen])
        return longer[chosen], value, {"token": top.ids[chosen], "value": value, "probability": probability}


def _longer(
    problem: Problem, prefix: Completion, parts: Sequence[Completion], rest: Request, context: Context
) -> Steps[tuple[list[Completion], Tensor]]:
    """``prefix`` with each of ``parts`` after it, and the values of these solutions."""
    longer = [join(prefix, part, rest, context.engine, unfinished=True) for part in parts]
    return longer, (yield from prefix_values(problem, [solution.text for solution in longer], context))


def prefix_values(problem: Problem, solutions: Sequence[str], context: Context) -> Steps[Tensor]:
    """Return the probability of Yes against No to the question whether each solution is correct so far.

    Returns:
        (n,) float64.
    """
    problem = problem.without_gold()
    prompts = [context.prompts.task(TASK, problem, partial=" ".join(text.split())) for text in solutions]
    try:
        return (yield from ask_yes_no(prompts, context.engine.tokenizer, role="verifier"))
    except BudgetSpent:  # all count the same, and the solution so far remains
        return torch.zeros(len(prompts), dtype=torch.float64)


def tilt(logits: Tensor, values: Tensor, strength: float) -> Tensor:
    """Return (n,) probabilities in proportion to softmax(``logits``) * exp(``strength`` * ``values``).

    It maximises the expected value minus 1 / ``strength`` times the KL divergence from the model's
    distribution.

    Args:
        logits: (n,) logits of the model.
        values: (n,) values of the tokens.
        strength: lambda.
    """
    return (logits + strength * values).softmax(-1)
