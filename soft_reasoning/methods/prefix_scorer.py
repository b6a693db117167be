"""Prefix scorer: decoding steered by the value of the solution so far (Mudgal et al. 2023).

Block by block it keeps the best of K sampled continuations, or token by token it tilts the model's
distribution by the value of each next token. The model itself gives the value. The paper gives neither K,
M, lambda nor the scorer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from soft_reasoning.checks import choice, real, whole
from soft_reasoning.engines.text import decode, earliest_stop
from soft_reasoning.rewards.yes_no import ask_yes_no
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.types import (
    Candidate,
    Generate,
    Problem,
    Prompt,
    Request,
    Result,
    Sampling,
    generator_for,
)

FORMS = ("block", "token")
TASK = "prefix_right"
"""The entry of ``wording.tasks`` that asks whether a solution is right so far; its field is {partial}."""


@dataclass(frozen=True)
class Prefix:
    """The beginning of a solution.

    Attributes:
        ids: Its tokens after the prompt, without end of sequence.
        text: Its text, cut before a stop string.
        ended: ``eos`` or ``stop`` if it is complete, else empty.
    """

    ids: tuple[int, ...]
    text: str
    ended: str = ""


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
        for key in ("candidates", "block_tokens", "top_tokens", "max_new_tokens"):
            whole(key, getattr(self, key), least=1)
        real("temperature", self.temperature, above=0.0, fix="method=cot is the greedy one")
        real("strength", self.strength)

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        prompt = context.prompts.solve(problem)
        room = min(prompt.most(self.max_new_tokens), context.engine.context_length - len(prompt.ids))
        step = self._block if self.form == "block" else self._token
        so_far, trace, value = Prefix((), ""), [], None
        while len(so_far.ids) < room and not so_far.ended:
            so_far, value, entry = yield from step(problem, prompt, so_far, room, len(trace), context)
            trace.append(entry)
        candidate = Candidate(
            text=so_far.text,
            answer=context.grader.extract(so_far.text, problem.answer_type),
            round=0,
            verified=value,
            generated_tokens=len(so_far.ids),
            finish_reason=so_far.ended or "length",
        )
        return Result(candidate.answer, (candidate,), tuple(trace))

    def _block(self, problem, prompt, so_far: Prefix, room: int, number: int, context):
        """The best of K blocks after ``so_far``, its value, and an entry of the trace."""
        requests = [
            Request(
                prompt.ids + so_far.ids,
                sampling=Sampling(self.temperature),
                max_new_tokens=min(self.block_tokens, room - len(so_far.ids)),
                stop=prompt.stop,
                seed=context.stream(problem.id, "block", number, i),
            )
            for i in range(self.candidates)
        ]
        completions = yield Generate(requests)
        if not any(completion.token_ids for completion in completions):  # the budget is spent
            return replace(so_far, ended="length"), None, {"values": [], "chosen": None, "blocks": []}
        longer = [_extended(prompt, so_far, completion.token_ids, context) for completion in completions]
        values = yield from prefix_values(problem, longer, context)
        best = int(values.argmax())
        entry = {"values": values.tolist(), "chosen": best, "blocks": [c.text for c in completions]}
        return longer[best], float(values[best]), entry

    def _token(self, problem, prompt, so_far: Prefix, room: int, number: int, context):
        """One more token, drawn from the tilted distribution."""
        ids = prompt.ids + so_far.ids
        [read] = yield Generate([Request(ids, max_new_tokens=1, top_logprobs=self.top_tokens)])
        if not read.top_logprobs:  # the budget is spent
            return replace(so_far, ended="length"), None, {"token": None, "value": None, "probability": None}
        [top] = read.top_logprobs
        longer = [_extended(prompt, so_far, (token,), context) for token in top.ids]
        values = yield from prefix_values(problem, longer, context)
        logprobs = torch.tensor(top.logprobs, dtype=torch.float64)
        chances = tilted(logprobs / self.temperature, values, self.strength)
        draw = generator_for(context.seed, problem.id, "token", number)
        drawn = int(torch.multinomial(chances, 1, generator=draw))
        value, chance = float(values[drawn]), float(chances[drawn])
        entry = {"token": top.ids[drawn], "value": value, "probability": chance}
        return longer[drawn], value, entry


def prefix_values(problem: Problem, prefixes: Sequence[Prefix], context: Context) -> Steps[Tensor]:
    """Return the probability of Yes against No when the model is asked whether each solution is right so far.

    Returns:
        (n,) float64.
    """
    problem = problem.without_gold()
    asked = [
        context.prompts.task(TASK, problem, partial=" ".join(prefix.text.split())) for prefix in prefixes
    ]
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


def _extended(prompt: Prompt, so_far: Prefix, token_ids: tuple[int, ...], context) -> Prefix:
    """Append tokens to ``so_far``; an end-of-sequence token or a stop string ends it.

    The stop string may have begun before the new tokens.
    """
    ended = token_ids[-1] in context.engine.eos_ids
    ids = so_far.ids + (token_ids[:-1] if ended else token_ids)
    text = decode(context.engine.tokenizer, ids)
    stop = earliest_stop(text, prompt.stop)
    if stop >= 0:
        return Prefix(ids, text[:stop], "stop")
    return Prefix(ids, text, "eos" if ended else "")
