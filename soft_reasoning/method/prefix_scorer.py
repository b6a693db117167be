"""Prefix scorer: decoding steered by the value of the solution so far (Mudgal et al. 2023).

Block by block it keeps the best of K sampled continuations. The model itself estimates the value. The paper
does not state K, M or the scorer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from soft_reasoning.checks import counts, real
from soft_reasoning.method.base import majority_vote
from soft_reasoning.schedule.effects import BudgetSpent
from soft_reasoning.schedule.method import Context, Generate, Steps
from soft_reasoning.schedule.solutions import ask_yes_no, join, solution_request
from soft_reasoning.types import MAX_NEW_TOKENS, Completion, FinishReason, Problem, Result, Sampling

TASK = "prefix_right"
"""The entry of ``wording.tasks`` that asks whether a solution is correct so far; its field is {partial}."""


@dataclass(frozen=True)
class PrefixScorer:
    """Keeps the best of several continuations of an unfinished solution until it ends.

    Args:
        candidates: K, continuations per block.
        block_tokens: M, tokens per block.
        temperature: Sampling temperature.
        max_new_tokens: Tokens of the solution.
    """

    candidates: int = 5
    block_tokens: int = 32
    temperature: float = 0.8
    max_new_tokens: int = MAX_NEW_TOKENS
    name: str = "prefix_scorer"
    short: ClassVar[Mapping[str, str]] = {"k": "candidates", "temperature": "temperature"}
    needs: ClassVar[frozenset[str]] = frozenset({"ids", "logprobs", "logits"})

    def __post_init__(self) -> None:
        counts(self, "candidates", "block_tokens", "max_new_tokens")
        real("temperature", self.temperature, above=0.0, fix="method=cot decodes greedily")

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        request = solution_request(problem, context, self.max_new_tokens)
        request = replace(request, sampling=Sampling(self.temperature))
        left = context.engine.context_length - len(request.prompt_ids)
        room = min(request.max_new_tokens, max(1, left))  # the engine refuses a prompt that leaves none
        prefix, value = Completion((), (), "", FinishReason.LENGTH, 0), None
        trace: list[dict[str, object]] = []
        while prefix.generated_tokens < room and prefix.finish_reason == FinishReason.LENGTH:
            ids = request.prompt_ids + prefix.token_ids
            tokens = min(self.block_tokens, room - prefix.generated_tokens)
            block = replace(request, prompt_ids=ids, max_new_tokens=tokens)
            seeds = [context.stream(problem.id, "block", len(trace), i) for i in range(self.candidates)]
            blocks = yield Generate([replace(block, seed=seed) for seed in seeds])
            if not any(block.token_ids for block in blocks):  # the budget is spent
                trace.append({"values": [], "chosen": None, "blocks": []})
                prefix, value = replace(prefix, finish_reason=FinishReason.BUDGET), None
                break
            longer = [join(prefix, part, request, context.engine, unfinished=True) for part in blocks]
            texts = [" ".join(solution.text.split()) for solution in longer]
            prompts = [context.prompts.task(TASK, problem.without_gold(), partial=text) for text in texts]
            try:
                values = yield from ask_yes_no(prompts, context.engine.tokenizer, role="verifier")
            except BudgetSpent:  # all count the same, and the solution so far remains
                values = torch.zeros(len(prompts), dtype=torch.float64)
            best = int(values.argmax())
            written = [block.text for block in blocks]
            trace.append({"values": values.tolist(), "chosen": best, "blocks": written})
            prefix, value = longer[best], float(values[best])
        result = majority_vote([prefix], problem, context, *trace)
        return replace(result, candidates=(replace(result.candidates[0], verified=value),))
