"""Responses with solutions: bodies and streamed events."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

from soft_reasoning.engine.text import decode, earliest_stop
from soft_reasoning.prompts import Prompts
from soft_reasoning.serve.requests import Body
from soft_reasoning.solution import Solution
from soft_reasoning.thoughts import split
from soft_reasoning.types import Candidate, Round, Usage


@dataclass(frozen=True)
class Choice:
    """A choice of a response.

    Attributes:
        text: The text of the answer.
        reasoning: The text before it: a line for each round, and the thoughts of a thinking model.
        finish_reason: ``stop`` or ``length``.
        tokens: Number of its tokens; 0 for a text of the verifier's.
        logprobs: Its tokens with their log-probabilities, if requested and the text is a single completion.
        extra: Values without a field of OpenAI's API.
    """

    text: str
    reasoning: str
    finish_reason: str
    tokens: int
    logprobs: list[tuple[str, float]] | None
    extra: dict[str, Any]


def build_choices(solution: Solution, body: Body, prompts: Prompts) -> list[Choice]:
    """Return at most ``n`` choices: the chosen solution, then the others by reward."""
    lines = "".join(format_round(i, r) for i, r in enumerate(solution.rounds) if r) if solution.trace else ""
    lines += f"{solution.unfinished}\n" if solution.unfinished else ""
    candidates = solution.ranked
    if body.response_format.type != "text":
        candidates = [c for c in candidates if c is not None and c.answer is not None]
    candidates = candidates[: body.n]
    return [_choice(c, solution, "" if i else lines, body, prompts) for i, c in enumerate(candidates)]


def _choice(
    candidate: Candidate | None, solution: Solution, lines: str, body: Body, prompts: Prompts
) -> Choice:
    full_text = solution.text if candidate is None else candidate.text
    thought, text = split(full_text, solution.thinks and candidate is not None)
    start, end = len(full_text) - len(text), earliest_stop(text, body.stop)
    text = text if end < 0 else text[:end]  # joined completions may contain a stop string
    if candidate is None:
        extra = {"source": "verifier", "answer": None, "reward": None, "round": None}
        reason = "length" if solution.unfinished else "stop"
        return Choice(text, lines + thought, reason, 0, None, extra)
    logprobs = None
    if body.response_format.type != "text":
        text = candidate.answer or ""  # JSON alone, not the text around it
    elif candidate.token_ids and body.logprobs is not None and body.logprobs is not False:
        ids, tokenizer = candidate.token_ids, prompts.tokenizer  # a text ends before an incomplete character
        begin = len(candidate.opening)  # it has no token
        ends = [begin + len(decode(tokenizer, ids[:i]).rstrip("\ufffd")) for i in range(len(ids) + 1)]
        entries, last = zip(pairwise(ends), candidate.logprobs, strict=True), start + len(text)
        logprobs = [(full_text[at : min(end, last)], p) for (at, end), p in entries if start <= at < last]
    extra = {
        "source": "candidate",
        "answer": candidate.answer,
        "round": candidate.round,
        "opening": candidate.opening,
        "reward": candidate.reward if math.isfinite(candidate.rank) else None,
    }
    reason = "length" if candidate.cut else "stop"
    return Choice(text, lines + thought, reason, candidate.generated_tokens, logprobs, extra)


def format_round(number: int, candidates: Sequence[Candidate]) -> str:
    """Return a line about a finished round, to show progress."""
    if all(candidate.cut and candidate.answer is None for candidate in candidates):
        return f"Round {number + 1}: none of {len(candidates)} candidates finished\n"
    best = max(candidates, key=lambda candidate: candidate.rank)
    reward = f" (reward {best.rank:.2f})" if math.isfinite(best.rank) else ""
    answer = "no answer" if best.answer is None else f"{' '.join(best.answer.split()):.60}"
    return f"Round {number + 1}: {len(candidates)} candidates, the best says {answer}{reward}\n"


IN_ONE_PART = "The answer comes in one part, when the search has ended.\n"
"""The first line of a stream."""


def event(data: dict[str, Any]) -> str:
    """Return a server-sent event."""
    return f"data: {json.dumps(data, ensure_ascii=False, allow_nan=False)}\n\n"


class ChatReply:
    """The response to a request for a chat completion, and the base of the other kind.

    Args:
        body: The request.
        prompts: Separates thoughts from answers.
    """

    kind, chunk_kind = "chat.completion", "chat.completion.chunk"

    def __init__(self, body: Body, prompts: Prompts) -> None:
        self.body, self.prompts = body, prompts
        self.streamed_lines: list[str] = []  # about rounds
        self.head: dict[str, Any] = {
            "id": f"sr-{uuid.uuid4().hex}",
            "object": self.kind,
            "created": int(time.time()),
            "model": body.model,
        }

    def full_body(self, solutions: Sequence[Solution]) -> dict[str, Any]:
        """Return the body of a response that is not streamed."""
        choices = [choice for s in solutions for choice in build_choices(s, self.body, self.prompts)]
        listed = [
            {
                "index": i,
                **self.content(choice),
                "finish_reason": choice.finish_reason,
                "soft_reasoning": choice.extra,
            }
            for i, choice in enumerate(choices)
        ]
        usage = _usage(solutions, choices)
        return {**self.head, "choices": listed, "usage": usage, "soft_reasoning": solutions[0].summary()}

    def content(self, choice: Choice) -> dict[str, Any]:
        """Return the text of a choice and its log-probabilities."""
        entries = [
            {"token": token, "logprob": value, "bytes": list(token.encode()), "top_logprobs": []}
            for token, value in choice.logprobs or ()
        ]
        return {
            "message": {"role": "assistant", "content": choice.text, **_reasoning(choice.reasoning)},
            "logprobs": None if choice.logprobs is None else {"content": entries, "refusal": None},
        }

    def begin(self) -> Iterator[str]:
        """Yield the first events of a stream."""
        delta = {"role": "assistant", **_reasoning(IN_ONE_PART)}
        yield self._chunk([{"index": 0, "delta": delta, "finish_reason": None}])

    def note(self, line: str) -> Iterator[str]:
        """Yield a line about the work."""
        yield self._chunk([{"index": 0, "delta": _reasoning(line), "finish_reason": None}])

    def report_round(self, round: Round) -> Iterator[str]:
        """Yield the events of a finished round."""
        self.streamed_lines.append(format_round(round.number, round.candidates))
        yield from self.note(self.streamed_lines[-1])

    def end(self, solutions: Sequence[Solution]) -> Iterator[str]:
        """Yield the events after the last round."""
        whole = self.full_body(solutions)
        for choice in whole.pop("choices"):
            yield self._chunk([self.rest(choice)])
        if (self.body.stream_options or {}).get("include_usage"):
            yield event({**whole, "object": self.chunk_kind, "choices": []})
        yield "data: [DONE]\n\n"

    def rest(self, choice: dict[str, Any]) -> dict[str, Any]:
        """Return the parts of a choice that were not streamed yet."""
        message = choice.pop("message")
        if choice["index"] == 0:
            reasoning = (message["reasoning"] or "").removeprefix("".join(self.streamed_lines))
            message = {"content": message["content"], **_reasoning(reasoning)}
        return {**choice, "delta": message}

    def _chunk(self, choices: list[dict[str, Any]]) -> str:
        return event({**self.head, "object": self.chunk_kind, "choices": choices})


class TextReply(ChatReply):
    """The response to a request for a completion."""

    kind = chunk_kind = "text_completion"

    def content(self, choice: Choice) -> dict[str, Any]:
        if choice.logprobs is None:
            return {"text": choice.text, "logprobs": None}
        tokens = [token for token, _ in choice.logprobs]
        offsets = [*accumulate(map(len, tokens), initial=0)][:-1]
        logprobs = {
            "tokens": tokens,
            "token_logprobs": [value for _, value in choice.logprobs],
            "top_logprobs": None,
            "text_offset": offsets,
        }
        return {"text": choice.text, "logprobs": logprobs}

    def begin(self) -> Iterator[str]:
        yield from self.note(IN_ONE_PART)

    def note(self, line: str) -> Iterator[str]:
        yield f": {line}\n"  # a comment: chunks have no field for it

    def rest(self, choice: dict[str, Any]) -> dict[str, Any]:
        return choice


def _reasoning(text: str) -> dict[str, str | None]:
    """``text`` under both names that clients read."""
    return {"reasoning": text or None, "reasoning_content": text or None}


def _usage(solutions: Sequence[Solution], choices: Sequence[Choice]) -> dict[str, Any]:
    """The tokens of all work; tokens outside ``choices`` count as reasoning."""
    total = sum((solution.total for solution in solutions), Usage())
    prompt, generated = total.prompt_tokens, total.generated_tokens
    hidden = generated - sum(choice.tokens for choice in choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": total.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": hidden},
    }
