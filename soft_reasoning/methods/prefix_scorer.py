"""Prefix scorer: decoding steered by the value of the solution so far (Mudgal et al. 2023).

Block by block it keeps the best of K sampled continuations. The model itself gives the value. The paper gives
neither K, M nor the scorer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from soft_reasoning.checks import counts, real
from soft_reasoning.methods.base import joined, solution_request, voted
from soft_reasoning.rewards.yes_no import ask_yes_no
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.types import Completion, Generate, Problem, Result, Sampling

TASK = "prefix_right"
"""The entry of ``wording.tasks`` that asks whether a solution is right so far; its field is {partial}."""


@dataclass(frozen=True)
class PrefixScorer:
    """Keeps the best of ``candidates`` continuations of ``block_tokens`` tokens until it ends.

    Args:
        candidates: K.
        block_tokens: M.
        temperature: Of the continuations.
        max_new_tokens: Tokens of the solution.
    """

    candidates: int = 5
    block_tokens: int = 32
    temperature: float = 0.8
    max_new_tokens: int = 300
    name: str = "prefix_scorer"

    def __post_init__(self) -> None:
        counts(self, "candidates", "block_tokens", "max_new_tokens")
        real("temperature", self.temperature, above=0.0, fix="method=cot is the greedy one")

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        request = solution_request(problem, context, self.max_new_tokens)
        room = min(request.max_new_tokens, context.engine.context_length - len(request.prompt_ids))
        so_far, value = Completion((), (), "", "length", 0), None
        trace: list[dict[str, Any]] = []
        while so_far.generated_tokens < room and so_far.finish_reason == "length":
            block = replace(
                request,
                prompt_ids=request.prompt_ids + so_far.token_ids,
                sampling=Sampling(self.temperature),
                max_new_tokens=min(self.block_tokens, room - so_far.generated_tokens),
            )
            seeds = [context.stream(problem.id, "block", len(trace), i) for i in range(self.candidates)]
            blocks = yield Generate([replace(block, seed=seed) for seed in seeds])
            if not any(block.token_ids for block in blocks):  # the budget is spent
                so_far, value = replace(so_far, finish_reason="budget"), None
                trace.append({"values": [], "chosen": None, "blocks": []})
                break
            longer = [joined(so_far, block, request.stop, context.engine, going_on=True) for block in blocks]
            values = yield from prefix_values(problem, [solution.text for solution in longer], context)
            best = int(values.argmax())
            so_far, value = longer[best], float(values[best])
            texts = [block.text for block in blocks]
            trace.append({"values": values.tolist(), "chosen": best, "blocks": texts})
        result = voted([so_far], problem, context, *trace)
        return replace(result, candidates=(replace(result.candidates[0], verified=value),))


def prefix_values(problem: Problem, solutions: Sequence[str], context: Context) -> Steps[Tensor]:
    """Return the probability of Yes against No when the model is asked whether each solution is right so far.

    Returns:
        (n,) float64.
    """
    problem = problem.without_gold()
    asked = [context.prompts.task(TASK, problem, partial=" ".join(text.split())) for text in solutions]
    return (yield from ask_yes_no(asked, context.engine.tokenizer, role="verifier"))
