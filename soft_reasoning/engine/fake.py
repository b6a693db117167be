"""An engine without weights: a small deterministic language model for tests and docs.

Its next token is a function of the tokens so far, so it behaves like a real model. A completion can be
continued from any of its prefixes, and a soft token acts as the token with the nearest embedding. A
completion begins in one of eight ways, names two small numbers that depend on the whole text before them, and
ends. An example is "We total is 7. Answer: 12".
"""

from __future__ import annotations

import hashlib
import re
from array import array
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engine.base import Engine, Outcome
from soft_reasoning.engine.running import RunningRequest
from soft_reasoning.types import Request

OPENERS = (" First", " Then", " We", " Let", " So", " Now", " Start", " Each")
NUMBERS = tuple(f" {n}" for n in range(21))
_WORDS = (
    "the of and to a in is has have had how many much more than each left total are was were it they he she "
    "all now then so per day days week Question Thought Answer Analysis step by think problem solution "
    "number True False Yes No Solve with for from at on not that this what apples books bought gave sold"
)
PEAK = 12.0
"""Logit of the tokens that may follow (plus 1 for the greedy token); the rest is standard normal noise."""
NOISE_ROWS = 251
RULES = (
    (f"({'|'.join(OPENERS)})", (" total",)),
    (" total", (" is",)),
    ("( is|Answer:)", NUMBERS),
    ("Answer", (":",)),
    (r": \d+", ("\n",)),
    (r" \d+", (".",)),
    (r" \d+\.", (" Answer",)),
    (r" \d+\n", ("</s>",)),
)
"""Patterns of the last two tokens, and the tokens that may follow; elsewhere an opener follows."""


class FakeTokenizer:
    """Longest match over whole words (with or without a leading space), numbers and single bytes.

    Any text is encoded and decoded without loss; the longest match wins, so ids depend on the text alone.
    """

    bos_token_id = 0
    eos_token_id = 1
    pad_token_id = 2
    all_special_ids = [0, 1, 2]
    all_special_tokens = ["<s>", "</s>", "<pad>"]

    def __init__(self) -> None:
        words = dict.fromkeys(w for word in _WORDS.split() for w in (word, " " + word))
        words.update(dict.fromkeys([*OPENERS, *NUMBERS]))
        special = [token.encode() for token in self.all_special_tokens]
        self._pieces = special + [bytes([b]) for b in range(256)] + [w.encode() for w in words]
        self._ids = {piece: i for i, piece in enumerate(self._pieces) if i >= len(special)}
        self._longest = max(map(len, self._pieces))
        self.vocab_size: int = len(self._pieces)

    def token_ids(self, tokens: Sequence[str]) -> list[int]:
        """The ids of whole tokens."""
        return [self._pieces.index(token.encode()) for token in tokens]

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        data, at = text.encode(), 0
        ids = [self.bos_token_id] if add_special_tokens else []
        while at < len(data):
            for size in range(min(self._longest, len(data) - at), 0, -1):
                token = self._ids.get(data[at : at + size])
                if token is not None and not (size > 1 and self._splits_word(data, at + size)):
                    ids.append(token)
                    at += size
                    break
        return ids

    def decode(
        self,
        ids: Sequence[int],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool = False,
    ) -> str:
        skipped = self.all_special_ids if skip_special_tokens else ()
        return b"".join(self._pieces[i] for i in ids if i not in skipped).decode(errors="replace")

    @staticmethod
    def _splits_word(data: bytes, end: int) -> bool:
        """Whether a match ending at ``end`` would cut a word or a number in two."""
        return end < len(data) and chr(data[end - 1]).isalnum() and chr(data[end]).isalnum()


class _Row(RunningRequest):
    """A running request, with the tokens that the model has read."""

    read_ids: list[int]


class FakeEngine(Engine):
    """Answers any prompt with an ``Answer: <0..20>``, as the module's docstring describes.

    Example:
        >>> engine = FakeEngine()
        >>> prompt = tuple(engine.tokenizer.encode("Question: how many?"))
        >>> engine.generate([Request(prompt)])[0].text
    """

    running_type = _Row

    def __init__(self, hidden_size: int = 32, context_length: int = 8192) -> None:
        super().__init__()
        self.tokenizer: Any = FakeTokenizer()
        self.context_length = context_length
        self.eos_ids: frozenset[int] = frozenset([self.tokenizer.eos_token_id])
        rows = _embeddings(self.tokenizer, hidden_size)
        self.set_embeddings(rows.__getitem__, rows)
        self._rules = [(re.compile(rule + r"\Z"), self.tokenizer.token_ids(words)) for rule, words in RULES]
        self._openers = self.tokenizer.token_ids(OPENERS)
        self._noise = _normal(NOISE_ROWS, len(rows), generator=torch.Generator().manual_seed(1))

    def prepare(self, request: Request, ticket: int = -1) -> _Row:
        """See :meth:`Engine.prepare`; a soft token becomes the token nearest to it."""
        row: _Row = super().prepare(request, ticket)
        nearest = [] if row.soft is None else [best for [(best, _)] in self.nearest_tokens(row.soft, 1)]
        row.read_ids = [*row.head, *nearest, *row.tail]
        return row

    def advance(self) -> list[tuple[int, Outcome]]:
        """Give every request one more token."""
        rows: list[_Row] = list(self.queued.values())
        outcomes = self.extend(rows, torch.stack([self.logits(row.read_ids) for row in rows]))
        for row in rows:
            if row.ticket not in outcomes:
                row.read_ids.append(row.ids[-1])
        return list(outcomes.items())

    def logits(self, ids: list[int]) -> Tensor:
        """(V,) float32: the logits of the token after ``ids``."""
        digest = int.from_bytes(hashlib.blake2b(array("q", ids).tobytes(), digest_size=8).digest(), "little")
        text = self.tokenizer.decode(ids[-2:])
        choices = next((choices for rule, choices in self._rules if rule.search(text)), self._openers)
        logits = self._noise[digest % NOISE_ROWS].clone()
        logits[choices] = PEAK + 0.1 * logits[choices]
        logits[choices[digest % len(choices)]] = PEAK + 1
        return logits


def _embeddings(tokenizer: FakeTokenizer, hidden_size: int) -> Tensor:
    """(V, D) of RMS 0.1. Openers lie close together, so a perturbed opener may act as another."""
    generator = torch.Generator().manual_seed(0)
    table = _normal(tokenizer.vocab_size, hidden_size, generator=generator)
    openers = tokenizer.token_ids(OPENERS)
    table[openers] = 0.95 * _normal(hidden_size, generator=generator) + 0.3 * table[openers]
    return 0.1 * table


def _normal(*size: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*size, dtype=torch.float32, generator=generator)
