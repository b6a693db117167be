"""What solutions become: bodies and streamed events of the three kinds of request."""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import soft_reasoning
from soft_reasoning.engines.text import decode, earliest_stop
from soft_reasoning.integrations.server.requests import Body, refused
from soft_reasoning.prompts import Prompts
from soft_reasoning.solution import Solution
from soft_reasoning.types import Candidate, Round


@dataclass(frozen=True)
class Choice:
    """One answer of a response.

    Attributes:
        text: What it says.
        thought: What a thinking model wrote before it.
        finish_reason: ``stop`` or ``length``.
        tokens: The generated tokens that it is made of; 0 for a text of the verifier's.
        candidate: The candidate that it is, or None.
        logprobs: Tokens of ``text`` with their log-probabilities, if asked for; not those of ``opening``.
        opening: What free text begins with: the token nearest to the soft token, which it goes on after.
    """

    text: str
    thought: str
    finish_reason: str
    tokens: int
    candidate: Candidate | None
    logprobs: list[tuple[str, float]] | None
    opening: str = ""

    def story(self) -> dict[str, Any]:
        """Return what OpenAI's fields have no name for."""
        candidate = self.candidate
        if candidate is None:
            return {"source": "verifier", "answer": None, "reward": None, "round": None}
        reward = candidate.reward if math.isfinite(_reward(candidate)) else None
        return {"source": "candidate", "answer": candidate.answer, "reward": reward, "round": candidate.round,
                "opening": self.opening}  # fmt: skip


def choices_of(solution: Solution, body: Body, prompts: Prompts) -> list[Choice]:
    """Return ``n`` choices, or as many as there are: the chosen solution, then the others by reward.

    Raises:
        ApiError: If log-probabilities are asked for and the method's candidates are not single completions.
    """
    candidates, chosen = solution.candidates, solution.chosen
    if body.wants_logprobs and any(one.generated_tokens and not one.token_ids for one in candidates):
        raise refused("logprobs", "expected a method whose solutions are single completions, got "
                      f"{solution.method}; leave it out")  # fmt: skip

    def choice(candidate: Candidate | None) -> Choice:
        thought, text = prompts.split(solution.text if candidate is None else candidate.text)
        end = earliest_stop(text, body.stops)  # a method that joins completions may have written a stop text
        whole, text = text, text if end < 0 else text[:end]
        if candidate is None:
            return Choice(text, thought, "stop", 0, None, None)
        start = len(candidate.text) - len(whole)
        logprobs = _logprobs(prompts.tokenizer, candidate, start, start + len(text))
        reason = "length" if candidate.finish_reason in ("length", "budget") else "stop"
        opening = "" if thought or not prompts.neutral else solution.opening(candidate)
        if opening in prompts.tokenizer.all_special_tokens:
            opening = ""
        shown = (opening + text).lstrip() if opening else text
        return Choice(shown, thought, reason, candidate.generated_tokens, candidate,
                      logprobs if body.wants_logprobs else None, opening)  # fmt: skip

    others = sorted((one for one in candidates if one is not chosen), key=_reward, reverse=True)
    return [choice(chosen), *map(choice, others[: (body.n or 1) - 1])]


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
    """The tokens of ``candidate.text[start:stop]``."""
    entries: list[tuple[str, float]] = []
    place = 0
    for piece, logprob in zip(pieces(tokenizer, candidate.token_ids), candidate.logprobs, strict=True):
        if place >= stop:
            break
        if place >= start:
            entries.append((piece, logprob))
        place += len(piece)
    return entries


def _reward(candidate: Candidate) -> float:
    return -math.inf if candidate.reward is None else candidate.reward


def _line(number: int, candidates: Sequence[Candidate]) -> str:
    """One line about a round, for people who wait."""
    best = max(candidates, key=_reward)
    reward = f" (reward {_reward(best):.2f})" if math.isfinite(_reward(best)) else ""
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
        self.begun = False  # whether a part was streamed
        self.head: dict[str, Any] = {
            "id": f"{self.prefix}-{uuid.uuid4().hex}",
            "object": self.kind,
            "created": int(time.time()),
            "model": body.model,
            "system_fingerprint": f"soft_reasoning-{soft_reasoning.__version__}",
        }

    def whole(self, solutions: Sequence[Solution]) -> dict[str, Any]:
        """Return the body of a response that is not streamed."""
        groups = [choices_of(solution, self.body, self.prompts) for solution in solutions]
        pairs = [(one, solution) for group, solution in zip(groups, solutions, strict=True) for one in group]
        choices = [
            {"index": i, **self.choice(one, _thoughts(one, solution)), "finish_reason": one.finish_reason,
             "soft_reasoning": one.story()}
            for i, (one, solution) in enumerate(pairs)
        ]  # fmt: skip
        usage = _usage(solutions, sum(one.tokens for one, _ in pairs))
        return {**self.head, "choices": choices, "usage": usage, "soft_reasoning": _story(solutions[0])}

    def choice(self, one: Choice, thoughts: str | None) -> dict[str, Any]:
        """Return the part of a choice that the kinds write differently."""
        entries = [
            {"token": token, "logprob": value, "bytes": list(token.encode()), "top_logprobs": []}
            for token, value in one.logprobs or ()
        ]
        message = {"role": "assistant", "content": one.text, "refusal": None, **_reasoning(thoughts)}
        logprobs = None if one.logprobs is None else {"content": entries, "refusal": None}
        return {"message": message, "logprobs": logprobs}

    def round(self, round: Round) -> Iterator[str]:
        """Yield the events of a finished round."""
        role = {} if self.begun else {"role": "assistant", "content": ""}
        self.begun = True
        yield self._chunk(0, delta={**role, **_reasoning(_line(round.number, round.candidates))})

    def end(self, solutions: Sequence[Solution]) -> Iterator[str]:
        """Yield the events after the last round."""
        whole = self.whole(solutions)
        for i, choice in enumerate(whole["choices"]):
            message = choice.pop("message")
            if i == 0 and self.begun:  # role and rounds were sent
                thought = choices_of(solutions[0], self.body, self.prompts)[0].thought
                delta = _reasoning(thought) if thought else {}
            else:
                delta = {"role": "assistant", **_reasoning(message["reasoning"])}
            content = {**delta, "content": message["content"]}
            yield self._chunk(i, delta=content, logprobs=choice.pop("logprobs"))
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

    def choice(self, one: Choice, thoughts: str | None) -> dict[str, Any]:
        logprobs = None
        if one.logprobs is not None:
            tokens = [token for token, _ in one.logprobs]
            offsets = [len("".join(tokens[:i])) for i in range(len(tokens))]
            logprobs = {"tokens": tokens, "token_logprobs": [value for _, value in one.logprobs],
                        "top_logprobs": None, "text_offset": offsets}  # fmt: skip
        return {"text": one.text, "logprobs": logprobs}

    def round(self, round: Round) -> Iterator[str]:
        yield f": {_line(round.number, round.candidates)}\n"  # a comment: these chunks have no place for it

    def end(self, solutions: Sequence[Solution]) -> Iterator[str]:
        whole = self.whole(solutions)
        for choice in whole["choices"]:
            yield self._chunk(**choice)
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
        cut, usage = choice.finish_reason == "length", _usage(solutions, choice.tokens)
        status = "incomplete" if cut else "completed"
        text = {"type": "output_text", "text": choice.text, "annotations": [], "logprobs": []}
        output: list[dict[str, Any]] = [{**self._message, "status": status, "content": [text]}]
        if thoughts := _thoughts(choice, solution):
            summary = [{"type": "summary_text", "text": thoughts}]
            output.insert(0, {**self._thoughts, "summary": summary})
        return {
            **self._response, "status": status, "output": output,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "usage": {
                "input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"],
                "total_tokens": usage["total_tokens"],
                "input_tokens_details": usage["prompt_tokens_details"],
                "output_tokens_details": usage["completion_tokens_details"],
            },
            "soft_reasoning": {**choice.story(), **_story(solution)},
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
                place = {"item_id": item["id"], "output_index": index, "content_index": 0}
                text = {"text": part["text"], "logprobs": []}
                yield self._event("content_part.added", part={**part, "text": ""}, **place)
                yield self._event("output_text.delta", delta=part["text"], logprobs=[], **place)
                yield self._event("output_text.done", **text, **place)
                yield self._event("content_part.done", part=part, **place)
            yield self._event("output_item.done", output_index=index, item=item)
        yield self._event(whole["status"], response=whole)

    def _event(self, kind: str, **data: Any) -> str:
        self._sent += 1
        kind = f"response.{kind}"
        return event({"type": kind, "sequence_number": self._sent - 1, **data}, kind)


def models_of(names: Sequence[str], created: int) -> list[dict[str, Any]]:
    """Return models as ``/v1/models`` lists them."""
    return [
        {"id": name, "object": "model", "created": created, "owned_by": "soft_reasoning"} for name in names
    ]


def _thoughts(choice: Choice, solution: Solution) -> str | None:
    """What came before an answer: a line for each round, and the thoughts of a thinking model."""
    rounds = solution.rounds if solution.trace and choice.candidate is solution.chosen else []
    lines = "".join(_line(number, candidates) for number, candidates in enumerate(rounds))
    return lines + choice.thought or None


def _reasoning(text: str | None) -> dict[str, str | None]:
    """``text`` by both names that clients know."""
    return {"reasoning": text, "reasoning_content": text}


def _story(solution: Solution) -> dict[str, Any]:
    return {
        "method": solution.method, "answer": solution.answer, "candidates": len(solution.candidates),
        "rounds": len(solution.rounds), "ended": solution.ended,
    }  # fmt: skip


def _usage(solutions: Sequence[Solution], shown: int) -> dict[str, Any]:
    """The tokens of all work; ``shown`` of them are in the choices, the others count as reasoning."""
    roles = [usage for solution in solutions for usage in solution.usage.values()]
    prompt, cached, generated = (
        sum(getattr(usage, f"{kind}_tokens") for usage in roles) for kind in ("prompt", "cached", "generated")
    )
    return {
        "prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": generated - shown},
    }  # fmt: skip
