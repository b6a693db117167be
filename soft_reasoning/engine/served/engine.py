"""Models that a server runs: requests over HTTP, and what a handshake found out about the server.

A server fails silently: a field that it does not know is ignored, with status 200. So each ability is tested
once, by a few short requests, before any work.
"""

from __future__ import annotations

import base64
import io
import json
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import ExitStack
from functools import partial
from time import monotonic
from typing import Any

import torch

from soft_reasoning.engine.base import Engine, Outcome, lacks
from soft_reasoning.engine.running import RunningRequest
from soft_reasoning.engine.sampling import sample_tokens, settings
from soft_reasoning.engine.served.client import Refused, Reply, Server
from soft_reasoning.engine.text import earliest_stop
from soft_reasoning.types import Completion, FinishReason, Request, TopLogprobs, UserError, seed_for

MOST_NAMED = 128
"""Maximum number of token ids for which vLLM returns log-probabilities by id."""
HOTTEST = 2.0
"""The highest temperature at which servers sample; above it tokens are drawn here."""
TURN = 32
"""Most tokens that a server generates between two checks of a deadline."""
SAME = 0.1
"""Largest difference of log-probabilities after ids and after their embeddings, also in bfloat16."""
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

    writes_in_turns = True  # of ``TURN`` tokens, each with a seed of its own

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
            text = choice["text"] if "text" in choice else choice["message"]["content"]
            return frozenset({"schemas"} if json.loads(text) == {"z": 7} else ())
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


class TokenEngine(ServedEngine):
    """A server that takes token ids: the engine behind ``engine=served`` with a tokenizer, and ``vllm``.

    In float32, greedy completions equal those of ``engine=hf`` token for token. Samples come from the
    server's generators, seeded by the request, and differ from those of ``hf``.

    Args:
        server: The server.
        card: What it says about the model (:func:`model_card`).
        tokenizer: The model's tokenizer.
        eos_ids: Its end-of-sequence tokens.
        embeddings: Returns the embedding table, as :meth:`Engine.set_embeddings` takes it; None without one.

    Raises:
        UserError: If the server takes no ids, returns none, or has another tokenizer.
    """

    def __init__(
        self,
        server: Server,
        card: Reply,
        tokenizer: Any,
        eos_ids: Collection[int],
        embeddings: Callable[[], Any] | None,
    ) -> None:
        super().__init__(server, card)
        self.tokenizer, self.eos_ids = tokenizer, frozenset(eos_ids)
        self.vocabulary, self.hidden_size = len(tokenizer), 0
        self.offers = frozenset({"ids", "logprobs"})
        self._handshake(embeddings)

    def send(self, row: RunningRequest) -> None:
        """Request the rest of ``row``, or only the next token's log-probabilities.

        The latter is needed where the server would sample differently, and where logits are read.
        """
        request, count, max_tokens = row.request, len(row.ids), row.max_new_tokens
        temperature, top_k, top_p = sampling = settings(request.sampling, count)
        reads = request.next_logits is not False and not count
        other = sampling != settings(request.sampling, count + 1) or temperature > HOTTEST
        if max_tokens == 0 or reads or other or count < request.min_new_tokens:
            body = {"max_tokens": 1, "temperature": 0.0, **self._logprobs(row, temperature, top_k)}
            receive = self._receive_logprobs
        else:
            turn = max_tokens if request.schema or not request.deadline else TURN
            body = {
                "max_tokens": min(max_tokens - count, turn),
                "temperature": temperature,
                "top_k": top_k,
                "top_p": top_p,
                "seed": seed_for(request.seed, count) & SEEDS if count else request.seed & SEEDS,
                "stop": list(request.stop),
                "logprobs": max(1, min(request.top_logprobs, self.vocabulary)),
            }
            receive = self._receive_tokens
        left = request.deadline - monotonic() if request.deadline and request.schema else None
        body = {**self._prompt(row), **self._options(), **body}
        self.submit(row, "/completions", body, partial(receive, row), left)

    def _options(self) -> dict[str, Any]:
        """Fields of every request; a server ignores those that it does not know."""
        return {
            "stop_token_ids": sorted(self.eos_ids),
            "min_p": 0.0,
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            "return_tokens_as_token_ids": True,
        }

    def _prompt(self, row: RunningRequest) -> dict[str, Any]:
        """The prompt of ``row`` and its generated tokens: ids, or rows where there are soft tokens."""
        # A server caches ids and rows apart: what only reads is sent as rows, so that candidates find it.
        if row.soft is None and (row.max_new_tokens or "rows" not in self.offers):
            return {"prompt": [*row.head, *row.ids]}
        soft = torch.empty(0, self.hidden_size) if row.soft is None else row.soft.detach().cpu().float()
        rows = torch.cat([self.embed(row.head), soft, self.embed([*row.tail, *row.ids])])
        file = io.BytesIO()
        torch.save(rows.to(self._weight.dtype).clone(), file)
        return {"prompt": None, "prompt_embeds": base64.b64encode(file.getvalue()).decode()}

    def _logprobs(self, row: RunningRequest, temperature: float, top_k: int) -> dict[str, Any]:
        """Options for the log-probabilities that are returned: few, since each of them takes time."""
        request, writes = row.request, row.max_new_tokens > 0
        wanted = request.next_logits if not row.ids else False
        if isinstance(wanted, tuple) and not writes and not request.top_logprobs:
            named = sorted(set(wanted))
            if len(named) <= MOST_NAMED:
                return {"logprobs": len(named), "logprob_token_ids": named}
        if wanted is not False or (writes and temperature and not top_k):
            if "logits" not in self.offers:
                raise UserError(lacks(self, {"logits"}))
            return {"logprobs": -1}
        drawn = (top_k or 1) + len(self.eos_ids) if writes else 0
        return {"logprobs": min(max(drawn, request.top_logprobs), self.vocabulary)}

    def _receive_tokens(self, row: RunningRequest, reply: Reply) -> None:
        """Add the tokens that the server generated."""
        tokens, count = read_tokens(reply), row.request.top_logprobs
        if count:
            row.top_logprobs += [TopLogprobs(*zip(*top[:count], strict=True)) for *_, top in tokens]
        ids, logprobs = [token for token, *_ in tokens], [logprob for _, logprob, _ in tokens]
        self._continue(row, reply, ids, logprobs, reply["choices"][0].get("finish_reason") == "stop")

    def _receive_logprobs(self, row: RunningRequest, reply: Reply) -> None:
        """Read the log-probabilities, and draw a token from them as the other engines do."""
        _, _, top = read_tokens(reply)[0]
        logprobs = torch.full((self.vocabulary,), -torch.inf, dtype=torch.float32)  # of those not returned
        for token, logprob in top:
            logprobs[token] = logprob
        row.read(logprobs, 0.0)
        if not row.max_new_tokens:
            self._continue(row, reply, (), ())
            return
        [(token, *_)] = sample_tokens(logprobs[None], [row], sorted(self.eos_ids))
        self._continue(row, reply, [token], [float(logprobs[token])])

    def _continue(
        self,
        row: RunningRequest,
        reply: Reply,
        ids: Sequence[int],
        logprobs: Sequence[float],
        stopped: bool = False,
    ) -> None:
        """Add tokens to ``row`` and complete it, or send it again before its end.

        ``stopped`` says that the server ended the text with them.
        """
        if not row.ids:
            row.cached_tokens = ((reply.get("usage") or {}).get("prompt_tokens_details") or {}).get(
                "cached_tokens"
            ) or 0
        choice, earlier = reply["choices"][0], list(row.ids)
        row.ids += ids
        row.logprobs += logprobs
        completion = row.finish(self.eos_ids, self.stops)
        whole = len(row.ids) == row.max_new_tokens or row.late() or (not ids and not stopped)
        whole = whole or bool(row.request.schema)
        if completion.finish_reason == FinishReason.LENGTH and not whole:
            if not stopped or self._shows_stop(row):
                self.send(row)
                return
            # llama.cpp leaves out the tokens of a stop string, and more of the last token's text.
            text = self.stops.decode(earlier) + choice["text"]
            completion = row.completion(len(row.ids), text, FinishReason.STOP)
        self.end(row, completion)

    def _shows_stop(self, row: RunningRequest) -> bool:
        """Whether a stop string is in the tokens so far: one in thoughts, which ends nothing."""
        return earliest_stop(self.stops.decode(row.ids), row.request.stop) >= 0

    def _handshake(self, embeddings: Callable[[], Any] | None) -> None:
        """Test what the server does, and set what the engine offers."""
        ids = self.tokenizer.encode(TEXT)
        text, ask = TEXT, partial(self.server.post, "/completions", model=self.name, max_tokens=8, logprobs=1)
        by_ids = ask(prompt=ids, temperature=0.0, **self._options())
        by_text = ask(prompt=text, temperature=0.0, **self._options())
        first = read_tokens(by_ids)
        counts = [(reply.get("usage") or {}).get("prompt_tokens") for reply in (by_ids, by_text)]
        if counts != [len(ids)] * 2 or [t for t, *_ in first] != [t for t, *_ in read_tokens(by_text)]:
            raise UserError(
                "model.tokenizer: expected the tokenizer of the served model, got one whose ids mean another "
                f"text to it ({counts[0]} and {counts[1]} tokens for {len(ids)} ids); name its own, or leave "
                "it out to send messages"
            )
        drawn = [ask(prompt=ids, temperature=1.0, seed=7, min_p=0.0) for _ in range(2)]
        seeded = drawn[0]["choices"][0]["text"] == drawn[1]["choices"][0]["text"]
        logits = self._returns_logits(ids)
        rows = logits and embeddings is not None and self._takes_rows(embeddings, ids, first)
        self.offers |= {"logits"} if logits else frozenset()
        self.offers |= {"rows"} if rows else frozenset()
        self.offers |= self._guides("/completions", prompt=ids, max_tokens=SHORT)
        self.facts = {
            "served": self.name,
            "build": by_ids.get("system_fingerprint"),
            "greedy": by_ids["choices"][0]["text"],
            "seeded": seeded,
            "offers": sorted(self.offers),
        }
        if not seeded:
            log.warning("the server repeats no sample for a seed: results cannot be reproduced")

    def _returns_logits(self, ids: Sequence[int]) -> bool:
        """Whether log-probabilities of named tokens and of all tokens come as they were asked for."""
        named = sorted({*ids})[:2]
        body = {"model": self.name, "prompt": ids, "max_tokens": 1, "temperature": 0.0}
        asked = ({"logprobs": 2, "logprob_token_ids": named}, {"logprobs": -1})
        try:
            replies = [self.server.post("/completions", **body, **self._options(), **more) for more in asked]
            [some], [every] = map(read_tokens, replies)
        except (UserError, ValueError):
            return False
        found = {token for token, _ in some[2]}
        return found >= {*named} and len(every[2]) >= self.vocabulary

    def _takes_rows(self, embeddings: Callable[[], Any], ids: Sequence[int], first: Sequence[Any]) -> bool:
        """Whether rows of embeddings act as the ids whose rows they are."""
        self.set_embeddings(*embeddings())
        row = self.prepare(Request((), soft=self.embed(ids), max_new_tokens=8))
        try:
            reply = self.server.post(
                "/completions",
                **{"model": self.name, "max_tokens": 8, "temperature": 0.0, "logprobs": 1},
                **self._prompt(row),
                **self._options(),
            )
            tokens = read_tokens(reply)
        except UserError:
            return False
        pairs = list(zip(tokens, first, strict=False))
        same = all(a[0] == b[0] and abs(a[1] - b[1]) <= SAME for a, b in pairs)
        return bool(pairs) and same


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


def read_tokens(reply: Reply) -> list[tuple[int, float, list[tuple[int, float]]]]:
    """Return each generated token of a reply: its id, its log-probability, and the likeliest (id, logprob).

    Servers have two formats: that of completions, with ids as ``token_id:5`` (vLLM), and that of chats, with
    a field ``id`` (llama.cpp).

    Raises:
        UserError: If the reply holds no ids.
    """
    try:
        marks = reply["choices"][0].get("logprobs")
        if not marks and reply["choices"][0]["finish_reason"] == "stop":  # before the first whole token
            return []
        if "content" in marks:
            return [
                (mark["id"], mark["logprob"], [(top["id"], top["logprob"]) for top in mark["top_logprobs"]])
                for mark in marks["content"]
            ]
        return [
            (_id(token), logprob, sorted(((_id(t), x) for t, x in (top or {}).items()), key=lambda x: -x[1]))
            for token, logprob, top in zip(
                marks["tokens"], marks["token_logprobs"], marks["top_logprobs"], strict=True
            )
        ]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(
            "model.tokenizer: expected a server that returns log-probabilities by the ids of tokens (vLLM, "
            "llama.cpp), got a reply without them; leave model.tokenizer out to send messages"
        ) from error


def _id(token: str) -> int:
    return int(token.removeprefix("token_id:"))
