"""Runs models whose attention cannot read a block table, with the model's own cache.

These are recurrent models (Mamba), attention that transformers cannot replace (alibi), chunked attention,
rotary embeddings that depend on the longest row, and models on several devices. The rows of a batch have
prompts of equal length, so nothing is padded or shared.

Log-probabilities are those of the model's step with a cache. In Mamba-2 layers (Zamba2, Nemotron-H) these
differ from a pass over the whole sequence: only there transformers bounds time steps from below.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engine.huggingface.model_runner import Runner
from soft_reasoning.engine.huggingface.sequence import Sequence


class PlainRunner(Runner):
    """The interface of :class:`ModelRunner`, without a block table."""

    def __init__(self, model: Any, *, max_tokens: int) -> None:
        super().__init__(model)
        self.resize(max_tokens)

    def resize(self, max_tokens: int) -> None:
        """Drop all state, and bound the positions of a batch by ``max_tokens``."""
        self.max_tokens = max_tokens
        self._rows: list[Sequence] = []
        self._cache: dict[str, Any] = {}
        self._position = 0

    def begin_run(self) -> None:
        """Restart ``peak_kv_bytes``."""
        self.resize(self.max_tokens)
        self.peak_kv_bytes = 0

    @property
    def reserved_tokens(self) -> int:
        """Positions that the active sequences take or will take."""
        return sum(sequence.max_tokens for sequence in self._rows)

    def admit(self, waiting: deque[Sequence], running: int) -> list[Sequence]:
        """Remove sequences with prompts as long as the first from ``waiting``, if none is running."""
        if not waiting or running:
            return []
        admitted, longest = [], 0
        alike = [sequence for sequence in waiting if sequence.prompt_tokens == waiting[0].prompt_tokens]
        for sequence in alike[: self.max_rows]:
            longest = max(longest, sequence.max_tokens)
            if admitted and longest * (len(admitted) + 1) > self.max_tokens:
                break
            admitted.append(sequence)
        for sequence in admitted:
            waiting.remove(sequence)
        return admitted

    def release(self, sequence: Sequence) -> None:
        """Note that ``sequence`` is complete; the next step drops its row."""

    def prefill(self, sequences: list[Sequence]) -> Tensor:
        """Return logits (R, V) after the prompts of ``sequences``, which have equal length."""
        self._rows, self._cache, self._position = list(sequences), {}, 0
        rows = [self.embed_at(sequence, 0, sequence.prompt_tokens) for sequence in sequences]
        rows += rows[-1:] * (self.padded_count(len(rows)) - len(rows))
        with self.reading_states(sequences) as states:
            logits = self._forward(torch.stack(rows))
        for depth, read in states.items():
            for sequence, state in zip(sequences, read, strict=False):
                if sequence.request.hidden_state == depth:
                    sequence.sum_states(state, 0)
                    sequence.keep_state(state[-1])
        return logits[: len(sequences)]

    def decode(self, sequences: list[Sequence]) -> Tensor:
        """Return logits (R, V) after the newest token of every sequence; other rows are dropped."""
        count = len(sequences)
        total = self.padded_count(count)
        if sequences != self._rows:
            row_numbers = {id(sequence): row for row, sequence in enumerate(self._rows)}
            rows = [row_numbers[id(sequence)] for sequence in sequences]
            index = torch.tensor(rows + rows[-1:] * (total - count), device=self.device)
            for cache in self._cache.values():
                cache.reorder_cache(index)
            self._rows = list(sequences)
        return self._forward(self.embed_newest(sequences).unsqueeze(1))[:count]

    def _forward(self, embeddings: Tensor) -> Tensor:
        """Logits (R, V) after ``embeddings`` (R, n, D), which follow what is in the cache."""
        options: dict[str, Any] = {"logits_to_keep": 1} if "logits_to_keep" in self.accepts else {}
        rows, new, _ = embeddings.shape
        if "position_ids" in self.accepts:
            at = torch.arange(self._position, self._position + new, device=self.device)
            options["position_ids"] = at.expand(rows, -1)
        out = self.model(inputs_embeds=embeddings, use_cache=True, return_dict=True, **options, **self._cache)
        self._position += new
        for name in ("past_key_values", "cache_params"):
            if getattr(out, name, None) is not None:
                self._cache = {name: getattr(out, name)}
        layers = [layer for cache in self._cache.values() for layer in getattr(cache, "layers", ())]
        used = sum(x.nbytes for layer in layers for x in vars(layer).values() if isinstance(x, Tensor))
        self.position_bytes = max(self.position_bytes, used / (rows * self._position))
        self.peak_kv_bytes = max(self.peak_kv_bytes, used)
        return out.logits[:, -1]
