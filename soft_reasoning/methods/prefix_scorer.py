"""Prefix scorer: decoding steered by the value of what stands there so far (Mudgal et al. 2023).

Block by block, the best of K sampled continuations is kept; or token by token, the model's distribution is
tilted by the value of each next token. Without a trained head the model judges itself, so nothing is
trained (the paper gives neither K, M, lambda nor the scorer).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from soft_reasoning.checks import choice, real, whole
from soft_reasoning.engines.text import decode, earliest_stop
from soft_reasoning.rewards.prefix_value import LinearHead, Prefix, SelfJudged
from soft_reasoning.types import (
    Candidate,
    Generate,
    NextLogits,
    Request,
    Result,
    Sampling,
    generator_for,
)

FORMS = ("block", "token")


@dataclass(frozen=True)
class PrefixScorer:
    """``form`` "block" draws ``candidates`` (K) continuations of ``block_tokens`` (M) tokens and keeps the
    one of highest value V, until it ends; "token" draws each token from the ``top_tokens`` likeliest with
    probability in proportion to pi_ref(token) * exp(``strength`` * V). pi_ref is the model at
    ``temperature``. ``head`` is the file of a trained scorer; None asks the model itself."""

    form: str = "block"
    candidates: int = 5
    block_tokens: int = 32
    temperature: float = 0.8
    top_tokens: int = 20
    strength: float = 1.0
    head: str | None = None
    max_new_tokens: int = 300
    name: str = "prefix_scorer"

    def __post_init__(self) -> None:
        choice("method.form", self.form, FORMS)
        for key in ("candidates", "block_tokens", "top_tokens", "max_new_tokens"):
            whole(f"method.{key}", getattr(self, key), least=1)
        real("method.temperature", self.temperature, above=0.0, fix="method=cot is the greedy one")
        real("method.strength", self.strength)
        object.__setattr__(self, "_value", LinearHead(self.head) if self.head else SelfJudged())

    def solve(self, problem, context):
        prompt = context.prompts.solve(problem)
        room = min(self.max_new_tokens, context.engine.context_length - len(prompt.ids))
        step = self._block if self.form == "block" else self._token
        so_far, trace, value = Prefix((), ""), [], None
        while len(so_far.ids) < room and not so_far.ended:
            so_far, value, said = yield from step(problem, prompt, so_far, room, len(trace), context)
            trace.append(said)
        candidate = Candidate(
            text=so_far.text,
            answer=context.grader.extract(so_far.text, problem.answer_type),
            round=0,
            verified=value if self.head is None else None,
            generated_tokens=len(so_far.ids),
            finish_reason=so_far.ended or "length",
        )
        return Result(candidate.answer, (candidate,), tuple(trace))

    def _block(self, problem, prompt, so_far: Prefix, room: int, number: int, context):
        """The best of K blocks behind ``so_far``, its value, and what there was to choose from."""
        requests = [
            Request(
                prompt.ids + so_far.ids,
                sampling=Sampling(self.temperature),
                max_new_tokens=min(self.block_tokens, room - len(so_far.ids)),
                stop=context.prompts.stop,
                seed=context.stream(problem.id, "block", number, i),
            )
            for i in range(self.candidates)
        ]
        completions = yield Generate(requests)
        longer = [_extended(so_far, completion.token_ids, context) for completion in completions]
        values = yield from self._value.values(problem, prompt, longer, context)
        best = int(values.argmax())
        said = {"values": values.tolist(), "chosen": best, "blocks": [c.text for c in completions]}
        return longer[best], float(values[best]), said

    def _token(self, problem, prompt, so_far: Prefix, room: int, number: int, context):
        """One more token, drawn from the tilted distribution."""
        [logits] = yield NextLogits([prompt.followed_by(so_far.ids)], top=self.top_tokens)
        top = torch.topk(logits.double(), min(self.top_tokens, len(logits)))
        longer = [_extended(so_far, (token,), context) for token in top.indices.tolist()]
        values = yield from self._value.values(problem, prompt, longer, context)
        chances = tilted(top.values / self.temperature, values, self.strength)
        draw = generator_for(context.seed, problem.id, "token", number)
        drawn = int(torch.multinomial(chances, 1, generator=draw))
        value, chance = float(values[drawn]), float(chances[drawn])
        said = {"token": int(top.indices[drawn]), "value": value, "probability": chance}
        return longer[drawn], value, said


def tilted(logits: Tensor, values: Tensor, strength: float) -> Tensor:
    """(n,) probabilities in proportion to softmax(``logits``) * exp(``strength`` * ``values``), both (n,).

    The distribution that gains most expected value at KL cost 1 / ``strength`` from the model's own.
    """
    return (logits + strength * values).softmax(-1)


def _extended(so_far: Prefix, token_ids: tuple[int, ...], context) -> Prefix:
    """``so_far`` and more tokens: over at an end-of-sequence token, and at a stop string, which may have
    begun before them."""
    over = token_ids[-1] in context.engine.eos_ids
    ids = so_far.ids + (token_ids[:-1] if over else token_ids)
    text = decode(context.engine.tokenizer, ids)
    stop = earliest_stop(text, context.prompts.stop)
    if stop >= 0:
        return Prefix(ids, text[:stop], "stop")
    return Prefix(ids, text, "eos" if over else "")
