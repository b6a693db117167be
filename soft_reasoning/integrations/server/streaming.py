"""A response in parts, as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from soft_reasoning.types import Round

DONE = "data: [DONE]\n\n"


class Rounds:
    """Collects finished rounds, for comments in the stream."""

    def __init__(self) -> None:
        self._found: asyncio.Queue[Round] = asyncio.Queue()

    def add(self, round: Round) -> None:
        """Add a round."""
        self._found.put_nowait(round)

    async def comments(self, task: asyncio.Task[Any], every: float) -> AsyncIterator[str]:
        """Yield a comment for each round, and one after ``every`` seconds without, until ``task`` is done."""
        while not task.done():
            got = asyncio.create_task(self._found.get())
            try:
                await asyncio.wait({got, task}, timeout=every, return_when=asyncio.FIRST_COMPLETED)
                if got.done():
                    one = got.result()
                    yield f": round {one.number}, {len(one.candidates)} candidates\n\n"
                elif not task.done():
                    yield ": in work\n\n"
            finally:
                got.cancel()


def event(body: dict[str, Any]) -> str:
    """Return ``body`` as an event."""
    return f"data: {json.dumps(body, ensure_ascii=False, allow_nan=False)}\n\n"


def chunks_of(response: dict[str, Any], usage: bool) -> list[dict[str, Any]]:
    """Return the chunks of a whole response: role, content and end of each choice, and perhaps the usage."""
    head = {**response, "object": "chat.completion.chunk"}
    del head["choices"], head["usage"]
    if usage:
        head["usage"] = None
    found: list[dict[str, Any]] = []

    def add(index: int, delta: dict[str, Any], **more: Any) -> None:
        one = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **more}
        found.append({**head, "choices": [one]})

    for one in response["choices"]:
        add(one["index"], {"role": "assistant", "content": ""})
        add(one["index"], {"content": one["message"]["content"]}, logprobs=one["logprobs"])
        end = {"finish_reason": one["finish_reason"], "soft_reasoning": one["soft_reasoning"]}
        add(one["index"], {}, **end)
    if usage:
        found.append({**head, "choices": [], "usage": response["usage"]})
    return found
