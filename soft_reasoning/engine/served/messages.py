"""Servers that take messages alone: no token ids, no tokenizer here, and texts with the server's counts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from time import monotonic
from typing import Any

from soft_reasoning.engine.base import lacks
from soft_reasoning.engine.running import RunningRequest
from soft_reasoning.engine.served.client import Refused, Reply, Server
from soft_reasoning.engine.served.engine import SEEDS, SHORT, TEXT, ServedEngine
from soft_reasoning.engine.text import earliest_stop
from soft_reasoning.thoughts import MARKS
from soft_reasoning.types import Completion, FinishReason, Sampling, UserError

DEFAULT_TOP_K = 50
"""The ``top_k`` of methods by default, which is off where a server has none; any other is refused there."""
MOST_STOPS = 4
"""Stop strings that are sent; the text is cut here at every one."""

log: logging.Logger = logging.getLogger(__name__)


class MessageEngine(ServedEngine):
    """A server of chat completions, such as Ollama, LM Studio or a hosted one.

    Args:
        server: The server.
        card: What it says about the model (``model_card``).

    Raises:
        UserError: If it answers no message.
    """

    offers = frozenset()
    tokenizer: Any = None
    eos_ids = frozenset()
    vocabulary = hidden_size = 0
    embedding_rms = float("nan")

    def __init__(self, server: Server, card: Reply) -> None:
        super().__init__(server, card)
        self._limit = "max_tokens"
        self._handshake()

    def send(self, row: RunningRequest) -> None:
        """Send the messages of ``row``."""
        request = row.request
        if not request.messages or request.min_new_tokens:
            raise UserError(lacks(self, {"ids"}))
        body = {
            "messages": [{"role": role, "content": text} for role, text in request.messages],
            self._limit: row.max_new_tokens,
            "seed": request.seed & SEEDS,
            **({"stop": list(request.stop[:MOST_STOPS])} if request.stop else {}),
            **self._sampling(request.sampling),
        }
        left = None if request.deadline is None else request.deadline - monotonic()
        self.submit(row, "/chat/completions", body, partial(self._receive, row), left)

    def _sampling(self, sampling: Sampling) -> dict[str, Any]:
        if (sampling.first_temperature, sampling.first_top_k) != (None, None):
            raise UserError(lacks(self, {"logprobs"}))
        fields = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        if self.facts["top_k"]:
            return {**fields, "top_k": sampling.top_k, "min_p": 0.0}
        if sampling.top_k not in (0, DEFAULT_TOP_K):
            raise UserError(f"top_k: expected 0, as this server has no top_k, got {sampling.top_k}")
        return fields

    def _receive(self, row: RunningRequest, reply: Reply) -> None:
        """Read a reply: thoughts that stand apart come first, and a missing text is an empty one."""
        thoughts, said, reason = _read(reply)
        usage = reply.get("usage") or {}
        if reason != "length" and not said:
            log.warning("the server gave no text (finish_reason %s)", reason)
        end = FinishReason.LENGTH if reason == "length" else FinishReason.EOS
        if (at := earliest_stop(said, row.request.stop)) >= 0:
            said, end = said[:at], FinishReason.STOP
        text = f"{MARKS[0].open}{thoughts}\n{MARKS[0].close}\n\n{said}" if thoughts else said
        completion = Completion(
            (),
            (),
            text,
            end,
            prompt_tokens=usage.get("prompt_tokens") or 0,
            cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
            counted=usage.get("completion_tokens") or 0,
        )
        self.end(row, completion)

    def _handshake(self) -> None:
        """Test what the server does."""
        try:
            greedy = self._ask(temperature=0.0)
        except Refused as error:
            if "max_completion_tokens" not in str(error):
                raise
            self._limit = "max_completion_tokens"
            greedy = self._ask(temperature=0.0)
        drawn = [self._ask(temperature=1.0, seed=7) for _ in range(2)]
        try:
            narrow = self._ask(temperature=1.5, seed=8, top_k=1)
        except Refused:
            narrow = {}
        self.offers = self._guides("/chat/completions", **self._asked())
        self.facts = {
            "served": self.name,
            "build": greedy.get("system_fingerprint"),
            "greedy": "".join(_read(greedy)[:2]),
            "seeded": _read(drawn[0]) == _read(drawn[1]),
            "top_k": bool(narrow) and _read(narrow) == _read(greedy),
            "counts": bool((greedy.get("usage") or {}).get("completion_tokens")),
            "offers": sorted(self.offers),
        }

    def _ask(self, **fields: Any) -> Reply:
        return self.server.post("/chat/completions", model=self.name, **self._asked(), **fields)

    def _asked(self) -> Mapping[str, Any]:
        return {"messages": [{"role": "user", "content": TEXT}], self._limit: SHORT}


def _read(reply: Reply) -> tuple[str, str, str]:
    """Return the thoughts, the text and the reason for its end."""
    try:
        choice = reply["choices"][0]
        message = choice["message"]
        thoughts = message.get("reasoning_content") or message.get("reasoning") or ""
        return str(thoughts), str(message.get("content") or ""), str(choice.get("finish_reason"))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise UserError("expected a reply with a message, got another; check the URL") from error
