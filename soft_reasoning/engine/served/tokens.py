"""Servers that take token ids: vLLM, with rows of embeddings among them, and llama.cpp."""

from __future__ import annotations

import base64
import io
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engine.base import lacks
from soft_reasoning.engine.running import RunningRequest
from soft_reasoning.engine.sampling import sample_tokens, settings
from soft_reasoning.engine.served.client import Reply, Server
from soft_reasoning.engine.served.engine import SEEDS, SHORT, TEXT, ServedEngine, text_of
from soft_reasoning.engine.text import earliest_stop, prompt_text
from soft_reasoning.types import FinishReason, TopLogprobs, UserError, seed_for

MOST_NAMED = 128
"""Maximum number of token ids for which vLLM returns log-probabilities by id."""
AS_IT_IS = (
    "{% for message in messages %}{% for part in message['content'] %}{{ part['text'] }}"
    "{% endfor %}{% endfor %}"
)
"""A chat template that adds nothing to the parts of a message, among which soft tokens can stand."""
PLACE = "<prompt_embeds>"
"""What stands for soft tokens in vLLM's texts; a text that holds it is refused there."""
HOTTEST = 2.0
"""The highest temperature at which servers sample; above it tokens are drawn here."""
TURN = 32
"""Most tokens that a server generates between two checks of a deadline."""
SAME = 0.1
"""Largest difference of log-probabilities after ids and after their embeddings, also in bfloat16."""

log: logging.Logger = logging.getLogger(__name__)


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
        path, body = self._request(row, body)
        self.submit(row, path, body, partial(receive, row), left)

    def _options(self) -> dict[str, Any]:
        """Fields of every request; a server ignores those that it does not know."""
        return {
            "stop_token_ids": sorted(self.eos_ids),
            "min_p": 0.0,
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            "return_tokens_as_token_ids": True,
        }

    def _request(self, row: RunningRequest, body: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """The path and body for ``row`` and its tokens so far: ids, soft tokens in a text, or only rows.

        A server caches these apart, so a prompt that is only read is sent as its candidates are.
        """
        body, head, tail = {**self._options(), **body}, row.head, (*row.tail, *row.ids)
        if row.soft is None and (row.max_new_tokens or "rows" not in self.offers):
            return "/completions", {**body, "prompt": [*head, *tail]}
        head, soft = (head[:-1], self.embed(head[-1:])) if row.soft is None else (head, row.soft)
        if "splices" in self.offers and (spliced := self._spliced(head, soft, tail)):
            spliced |= {"logprobs": True, "top_logprobs": body["logprobs"]}
            return "/chat/completions", {**body, **spliced}
        return "/completions", {**body, **self._rows(head, soft, tail)}

    def _rows(self, head: Sequence[int], soft: Tensor, tail: Sequence[int]) -> dict[str, Any]:
        """A prompt of embeddings alone."""
        rows = torch.cat([self.embed(head), soft.detach().cpu(), self.embed(tail)])
        return {"prompt": None, "prompt_embeds": self._packed(rows)}

    def _spliced(self, head: Sequence[int], soft: Tensor, tail: Sequence[int]) -> dict[str, Any]:
        """A prompt of text with soft tokens in it; empty where the server would read the text otherwise."""
        texts = [prompt_text(self.tokenizer, ids) for ids in (head, tail)]
        ids = [self.tokenizer.encode(text, add_special_tokens=False) for text in texts]
        if ids != [[*head], [*tail]] or any(PLACE in text for text in texts):
            return {}
        before, after = ({"type": "text", "text": text} for text in texts)
        content = [before, {"type": "prompt_embeds", "data": self._packed(soft)}, after]
        messages = [{"role": "user", "content": content}]
        return {"messages": messages, "chat_template": AS_IT_IS, "add_generation_prompt": False}

    def _packed(self, rows: Tensor) -> str:
        file = io.BytesIO()
        torch.save(rows.detach().cpu().to(self._weight.dtype).clone(), file)
        return base64.b64encode(file.getvalue()).decode()

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
            text = self.stops.decode(earlier) + text_of(choice)
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
        if self._returns_logits(ids):
            self.offers |= {"logits"}
            if embeddings is not None:
                self.set_embeddings(*embeddings())
                self.offers |= self._splices(ids, first)
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

    def _splices(self, ids: Sequence[int], first: Sequence[Any]) -> frozenset[str]:
        """``rows``, and ``splices`` for soft tokens in a text, if the embedding of an id acts as the id."""
        place = ids[:4], self.embed(ids[4:5]), ids[5:]
        same = partial(self._same, first)
        if not same("/completions", logprobs=1, **self._rows(*place)):
            return frozenset()
        spliced = self._spliced(*place)
        same = spliced and same("/chat/completions", logprobs=True, top_logprobs=1, **spliced)
        return frozenset({"rows", "splices"} if same else {"rows"})

    def _same(self, first: Sequence[Any], path: str, **body: Any) -> bool:
        """Whether the greedy tokens after ``body``, and their log-probabilities, are those of ``first``."""
        body = {"model": self.name, "max_tokens": 8, "temperature": 0.0, **self._options(), **body}
        try:
            tokens = read_tokens(self.server.post(path, **body))
        except UserError:
            return False
        pairs = list(zip(tokens, first, strict=False))
        return bool(pairs) and all(a[0] == b[0] and abs(a[1] - b[1]) <= SAME for a, b in pairs)


def read_tokens(reply: Reply) -> list[tuple[int, float, list[tuple[int, float]]]]:
    """Return each generated token of a reply: its id, its log-probability, and the likeliest (id, logprob).

    Replies have two formats: that of completions, and that of chats, which llama.cpp uses for both.

    Raises:
        UserError: If the reply holds no ids.
    """
    try:
        marks = reply["choices"][0].get("logprobs")
        if not marks and reply["choices"][0]["finish_reason"] == "stop":  # before the first whole token
            return []
        if "content" in marks:
            found = [(mark, mark["logprob"], mark["top_logprobs"]) for mark in marks["content"]]
        else:
            found = zip(marks["tokens"], marks["token_logprobs"], marks["top_logprobs"], strict=True)
        return [(_id(token), logprob, _likeliest(top)) for token, logprob, top in found]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(
            "model.tokenizer: expected a server that returns log-probabilities by the ids of tokens (vLLM, "
            "llama.cpp), got a reply without them; leave model.tokenizer out to send messages"
        ) from error


def _likeliest(top: Any) -> list[tuple[int, float]]:
    """The ids and log-probabilities of a mark's tokens, the likeliest first."""
    pairs = top.items() if isinstance(top, Mapping) else [(token, token["logprob"]) for token in top or ()]
    return sorted(((_id(token), logprob) for token, logprob in pairs), key=lambda pair: -pair[1])


def _id(token: Any) -> int:
    """The id of a token: ``token_id:5`` of vLLM, or a field of llama.cpp."""
    if isinstance(token, Mapping):
        return token["id"] if "id" in token else _id(token["token"])
    return int(token.removeprefix("token_id:"))
