"""Responses with solutions: bodies and streamed events, in the types of OpenAI's client."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from soft_reasoning.engine.text import earliest_stop
from soft_reasoning.schedule.method import Round
from soft_reasoning.serve.requests import Body
from soft_reasoning.solution import Solution
from soft_reasoning.thoughts import split
from soft_reasoning.types import Candidate, Usage

COMPUTED = "The answer is {answer}. This program computes it:\n\n{text}"
DONE = "data: [DONE]\n\n"


@dataclass(frozen=True)
class Written:
    """What a choice of a response holds.

    Attributes:
        text: The text of the answer.
        reasoning: The text before it: a line for each round, and the thoughts of a thinking model.
        finish_reason: ``stop`` or ``length``.
        tokens: Number of its tokens; 0 for a text of the verifier's.
        extra: Values without a field of OpenAI's API.
    """

    text: str
    reasoning: str
    finish_reason: str
    tokens: int
    extra: Mapping[str, object]


def write_choices(solution: Solution, body: Body) -> list[Written]:
    """Return at most ``n`` choices: the chosen solution, then the others by reward."""
    lines = "".join(format_round(i, r) for i, r in enumerate(solution.rounds) if r) if solution.trace else ""
    lines += f"{solution.unfinished}\n" if solution.unfinished else ""
    candidates = solution.ranked[: body.n]
    return [_write(c, solution, "" if i else lines, body.stop) for i, c in enumerate(candidates)]


def _write(candidate: Candidate | None, solution: Solution, lines: str, stop: Sequence[str]) -> Written:
    full_text = solution.text if candidate is None else candidate.text
    thought, text = split(full_text, solution.thinks and candidate is not None)
    end = earliest_stop(text, stop)
    text = text if end < 0 else text[:end]  # joined completions may contain a stop string
    verdicts = (entry.get("verifier") or {} for entry in solution.trace)
    answer = solution.answer if candidate is None else candidate.answer
    computed = any(v.get("computed") for v in verdicts) if candidate is None else candidate.computed
    if computed and answer is not None:
        text = COMPUTED.format(answer=answer, text=text)
    if candidate is None:
        extra = {"source": "verifier", "answer": None, "reward": None, "round": None}
        reason = "length" if solution.unfinished else "stop"
        return Written(text, lines + thought, reason, 0, extra)
    extra = {
        "source": "candidate",
        "answer": candidate.answer,
        "round": candidate.round,
        "opening": candidate.opening,
        "reward": candidate.reward if math.isfinite(candidate.rank) else None,
    }
    reason = "length" if candidate.cut else "stop"
    return Written(text, lines + thought, reason, candidate.generated_tokens, extra)


def format_round(number: int, candidates: Sequence[Candidate]) -> str:
    """Return a line about a finished round, to show progress."""
    if all(candidate.cut and candidate.answer is None for candidate in candidates):
        return f"Round {number + 1}: none of {len(candidates)} candidates finished\n"
    best = max(candidates, key=lambda candidate: candidate.rank)
    reward = f" (reward {best.rank:.2f})" if math.isfinite(best.rank) else ""
    answer = "no answer" if best.answer is None else f"{' '.join(best.answer.split()):.60}"
    return f"Round {number + 1}: {len(candidates)} candidates, the best says {answer}{reward}\n"


class ChatReply:
    """The response to ``body``, a request for a chat completion, and the base of the other kind."""

    whole: type[ChatCompletion] | type[Completion] = ChatCompletion
    chunk: type[ChatCompletionChunk] | type[Completion] = ChatCompletionChunk
    kind, chunk_kind = "chat.completion", "chat.completion.chunk"

    def __init__(self, body: Body) -> None:
        self.body = body
        self.streamed_lines: list[str] = []  # about rounds
        self.streamed_text = ""
        self.head: dict[str, object] = {
            "id": f"sr-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": body.model,
        }

    def full_body(self, solutions: Sequence[Solution]) -> dict[str, object]:
        """Return the body of a response that is not streamed."""
        written = [each for s in solutions for each in write_choices(s, self.body)]
        choices = [self.choice(i, each, "message", each.reasoning) for i, each in enumerate(written)]
        rest = {"choices": choices, **_totals(solutions, written)}
        return self.whole.model_validate({**self.head, "object": self.kind, **rest}).to_dict()

    def choice(self, index: int, written: Written, key: str, reasoning: str) -> dict[str, object]:
        """Return a choice of a response, whose text stands under ``key``."""
        message = {"role": "assistant", "content": written.text, **_reasoning(reasoning)}
        return {"index": index, key: message, "logprobs": None, **_outcome(written)}

    def begin(self) -> Iterator[str]:
        """Yield the first events of a stream."""
        yield self.event([_delta("", role="assistant")])

    def note(self, line: str) -> Iterator[str]:
        """Yield a line about the work."""
        yield self.event([_delta(line)])

    def report_round(self, round: Round) -> Iterator[str]:
        """Yield the events of a finished round."""
        self.streamed_lines.append(format_round(round.number, round.candidates))
        yield from self.note(self.streamed_lines[-1])

    def report_text(self, thoughts: str, text: str) -> Iterator[str]:
        """Yield the event of what the beginnings of the reasoning and of the answer's text hold anew."""
        new = thoughts[len("".join(self.streamed_lines)) :], text[len(self.streamed_text) :]
        if any(new):
            self.streamed_lines, self.streamed_text = [thoughts], text
            yield self.event([_delta(new[0], content=new[1])])

    def end(self, solutions: Sequence[Solution]) -> Iterator[str]:
        """Yield the events after the last round."""
        written = [each for s in solutions for each in write_choices(s, self.body)]
        for i, each in enumerate(written):
            lines, text = ("", "") if i else ("".join(self.streamed_lines), self.streamed_text)
            rest = replace(each, text=each.text.removeprefix(text))
            yield self.event([self.choice(i, rest, "delta", each.reasoning.removeprefix(lines))])
        if self.body.stream_options.include_usage:
            yield self.event([], **_totals(solutions, written))
        yield DONE

    def event(self, choices: list[dict[str, object]], **more: object) -> str:
        """Return a server-sent event with a chunk of the response."""
        content = {**self.head, "object": self.chunk_kind, "choices": choices, **more}
        return f"data: {self.chunk.model_validate(content).to_json(indent=None)}\n\n"


class TextReply(ChatReply):
    """The response to a request for a completion."""

    whole = chunk = Completion
    kind = chunk_kind = "text_completion"

    def choice(self, index: int, written: Written, key: str, reasoning: str) -> dict[str, object]:
        return {"index": index, "text": written.text, "logprobs": None, **_outcome(written)}

    def begin(self) -> Iterator[str]:
        yield from self.note("")

    def note(self, line: str) -> Iterator[str]:
        yield f": {line}\n"  # a comment: chunks have no field for it

    def report_text(self, thoughts: str, text: str) -> Iterator[str]:
        yield from ()  # prompts may be several


def _outcome(written: Written) -> dict[str, object]:
    return {"finish_reason": written.finish_reason, "soft_reasoning": written.extra}


def _delta(reasoning: str, **more: str) -> dict[str, object]:
    return {"index": 0, "delta": {**more, **_reasoning(reasoning)}, "finish_reason": None}


def _reasoning(text: str) -> dict[str, str | None]:
    """``text`` under both names that clients read."""
    return {"reasoning": text or None, "reasoning_content": text or None}


def _totals(solutions: Sequence[Solution], written: Sequence[Written]) -> dict[str, object]:
    """The tokens of all work, of which those outside the choices count as reasoning, and the summary."""
    total = sum((solution.total for solution in solutions), Usage())
    prompt, generated = total.prompt_tokens, total.generated_tokens
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": total.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": generated - sum(each.tokens for each in written)},
    }
    return {"usage": usage, "soft_reasoning": solutions[0].summary()}
