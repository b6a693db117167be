"""An engine without weights: a small deterministic language model for tests and docs.

Its next token is a function of the tokens so far, so it behaves like a real model. A completion can be
continued from any of its prefixes, a soft token equal to a token's embedding acts as that token, and any
other acts as its nearest token. It begins in one of eight ways, names two small numbers that depend on the
whole text before them, and ends, for example with "We total is 7. Answer: 12".
"""

from __future__ import annotations

import hashlib
from array import array
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engines.base import Engine, Outcome
from soft_reasoning.engines.embedding_table import EmbeddingTable
from soft_reasoning.engines.fake_tokenizer import NUMBERS, OPENERS, FakeTokenizer
from soft_reasoning.engines.output import Output, PreparedRequest

PEAK = 12.0
"""Logit of the tokens that may follow (one more for the greedy one); the rest is standard normal noise."""
NOISE_ROWS = 251


class _Row(Output):
    """A request in work, and the tokens that the model has read."""

    read_ids: list[int]


class FakeEngine(Engine):
    """Answers any prompt with an ``Answer: <0..20>``; see the module for how.

    Example:
        >>> engine = FakeEngine()
        >>> prompt = tuple(engine.tokenizer.encode("Question: how many?"))
        >>> engine.generate([Request(prompt)])[0].text
    """

    offers = frozenset({"adjust", "feed"})

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

    def row(self, ticket: int, prepared: PreparedRequest) -> _Row:
        """The row of a request; a soft token acts as the token nearest to it."""
        row, soft = _Row(ticket, prepared), prepared.soft
        nearest = [] if soft is None else [best for [(best, _)] in self.nearest_tokens(soft, 1)]
        row.read_ids = [*prepared.head, *nearest, *prepared.tail]
        return row

    def advance(self) -> list[tuple[int, Outcome]]:
        """Give every request one more token."""
        rows: list[_Row] = list(self.queued.values())
        outcomes = self.extend(rows, torch.stack([self._model.logits(row.read_ids) for row in rows]))
        for row in rows:
            if row.ticket not in outcomes:
                fed = row.fed
                row.read_ids.append(
                    row.ids[-1] if fed is None else self.nearest_tokens(fed[None], 1)[0][0][0]
                )
        return list(outcomes.items())


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

    def logits(self, ids: list[int]) -> Tensor:
        """(V,) float32."""
        digest = int.from_bytes(hashlib.blake2b(array("q", ids).tobytes(), digest_size=8).digest(), "little")
        choices = self._choices(ids)
        logits = self._noise[digest % NOISE_ROWS].clone()
        logits[torch.tensor(choices)] = PEAK + 0.1 * logits[torch.tensor(choices)]
        logits[choices[digest % len(choices)]] = PEAK + 1
        return logits

    def _choices(self, ids: list[int]) -> list[int]:
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
