"""An engine without weights: a small deterministic language model for tests and docs.

Its next token is a function of the tokens so far, so it behaves like a real model. A completion can be
continued from any of its prefixes, a soft token equal to a token's embedding acts as that token, and any
other acts as its nearest token. It begins in one of eight ways, names two small numbers that depend on the
whole text before them, and ends, for example with "We total is 7. Answer: 12".
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engines.base import PreparedRequest
from soft_reasoning.engines.embedding_table import EmbeddingTable
from soft_reasoning.engines.fake_tokenizer import NUMBERS, OPENERS, FakeTokenizer
from soft_reasoning.engines.output import Output
from soft_reasoning.engines.queue import QueueEngine
from soft_reasoning.engines.sampling import adjusted, choose
from soft_reasoning.engines.text import StopChecker
from soft_reasoning.types import Completion

PEAK = 12.0
"""Logit of the tokens that may follow (one more for the greedy one); the rest is standard normal noise."""
NOISE_ROWS = 251


@dataclass
class _Row:
    """A request in work, and the tokens that the model has read."""

    ids: list[int]
    output: Output


class FakeEngine(QueueEngine):
    """Answers any prompt with an ``Answer: <0..20>``; see the module for how.

    Example:
        >>> engine = FakeEngine()
        >>> prompt = tuple(engine.tokenizer.encode("Question: how many?"))
        >>> engine.generate([Request(prompt)])[0].text
    """

    feeds_embeddings = True
    adjusts_logits = True

    def __init__(self, hidden_size: int = 32, context_length: int = 8192) -> None:
        super().__init__()
        self.tokenizer: Any = FakeTokenizer()
        self.hidden_size = hidden_size
        self.context_length = context_length
        self.eos_ids: frozenset[int] = frozenset([self.tokenizer.eos_token_id])
        rows = _embeddings(self.tokenizer, hidden_size)
        self._table = EmbeddingTable(rows.__getitem__, rows)
        self.embedding_rms: float = self._table.rms()
        self._model = _Model(self.tokenizer)
        self._stops = StopChecker(self.tokenizer)
        self._rows: dict[int, _Row] = {}

    def begin(self, requests: dict[int, PreparedRequest]) -> None:
        """Take ``requests`` on, by ticket."""
        super().begin(requests)
        for ticket, prepared in requests.items():
            self._rows[ticket] = _Row(self._prompt(prepared), Output(prepared))

    def advance(self) -> list[tuple[int, Completion]]:
        """Give every request one more token."""
        complete = []
        for ticket, row in self._rows.items():
            if self._write(row):
                done = row.output.completion(self.tokenizer, self.eos_ids, self._stops, cached_tokens=0)
                complete.append((ticket, done))
        for ticket, _ in complete:
            del self._rows[ticket]
        return complete

    def drop(self, tickets: Collection[int]) -> None:
        """Forget the requests of ``tickets``."""
        super().drop(tickets)
        for ticket in tickets:
            self._rows.pop(ticket, None)

    def _write(self, row: _Row) -> bool:
        """Read and choose the next token of ``row``; True if it is complete."""
        output, logits = row.output, self._model.logits(tuple(row.ids))
        normaliser = float(logits.logsumexp(-1))
        if output.read(logits, normaliser):
            return True
        shown = adjusted(logits[None], [output])
        token = int(choose(shown, [output], sorted(self.eos_ids)))
        feed = output.request.feed
        row.ids.append(token if feed is None else self.nearest_tokens(feed(shown[0])[None], 1)[0][0][0])
        return output.add(token, float(logits.log_softmax(-1)[token]), self.eos_ids, self._stops)

    def begin_run(self) -> None:
        """There is nothing to forget."""

    def close(self) -> None:
        """There is nothing to release."""

    def _prompt(self, prepared: PreparedRequest) -> list[int]:
        """The prompt's ids; a soft token acts as the token nearest to it."""
        nearest = [] if prepared.soft is None else self.nearest_tokens(prepared.soft, 1)
        return [*prepared.head, *(row[0][0] for row in nearest), *prepared.tail]


def _embeddings(tokenizer: FakeTokenizer, hidden_size: int) -> Tensor:
    """(V, D) of RMS 0.1. The openers lie close together, so that a perturbed one may act as another."""
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(tokenizer.vocab_size, hidden_size, generator=generator)
    openers = [tokenizer.encode(text, add_special_tokens=False)[0] for text in OPENERS]
    table[openers] = 0.95 * torch.randn(hidden_size, generator=generator) + 0.3 * table[openers]
    return 0.1 * table


class _Model:
    """The fake language model: (token ids) -> logits of the next token."""

    def __init__(self, tokenizer: FakeTokenizer) -> None:
        def token(text: str) -> int:
            [ids] = tokenizer.encode(text, add_special_tokens=False)
            return ids

        self._openers = [token(t) for t in OPENERS]
        self._numbers = [token(t) for t in NUMBERS]
        self._is_number = set(self._numbers)
        self._the_end = tokenizer.eos_token_id
        self._stop, self._colon, self._newline = token("."), token(":"), token("\n")
        self._is, self._total, self._answer = token(" is"), token(" total"), token(" Answer")
        self._cues = {self._answer, token("Answer")}
        size = (NOISE_ROWS, tokenizer.vocab_size)
        self._noise = torch.randn(*size, generator=torch.Generator().manual_seed(1))

    def logits(self, ids: tuple[int, ...]) -> Tensor:
        """(V,) float32."""
        digest = int.from_bytes(hashlib.blake2b(array("q", ids).tobytes(), digest_size=8).digest(), "little")
        choices = self._choices(ids)
        logits = self._noise[digest % NOISE_ROWS].clone()
        logits[torch.tensor(choices)] = PEAK + 0.1 * logits[torch.tensor(choices)]
        logits[choices[digest % len(choices)]] = PEAK + 1
        return logits

    def _choices(self, ids: tuple[int, ...]) -> list[int]:
        """The tokens that may follow: a sentence that opens, states a total, then the answer."""
        before, last = (None, None, *ids)[-2:]
        if last in self._openers:
            return [self._total]
        if last == self._total:
            return [self._is]
        if last == self._is or last in self._cues or (last == self._colon and before in self._cues):
            return [self._colon] if last in self._cues else self._numbers
        if last in self._is_number:
            return [self._newline] if before == self._colon else [self._stop]
        if last == self._stop and before in self._is_number:
            return [self._answer]
        if last == self._newline and before in self._is_number:
            return [self._the_end]
        return self._openers
