"""Runs models whose attention cannot read a block table, with the model's own cache.

These are recurrent models (Mamba), attention that transformers does not let us replace (alibi), chunked
attention, rotary embeddings that depend on the longest row, and models spread over several devices. The
rows of a batch have prompts of equal length, so nothing is padded or shared.

Log-probabilities are those of the model's own step with a cache. In Mamba-2 layers (Zamba2, Nemotron-H)
these differ from a pass over the whole sequence, by 1e-3 in small random models, because transformers
bounds time steps by ``time_step_min`` only in the latter. Without that bound the two agree to 1e-6.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engines.huggingface.model_runner import ModelCalls, keep_states
from soft_reasoning.engines.huggingface.sequence import Sequence


class PlainRunner:
    """The interface of :class:`ModelRunner`, without a block table."""

    reserved_kv_bytes = 0

    def __init__(self, calls: ModelCalls, *, max_tokens: int) -> None:
        self.calls = calls
        self.peak_kv_bytes: int = 0
        self.position_bytes: float = 0.0
        self.max_rows: int | None = None
        self.resize(max_tokens)

    def resize(self, max_tokens: int) -> None:
        """Drop all state, and bound the positions of a batch by ``max_tokens``."""
        self.max_tokens = max_tokens
        self._rows: list[Sequence] = []
        self._cache: dict[str, Any] = {}
        self._position = 0

    def serve_rows_alone(self) -> None:
        """Run one row at a time, for caches that :meth:`decode` cannot take a row from."""
        self.max_rows = self.calls.padding = 1

    def begin_run(self) -> None:
        """Restart the count of peaks."""
        self.resize(self.max_tokens)
        self.peak_kv_bytes = 0

    @property
    def reserved_tokens(self) -> int:
        """Positions that the active sequences take or will take."""
        return sum(sequence.most_tokens for sequence in self._rows)

    def admit(self, waiting: deque[Sequence], running: int) -> list[Sequence]:
        """Take sequences with prompts as long as the first one's off ``waiting``, if none is running."""
        if not waiting or running:
            return []
        admitted, longest = [], 0
        alike = [sequence for sequence in waiting if sequence.prompt_tokens == waiting[0].prompt_tokens]
        for sequence in alike[: self.max_rows]:
            longest = max(longest, sequence.most_tokens)
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
        rows = [self.calls.embed_at(sequence, 0, sequence.prompt_tokens) for sequence in sequences]
        rows += rows[-1:] * (self.calls.rows(len(rows)) - len(rows))
        with self.calls.reading_states(sequences) as states:
            logits = self._forward(inputs_embeds=torch.stack(rows))
        for read in states:
            keep_states(sequences, read[:, -1])
        return logits[: len(sequences)]

    def decode(self, sequences: list[Sequence]) -> Tensor:
        """Return logits (R, V) after the newest token of every sequence; other rows are dropped."""
        count = len(sequences)
        total = self.calls.rows(count)
        if sequences != self._rows:
            place = {id(sequence): row for row, sequence in enumerate(self._rows)}
            kept = [place[id(sequence)] for sequence in sequences]
            index = torch.tensor(kept + kept[-1:] * (total - count), device=self.calls.device)
            for cache in self._cache.values():
                cache.reorder_cache(index)
            self._rows = list(sequences)
        return self._forward(inputs_embeds=self.calls.embed_newest(sequences).unsqueeze(1))[:count]

    def _forward(self, **inputs: Tensor) -> Tensor:
        given = next(iter(inputs.values()))
        options: dict[str, Any] = dict(inputs)
        if self.calls.accepts("position_ids"):
            here = torch.arange(given.shape[1], device=self.calls.device) + self._position
            options["position_ids"] = here.expand(given.shape[0], -1)
        if self.calls.accepts("logits_to_keep"):
            options["logits_to_keep"] = 1
        out = self.calls.model(use_cache=True, return_dict=True, **options, **self._cache)
        self._position += given.shape[1]
        for name in ("past_key_values", "cache_params"):
            if getattr(out, name, None) is not None:
                self._cache = {name: getattr(out, name)}
        self._measure(len(given))
        return out.logits[:, -1].float()

    def _measure(self, rows: int) -> None:
        layers = [layer for cache in self._cache.values() for layer in getattr(cache, "layers", ())]
        tensors = [x for layer in layers for x in vars(layer).values() if isinstance(x, Tensor)]
        used = sum(x.numel() * x.element_size() for x in tensors)
        self.position_bytes = max(self.position_bytes, used / (rows * self._position))
        self.peak_kv_bytes = max(self.peak_kv_bytes, used)
