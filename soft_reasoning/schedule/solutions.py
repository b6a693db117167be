"""What methods ask and read: solutions, completions that continue others, and yes-or-no questions."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from soft_reasoning.checks import counts, real
from soft_reasoning.engine.base import Engine
from soft_reasoning.schedule.effects import BudgetSpent, next_logits
from soft_reasoning.schedule.method import Context, Effect, Generate, Steps
from soft_reasoning.thoughts import answer_start
from soft_reasoning.types import (
    MAX_NEW_TOKENS,
    Candidate,
    Completion,
    FinishReason,
    Problem,
    Prompt,
    Request,
    Sampling,
    UserError,
)


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """The options of what samples solutions, or programs.

    Args:
        temperature: Sampling temperature.
        top_k: Number of likeliest tokens that are sampled from; 0 is off.
        top_p: Total probability of the likeliest tokens that are sampled from; 1 is off.
        max_new_tokens: Tokens per solution.

    Raises:
        OptionError: For a value out of its range.
    """

    temperature: float = 0.8
    top_k: int = 50
    top_p: float = 1.0
    max_new_tokens: int = MAX_NEW_TOKENS
    short: ClassVar[Mapping[str, str]] = {"k": "samples", "temperature": "temperature"}
    instead: ClassVar[str] = "method=cot is greedy decoding"
    """Advice for a temperature of 0, at which nothing is sampled."""

    def __post_init__(self) -> None:
        counts(self, "max_new_tokens")
        real("temperature", self.temperature, above=0.0, fix=self.instead)
        Sampling(self.temperature, self.top_k, self.top_p)  # which checks the others

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen."""
        return Sampling(self.temperature, self.top_k, self.top_p)


def solution_request(
    problem: Problem, context: Context, max_new_tokens: int, *, index: int | None = None, **fields: Any
) -> Request:
    """Return the request for a solution; ``fields`` are further fields of the request.

    ``index`` counts a problem's sampled candidates over all rounds and selects a candidate's random stream.
    Streams are the same for every method, so methods with equal sampling draw the same solutions.
    """
    prompt = context.prompts.solve(problem)
    seed = 0 if index is None else context.stream(problem.id, "sample", index)
    limit = max_new_tokens if prompt.max_new_tokens is None else prompt.max_new_tokens
    return prompt.request(max_new_tokens=limit, seed=seed, **fields)


def sample_solutions(
    problem: Problem, context: Context, max_new_tokens: int, sampling: Sampling, indices: Iterable[int]
) -> Steps[list[Completion]]:
    """Return sampled solutions, one for each of the ``indices`` of :func:`solution_request`."""
    request = partial(solution_request, problem, context, max_new_tokens, sampling=sampling)
    return (yield Generate([request(index=i) for i in indices]))


def greedy_tokens(prompt: Prompt, count: int) -> Steps[tuple[int, ...]]:
    """Return the first ``count`` greedy tokens after ``prompt``.

    Raises:
        BudgetSpent: If the problem's budget allows fewer.
    """
    request = prompt.request(max_new_tokens=count, min_new_tokens=count, stop=(), role="anchor")
    [completion] = yield Generate([request])
    if completion.generated_tokens < count:
        raise BudgetSpent
    return completion.token_ids


def read_candidate(
    completion: Completion,
    problem: Problem,
    context: Context,
    round: int = 0,
    coherence: float | None = None,
    opening: str = "",
) -> Candidate:
    """Return the candidate of ``completion``: its text after ``opening``, its answer and its tokens."""
    text = opening + completion.text
    said = context.prompts.split(text, problem)[1]
    answer = context.grader.extract(said, problem.answer_type, problem.question, cut=completion.cut)
    return Candidate(
        text=text,
        answer=answer,
        round=round,
        coherence=coherence,
        generated_tokens=completion.generated_tokens,
        finish_reason=completion.finish_reason,
        opening=opening,
        token_ids=completion.token_ids,
        logprobs=completion.logprobs,
    )


def join(
    begin: Completion, rest: Completion, request: Request, engine: Engine, *, unfinished: bool = False
) -> Completion:
    """Return the completion ``begin`` of ``request`` followed by ``rest``; a stop string may lie across both.

    ``unfinished`` means that ``begin`` is known not to have ended.
    """
    least = begin.generated_tokens if unfinished else 0
    ids, logprobs = begin.token_ids + rest.token_ids, begin.logprobs + rest.logprobs
    tops = begin.top_logprobs[: begin.generated_tokens] + rest.top_logprobs
    count, text, reason = engine.stops.finish(
        ids, request.stop, eos=engine.eos_ids, min_new_tokens=least, thinks=request.thinks
    )
    reason = rest.finish_reason if reason == FinishReason.LENGTH else reason
    return replace(
        rest,
        token_ids=ids[:count],
        logprobs=logprobs[:count],
        text=text,
        finish_reason=reason,
        top_logprobs=tops[:count],
    )


def resume(
    requests: Sequence[Request], begins: Sequence[Completion], engine: Engine
) -> Steps[list[Completion]]:
    """Complete each of ``requests`` from its tokens in ``begins``; complete entries stay as they are."""
    completions, rests = [*begins], dict[int, Request]()
    for i, (request, begin) in enumerate(zip(requests, begins, strict=True)):
        left = request.max_new_tokens - begin.generated_tokens
        room = engine.context_length - begin.prompt_tokens - begin.generated_tokens
        if begin.finish_reason == FinishReason.LENGTH and min(left, room) > 0:
            ids = request.prompt_ids + begin.token_ids
            thinks = answer_start(begin.text, request.thinks) is None
            rests[i] = replace(request, prompt_ids=ids, max_new_tokens=left, thinks=thinks)
    for i, rest in zip(rests, (yield Generate([*rests.values()])), strict=True):
        completions[i] = join(begins[i], rest, requests[i], engine, unfinished=True)
    return completions


def word_ids(tokenizer: Any, word: str) -> tuple[int, ...]:
    """Return the tokens of ``word``, with and without a space before it.

    Raises:
        UserError: If the tokenizer has neither as one token.
    """
    encoded = [tokenizer.encode(text, add_special_tokens=False) for text in (word, f" {word}")]
    single = {ids[0]: None for ids in encoded if len(ids) == 1}
    single.pop(getattr(tokenizer, "unk_token_id", None), None)
    if not single:
        raise UserError(
            f"expected a tokenizer with a token for {word!r}, with or without a space before it, got none; "
            "use a model that can be asked yes-or-no questions"
        )
    return tuple(single)


def ask_yes_no(prompts: Sequence[Prompt], tokenizer: Any, *, role: str) -> Generator[Effect, Any, Tensor]:
    """Return the probability (n,) float64 of Yes against No after each of ``prompts``.

    The tokens of a word count together: log-sum-exp, then a softmax over the two words.
    """
    yes, no = word_ids(tokenizer, "Yes"), word_ids(tokenizer, "No")
    logits = (yield from next_logits(prompts, yes + no, role=role)).double()
    return torch.sigmoid(logits[:, : len(yes)].logsumexp(-1) - logits[:, len(yes) :].logsumexp(-1))
