"""Models that a server runs: requests over HTTP, and what a handshake found out about the server.

A server fails silently: a field that it does not know is ignored, with status 200. So each ability is tested
once, by a few short requests, before any work.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from typing import Any

from soft_reasoning.engine.base import Engine, Outcome
from soft_reasoning.engine.running import RunningRequest
from soft_reasoning.engine.served.client import Refused, Reply, Server
from soft_reasoning.types import Completion, FinishReason, UserError

POLL = 0.1
"""Seconds to wait for a reply before other threads may use the engine."""
SEEDS = 2**31 - 1
SHORT = 16
"""Tokens of a reply in the handshake."""
PATIENCE = 120.0
"""Seconds for the first text under a schema, for which a server reads its tokenizer."""
ONLY = (
    '{"type": "object", "properties": {"z": {"enum": [7]}}, "required": ["z"], "additionalProperties": false}'
)
"""A schema that only {"z": 7} fits."""
TEXT = "Question: A box holds 3 red and 4 blue balls. How many balls are in it?\nAnswer:"

log: logging.Logger = logging.getLogger(__name__)


class ServedEngine(Engine):
    """What both levels share: requests wait for room at the server, and its replies are read here.

    Attributes:
        server: The server.
        facts: What the handshake found; it stands in the manifest, and completions depend on it.
        closing: What is closed with the engine.
    """

    writes_in_turns = True  # under a deadline, each turn with a seed of its own

    def __init__(self, server: Server, card: Reply) -> None:
        super().__init__()
        self.server = server
        self._waiting: deque[RunningRequest] = deque()
        self._sent: dict[Future[Any], tuple[RunningRequest, Callable[[Reply], None]]] = {}
        self._done: list[tuple[int, Outcome]] = []
        self._replied = False
        self.closing = ExitStack()
        self.name: str = str(card["id"])
        sizes = card.get("max_model_len"), (card.get("meta") or {}).get("n_ctx")
        self.context_length: int = next((size for size in sizes if isinstance(size, int) and size > 0), 2**31)

    def begin(self, rows: dict[int, RunningRequest]) -> None:
        super().begin(rows)
        self._waiting.extend(sorted(rows.values(), key=lambda row: row.max_new_tokens > 0))

    def advance(self) -> list[tuple[int, Outcome]]:
        """Send what there is room for, and wait a moment for replies."""
        while self._waiting and len(self._sent) < self.server.at_once:
            row = self._waiting.popleft()
            if self.server.spent:
                self.end(row, row.completion(reason=FinishReason.BUDGET))
            else:
                self.send(row)
        replies, _ = wait(self._sent, timeout=0 if self._done else POLL, return_when=FIRST_COMPLETED)
        for future in replies:
            row, receive = self._sent.pop(future)
            try:
                receive(self.server.read(future))
                self._replied = True
            except Refused as error:
                if not (self._replied or row.request.schema):  # the settings are wrong, not a question
                    raise
                log.warning("a request is left without an answer: %s", error)
                self._done.append((row.ticket, error if row.request.schema else row.completion()))
            except TimeoutError as error:
                if not row.late():
                    raise UserError(f"{error}; the same command continues, or raise engine.timeout") from None
                self.end(row, row.completion())
        done, self._done = self._done, []
        return done

    def send(self, row: RunningRequest) -> None:
        """Send the rest of ``row`` to the server."""
        raise NotImplementedError

    def submit(
        self,
        row: RunningRequest,
        path: str,
        body: Mapping[str, Any],
        receive: Callable[[Reply], None],
        seconds: float | None = None,
    ) -> None:
        """Send ``body``; ``receive`` reads the reply. After ``seconds`` the connection is closed."""
        if row.request.schema:
            body = {**body, **_guided(row.request.schema, path)}
        self._sent[self.server.submit(path, {"model": self.name, **body}, seconds)] = row, receive

    def end(self, row: RunningRequest, completion: Completion) -> None:
        """Complete ``row``."""
        self._done.append((row.ticket, completion))

    def _guides(self, path: str, **body: Any) -> frozenset[str]:
        """``schemas`` if the server's text fits a schema that no other text fits; it is asked once."""
        body = {"model": self.name, "temperature": 0.0, **body, **_guided(ONLY, path)}
        try:
            choice = self.server.read(self.server.submit(path, body, PATIENCE))["choices"][0]
            return frozenset({"schemas"} if json.loads(text_of(choice)) == {"z": 7} else ())
        except (UserError, TimeoutError, ValueError, KeyError, IndexError, TypeError):
            return frozenset()  # vLLM answers 500 where it cannot read the tokenizer

    def drop(self, tickets: Collection[int]) -> None:
        super().drop(tickets)
        for future, (row, _) in [*self._sent.items()]:
            if row.ticket in tickets:
                future.cancel()
                del self._sent[future]
        self._waiting = deque(row for row in self._waiting if row.ticket not in tickets)
        self._done = [(ticket, outcome) for ticket, outcome in self._done if ticket not in tickets]

    def begin_run(self) -> None:
        self.server.begin_run()

    def close(self) -> None:
        self.closing.close()


def text_of(choice: Mapping[str, Any]) -> str:
    """The text of a completion or of a chat."""
    return choice["text"] if "text" in choice else choice["message"]["content"]


def _guided(schema: str, path: str) -> dict[str, Any]:
    form = {"name": "answer", "strict": True, "schema": json.loads(schema)}
    of_llamacpp = {"json_schema": form["schema"]} if path == "/completions" else {}
    return {"response_format": {"type": "json_schema", "json_schema": form}, **of_llamacpp}


def model_card(server: Server, name: str | None) -> Reply:
    """Return what the server says about the model ``name``, or about the only one that it serves.

    Raises:
        UserError: If there is no such model, or no single one.
    """
    cards = server.get("/models").get("data") or []
    found = [card for card in cards if name in (None, card["id"])]
    if len(found) != 1:
        names = ", ".join(str(card["id"]) for card in cards[:10])
        raise UserError(f"engine.name: expected a name of a served model ({names}), got {name}")
    return found[0]
