"""What solutions become: bodies and streamed events of the three kinds of request."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import soft_reasoning
from soft_reasoning.engines.text import decode, earliest_stop
from soft_reasoning.integrations.server.requests import Body, refused
from soft_reasoning.prompts import Prompts
from soft_reasoning.solution import Solution
from soft_reasoning.types import Candidate, Round, Usage


@dataclass(frozen=True)
class Choice:
    """One answer of a response.

    Attributes:
        text: What it says.
        reasoning: What came before: a line for each round, and the thoughts of a thinking model.
        candidate: The candidate that it is; None for a text of the verifier's.
        logprobs: Tokens of ``text`` with their log-probabilities, if asked for; not those of ``opening``.
        opening: What free text begins with: the token nearest to the soft token.
    """

    text: str
    reasoning: str
    candidate: Candidate | None
    logprobs: list[tuple[str, float]] | None
    opening: str

    @property
    def finish_reason(self) -> str:
        """``stop`` or ``length``."""
        return "length" if self.candidate and self.candidate.cut else "stop"

    def story(self) -> dict[str, Any]:
        """Return what OpenAI's fields have no name for."""
        if (candidate := self.candidate) is None:
            return {"source": "verifier", "answer": None, "reward": None, "round": None}
        reward = candidate.reward if math.isfinite(candidate.rank) else None
        return {"source": "candidate", "answer": candidate.answer, "reward": reward, "round": candidate.round,
                "opening": self.opening}  # fmt: skip


def choices_of(solution: Solution, body: Body, prompts: Prompts) -> list[Choice]:
    """Return ``n`` choices, or as many as there are: the chosen solution, then the others by reward.

    Raises:
        ApiError: If log-probabilities are asked for and the method's candidates are not single completions.
    """
    joins = any(each.generated_tokens and not each.token_ids for each in solution.candidates)
    if body.wants_logprobs and joins:
        raise refused("logprobs", "expected a method whose solutions are single completions, got "
                      f"{solution.method}; leave it out")  # fmt: skip
    rounds = "".join(map(_line, range(len(solution.rounds)), solution.rounds)) if solution.trace else ""

    def choice(place: int, candidate: Candidate | None) -> Choice:
        whole = solution.text if candidate is None else candidate.text
        thought, text = prompts.split(whole)
        start, end = len(whole) - len(text), earliest_stop(text, body.stop)
        text = text if end < 0 else text[:end]  # a method that joins completions may have written a stop text
        reasoning = ("" if place else rounds) + thought
        if candidate is None:
            return Choice(text, reasoning, None, None, "")
        opening = "" if thought or not prompts.neutral else solution.opening(candidate)
        if opening in prompts.tokenizer.all_special_tokens:
            opening = ""
        shown = (opening + text).lstrip() if opening else text
        logprobs = _logprobs(prompts.tokenizer, candidate, start, start + len(text))
        return Choice(shown, reasoning, candidate, logprobs if body.wants_logprobs else None, opening)

    return [choice(i, candidate) for i, candidate in enumerate(solution.ranked[: body.n or 1])]


def pieces(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Return the text that each token adds; of a character in several tokens the last one has it.

    Tokens are decoded behind those before them, since alone they may lose a space.
    """
    texts: list[str] = []
    begin = read = 0  # tokens from ``begin`` are decoded; the text of those before ``read`` is given out
    for end in range(1, len(ids) + 1):
        before, text = decode(tokenizer, ids[begin:read]), decode(tokenizer, ids[begin:end])
        whole = len(text) > len(before) and not text.endswith("\ufffd")
        texts.append(text[len(before) :] if whole else "")
        if whole:
            begin, read = read, end
    return texts


def _logprobs(tokenizer: Any, candidate: Candidate, start: int, stop: int) -> list[tuple[str, float]]:
    """The tokens that begin in ``candidate.text[start:stop]``."""
    texts = pieces(tokenizer, candidate.token_ids)
    places = accumulate(map(len, texts), initial=0)
    entries = zip(texts, candidate.logprobs, places, strict=False)
    return [(text, logprob) for text, logprob, place in entries if start <= place < stop]


def _line(number: int, candidates: Sequence[Candidate]) -> str:
    """One line about a round, for people who wait."""
    best = max(candidates, key=lambda each: each.rank)
    reward = f" (reward {best.rank:.2f})" if math.isfinite(best.rank) else ""
    answer = "no answer" if best.answer is None else f"{' '.join(best.answer.split()):.60}"
    return f"Round {number + 1}: {len(candidates)} candidates, the best says {answer}{reward}\n"


def event(data: dict[str, Any], name: str | None = None) -> str:
    """Return a server-sent event."""
    line = f"data: {json.dumps(data, ensure_ascii=False, allow_nan=False)}\n\n"
    return line if name is None else f"event: {name}\n{line}"


class Reply:
    """The response to a request for a chat completion (the other kinds differ from it).

    Args:
        body: The request.
        prompts: Separates thoughts from answers.
    """

    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def __init__(self, body: Body, prompts: Prompts) -> None:
        self.body, self.prompts = body, prompts
        self._told = ""  # the streamed lines about rounds
        self.head: dict[str, Any] = {
            "id": f"{self.prefix}-{uuid.uuid4().hex}",
            "object": self.kind,
            "created": int(time.time()),
            "model": body.model,
            "system_fingerprint": f"soft_reasoning-{soft_reasoning.__version__}",
        }

    def whole(self, solutions: Sequence[Solution]) -> dict[str, Any]:
        """Return the body of a response that is not streamed."""
        choices = [choice for each in solutions for choice in choices_of(each, self.body, self.prompts)]
        listed = [
            {"index": i, **self.choice(choice), "finish_reason": choice.finish_reason,
             "soft_reasoning": choice.story()}
            for i, choice in enumerate(choices)
        ]  # fmt: skip
        usage = _usage(solutions, choices)
        return {**self.head, "choices": listed, "usage": usage, "soft_reasoning": solutions[0].summary()}

    def choice(self, choice: Choice) -> dict[str, Any]:
        """Return the part of a choice that the kinds write differently."""
        entries = [
            {"token": token, "logprob": value, "bytes": list(token.encode()), "top_logprobs": []}
            for token, value in choice.logprobs or ()
        ]
        message = {
            "role": "assistant", "content": choice.text, "refusal": None, **_reasoning(choice.reasoning)
        }  # fmt: skip
        logprobs = None if choice.logprobs is None else {"content": entries, "refusal": None}
        return {"message": message, "logprobs": logprobs}

    def round(self, round: Round) -> Iterator[str]:
        """Yield the events of a finished round."""
        line = _line(round.number, round.candidates)
        role = {} if self._told else {"role": "assistant", "content": ""}
        self._told += line
        yield self._chunk(0, delta={**role, **_reasoning(line)})

    def end(self, solutions: Sequence[Solution]) -> Iterator[str]:
        """Yield the events after the last round."""
        whole = self.whole(solutions)
        for choice in whole["choices"]:
            message, logprobs, index = choice.pop("message"), choice.pop("logprobs"), choice["index"]
            told = self._told if index == 0 else ""  # role and rounds were sent
            role = {} if told else {"role": "assistant"}
            reasoning = _reasoning((message["reasoning"] or "").removeprefix(told))
            delta = {**role, **reasoning, "content": message["content"]}
            yield self._chunk(index, delta=delta, logprobs=logprobs)
            yield self._chunk(**choice, delta={})
        yield from self._last(whole)

    def _last(self, whole: dict[str, Any]) -> Iterator[str]:
        if self._tells_usage:
            yield event({**whole, "object": self.chunk_kind, "choices": []})
        yield "data: [DONE]\n\n"

    @property
    def _tells_usage(self) -> bool:
        options = getattr(self.body, "stream_options", None)
        return options is not None and options.include_usage

    def _chunk(self, index: int, **parts: Any) -> str:
        choice = {"index": index, "logprobs": None, "finish_reason": None, **parts}
        usage = {"usage": None} if self._tells_usage else {}
        return event({**self.head, "object": self.chunk_kind, "choices": [choice], **usage})


class TextReply(Reply):
    """The response to a request for a completion."""

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def choice(self, choice: Choice) -> dict[str, Any]:
        logprobs = None
        if choice.logprobs is not None:
            tokens = [token for token, _ in choice.logprobs]
            offsets = [*accumulate(map(len, tokens), initial=0)][: len(tokens)]
            logprobs = {"tokens": tokens, "token_logprobs": [value for _, value in choice.logprobs],
                        "top_logprobs": None, "text_offset": offsets}  # fmt: skip
        return {"text": choice.text, "logprobs": logprobs}

    def round(self, round: Round) -> Iterator[str]:
        yield f": {_line(round.number, round.candidates)}\n"  # a comment: these chunks have no place for it

    def end(self, solutions: Sequence[Solution]) -> Iterator[str]:
        whole = self.whole(solutions)
        yield from (self._chunk(**choice) for choice in whole["choices"])
        yield from self._last(whole)


class ResponsesReply(Reply):
    """The response to a request to ``/v1/responses``."""

    prefix, kind = "resp", "response"

    def __init__(self, body: Body, prompts: Prompts) -> None:
        super().__init__(body, prompts)
        name, created = self.head["id"], self.head["created"]
        self._sent = 0
        self._response: dict[str, Any] = {
            "id": name, "object": self.kind, "created_at": created, "model": body.model,
            "status": "in_progress", "output": [], "error": None, "incomplete_details": None,
            "instructions": None, "metadata": {}, "parallel_tool_calls": False, "temperature": None,
            "tool_choice": "none", "tools": [], "top_p": None,
        }  # fmt: skip
        self._thoughts = {"id": f"rs_{name}", "type": "reasoning", "summary": []}
        self._message = {"id": f"msg_{name}", "type": "message", "role": "assistant", "status": "in_progress",
                         "content": []}  # fmt: skip

    def whole(self, solutions: Sequence[Solution]) -> dict[str, Any]:
        [solution] = solutions
        choice = choices_of(solution, self.body, self.prompts)[0]
        cut, usage = choice.finish_reason == "length", _usage(solutions, [choice])
        status = "incomplete" if cut else "completed"
        text = {"type": "output_text", "text": choice.text, "annotations": [], "logprobs": []}
        output: list[dict[str, Any]] = [{**self._message, "status": status, "content": [text]}]
        if choice.reasoning:
            summary = [{"type": "summary_text", "text": choice.reasoning}]
            output.insert(0, {**self._thoughts, "summary": summary})
        return {
            **self._response, "status": status, "output": output,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "usage": {key.replace("prompt", "input").replace("completion", "output"): value
                      for key, value in usage.items()},
            "soft_reasoning": {**choice.story(), **solution.summary()},
        }  # fmt: skip

    def round(self, round: Round) -> Iterator[str]:
        if not self._sent:
            yield self._event("created", response=self._response)
            yield self._event("output_item.added", output_index=0, item=self._thoughts)
        yield self._event(
            "reasoning_summary_text.delta", delta=_line(round.number, round.candidates),
            item_id=self._thoughts["id"], output_index=0, summary_index=0,
        )  # fmt: skip

    def end(self, solutions: Sequence[Solution]) -> Iterator[str]:
        whole, begun = self.whole(solutions), self._sent > 0
        if not begun:
            yield self._event("created", response=self._response)
        for index, item in enumerate(whole["output"]):
            empty = self._message if item["type"] == "message" else self._thoughts
            if item is whole["output"][-1] or not begun:
                yield self._event("output_item.added", output_index=index, item=empty)
            for part in item.get("content", ()):
                place = {"item_id": item["id"], "output_index": index, "content_index": 0, "logprobs": []}
                yield self._event("content_part.added", part={**part, "text": ""}, **place)
                yield self._event("output_text.delta", delta=part["text"], **place)
                yield self._event("output_text.done", text=part["text"], **place)
                yield self._event("content_part.done", part=part, **place)
            yield self._event("output_item.done", output_index=index, item=item)
        yield self._event(whole["status"], response=whole)

    def _event(self, kind: str, **data: Any) -> str:
        self._sent += 1
        kind = f"response.{kind}"
        return event({"type": kind, "sequence_number": self._sent - 1, **data}, kind)


def _reasoning(text: str) -> dict[str, str | None]:
    """``text`` by both names that clients know."""
    return {"reasoning": text or None, "reasoning_content": text or None}


def _usage(solutions: Sequence[Solution], choices: Sequence[Choice]) -> dict[str, Any]:
    """The tokens of all work; those that are not in ``choices`` count as reasoning."""
    total = sum((solution.total for solution in solutions), Usage())
    prompt, generated = total.prompt_tokens, total.generated_tokens
    shown = sum(choice.candidate.generated_tokens for choice in choices if choice.candidate)
    return {
        "prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": total.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": generated - shown},
    }  # fmt: skip
