"""Texts that fit a JSON Schema: llguidance says which tokens may come next (extra ``schemas``)."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from soft_reasoning.checks import OptionError
from soft_reasoning.types import UserError

COMPILED = 64
"""Schemas that stay compiled."""
SPACES = {"whitespace_pattern": r"[ \n]{1,12}"}
"""Between two tokens of JSON; without an end a small model may write nothing else."""


class Grammars:
    """Compiles JSON Schemas for a model with ``vocabulary`` logits; several threads may call it."""

    def __init__(self, tokenizer: Any, vocabulary: int, eos_ids: Collection[int]) -> None:
        try:
            from llguidance import LLMatcher, hf

            self._matcher: Any = LLMatcher
            self._tokenizer = hf.from_tokenizer(tokenizer, n_vocab=vocabulary, eos_token=sorted(eos_ids))
        except (ImportError, ValueError) as error:
            raise UserError(
                "schema: expected llguidance (pip install llguidance) and a tokenizer that it can read, got "
                f"an error ({error}); leave the schema out, or use another model"
            ) from error
        self._compiled = lru_cache(COMPILED)(self._compile)

    def start(self, schema: str) -> Any:
        """Return llguidance's matcher for a text that fits ``schema``, which is compiled once."""
        return self._compiled(schema).deep_copy()

    def _compile(self, schema: str) -> Any:
        grammar = self._matcher.grammar_from_json_schema(schema, overrides=SPACES)
        matcher = self._matcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            reason = " ".join(matcher.get_error().split())[:300]
            raise OptionError("schema", f"expected a JSON Schema that llguidance can compile, got: {reason}")
        return matcher


def allowed(matcher: Any, vocabulary: int) -> Tensor:
    """(vocabulary,) bool: the tokens that may come next."""
    bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
    return torch.from_numpy(np.unpackbits(bits, bitorder="little")[:vocabulary].astype(bool))
