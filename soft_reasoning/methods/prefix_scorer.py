"""Prefix scorer: decoding steered by the value of the solution so far (Mudgal et al. 2023).

Block by block it keeps the best of K sampled continuations, or token by token it tilts the model's
distribution by the value of each next token. The model itself gives the value. The paper gives neither K,
M, lambda nor the scorer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.checks import choice, counts, real
from soft_reasoning.methods.base import joined, solution_request, voted
from soft_reasoning.rewards.yes_no import ask_yes_no
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.types import Completion, Generate, Problem, Request, Result, Sampling, generator_for

FORMS = ("block", "token")
TASK = "prefix_right"
"""The entry of ``wording.tasks`` that asks whether a solution is right so far; its field is {partial}."""


@dataclass(frozen=True)
class PrefixScorer:
    """Decodes with the value V of unfinished solutions.

    Args:
        form: ``block`` keeps the best of ``candidates`` continuations of ``block_tokens`` tokens until it
            ends. ``token`` draws each token with probability in proportion to pi_ref(token) *
            exp(``strength`` * V).
        candidates: K.
        block_tokens: M.
        temperature: Of pi_ref, the model's distribution.
        top_tokens: Likeliest tokens that are drawn from, with ``token``.
        strength: lambda, with ``token``.
        max_new_tokens: Tokens of the solution.
    """

    form: str = "block"
    candidates: int = 5
    block_tokens: int = 32
    temperature: float = 0.8
    top_tokens: int = 20
    strength: float = 1.0
    max_new_tokens: int = 300
    name: str = "prefix_scorer"

    def __post_init__(self) -> None:
        choice("form", self.form, FORMS)
        counts(self, "candidates", "block_tokens", "top_tokens", "max_new_tokens")
        real("temperature", self.temperature, above=0.0, fix="method=cot is the greedy one")
        real("strength", self.strength)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        request = solution_request(problem, context, self.max_new_tokens)
        room = min(request.max_new_tokens, context.engine.context_length - len(request.prompt_ids))
        step = self._block if self.form == "block" else self._token
        so_far, value = Completion((), (), "", "length", 0), None
        trace: list[dict[str, Any]] = []
        while so_far.generated_tokens < room and so_far.finish_reason == "length":
            ids, left = request.prompt_ids + so_far.token_ids, room - so_far.generated_tokens
            rest = replace(request, prompt_ids=ids, max_new_tokens=left)
            so_far, value, entry = yield from step(problem, rest, so_far, len(trace), context)
            trace.append(entry)
            if value is None:  # the budget is spent
                so_far = replace(so_far, finish_reason="budget")
        result = voted([so_far], problem, context, *trace)
        return replace(result, candidates=(replace(result.candidates[0], verified=value),))

    def _block(self, problem: Problem, rest: Request, so_far: Completion, number: int, context: Context):
        """The best of K blocks after ``so_far``, its value, and an entry of the trace."""
        tokens = min(self.block_tokens, rest.max_new_tokens)
        block = replace(rest, sampling=Sampling(self.temperature), max_new_tokens=tokens)
        seeds = [context.stream(problem.id, "block", number, i) for i in range(self.candidates)]
        blocks = yield Generate([replace(block, seed=seed) for seed in seeds])
        if not any(block.token_ids for block in blocks):
            return so_far, None, {"values": [], "chosen": None, "blocks": []}
        longer = [joined(so_far, block, rest.stop, context.engine, going_on=True) for block in blocks]
        values = yield from prefix_values(problem, [solution.text for solution in longer], context)
        best = int(values.argmax())
        entry = {"values": values.tolist(), "chosen": best, "blocks": [block.text for block in blocks]}
        return longer[best], float(values[best]), entry

    def _token(self, problem: Problem, rest: Request, so_far: Completion, number: int, context: Context):
        """One more token, drawn from the tilted distribution, its value, and an entry of the trace."""
        [read] = yield Generate([Request(rest.prompt_ids, max_new_tokens=1, top_logprobs=self.top_tokens)])
        if not read.top_logprobs:
            return so_far, None, {"token": None, "value": None, "probability": None}
        [top] = read.top_logprobs
        nexts = [Completion((i,), (logprob,), "", "length", 0) for i, logprob in zip(*top, strict=True)]
        longer = [joined(so_far, token, rest.stop, context.engine, going_on=True) for token in nexts]
        values = yield from prefix_values(problem, [solution.text for solution in longer], context)
        logprobs = torch.tensor(top.logprobs, dtype=torch.float64)
        chances = tilted(logprobs / self.temperature, values, self.strength)
        draw = generator_for(context.seed, problem.id, "token", number)
        drawn = int(torch.multinomial(chances, 1, generator=draw))
        value, chance = float(values[drawn]), float(chances[drawn])
        return longer[drawn], value, {"token": top.ids[drawn], "value": value, "probability": chance}


def prefix_values(problem: Problem, solutions: Sequence[str], context: Context) -> Steps[Tensor]:
    """Return the probability of Yes against No when the model is asked whether each solution is right so far.

    Returns:
        (n,) float64.
    """
    problem = problem.without_gold()
    asked = [context.prompts.task(TASK, problem, partial=" ".join(text.split())) for text in solutions]
    return (yield from ask_yes_no(asked, context.engine.tokenizer, role="verifier"))


def tilted(logits: Tensor, values: Tensor, strength: float) -> Tensor:
    """Return (n,) probabilities in proportion to softmax(``logits``) * exp(``strength`` * ``values``).

    Of all distributions with KL divergence 1 / ``strength`` from the model's it gains the most expected
    value.

    Args:
        logits: (n,) logits of the model.
        values: (n,) values of the tokens.
        strength: lambda.
    """
    return (logits + strength * values).softmax(-1)
