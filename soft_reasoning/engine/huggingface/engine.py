"""An engine for any decoder-only language model of transformers."""

from __future__ import annotations

import gc
import logging
from collections import deque
from collections.abc import Collection, Iterable
from functools import cached_property
from operator import attrgetter
from typing import Any

import torch

from soft_reasoning.checks import whole
from soft_reasoning.engine import loading
from soft_reasoning.engine.base import Engine, Outcome
from soft_reasoning.engine.devices import (
    choose_device,
    choose_threads,
    fitting_tokens,
    is_out_of_memory,
    keep_freed_memory,
    memory_for,
)
from soft_reasoning.engine.grammar import Grammars
from soft_reasoning.engine.huggingface.runner_choice import choose_runner
from soft_reasoning.engine.huggingface.sequence import Sequence
from soft_reasoning.types import Request, UserError

log: logging.Logger = logging.getLogger(__name__)

LARGE = 300_000_000
"""Models with more parameters are slow in float32 on a CPU."""
ROWS_ON_CPU = 96
"""Beyond this many rows a step takes proportionally longer: the processor is already at full speed."""


class HuggingFaceEngine(Engine):
    """Runs ``path`` (a folder, a hub name, a GGUF file, or ``demo``) with transformers.

    Its methods may be called from several threads; they take turns.

    Args:
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``; see :func:`choose_dtype` for auto.
        device: The device; None takes cuda, else the CPU. ``device_map`` distributes the model over
            several devices instead.
        quantization: ``4bit``, ``8bit`` or the arguments of ``BitsAndBytesConfig``.
        adapter: A folder (or hub name) of PEFT weights, merged into the model's weights.
        max_batch_tokens: Maximum number of positions with keys and values in memory. None computes it from
            the free memory. It is halved permanently when memory runs out.
        max_batch_rows: Maximum number of sequences that run at once; others wait. None is no bound, but
            ``ROWS_ON_CPU`` for a large model on the CPU: more rows save little time and delay first results.
        threads: CPU threads of the process; None is one thread for a small model, else PyTorch's default.

    Results are reproducible as for every :class:`Engine`, and bitwise so where ``batch_invariant`` is true
    (mixtures of experts: the same tokens). The number of threads and the CPU type may change the last bits.

    Example:
        >>> engine = HuggingFaceEngine("demo")
        >>> prompt = tuple(engine.tokenizer.encode("Question: 1 + 1?"))
        >>> engine.generate([Request(prompt, max_new_tokens=8)])[0].text
    """

    running_type = Sequence
    offers = Engine.offers | {"hidden_states", "schemas"}

    def __init__(
        self,
        path: str,
        *,
        dtype: str | torch.dtype = "auto",
        device: str | None = None,
        revision: str | None = None,
        attn_implementation: str | None = None,
        device_map: Any = None,
        quantization: dict[str, Any] | str | None = None,
        trust_remote_code: bool = False,
        adapter: str | None = None,
        max_batch_tokens: int | None = None,
        max_batch_rows: int | None = None,
        threads: int | None = None,
    ) -> None:
        if threads is not None:
            whole("threads", threads, least=1)
        torch_device = choose_device(device)
        with memory_for(path):
            model, tokenizer = loading.load(
                path,
                torch_device,
                dtype,
                attn_implementation,
                device_map,
                quantization,
                adapter,
                revision=revision,
                trust_remote_code=trust_remote_code,
            )
            choose_threads(threads, model.num_parameters())
            self._set_up(model, tokenizer, max_batch_tokens, max_batch_rows)

    @classmethod
    def from_loaded(
        cls,
        model: Any,
        tokenizer: Any,
        *,
        max_batch_tokens: int | None = None,
        max_batch_rows: int | None = None,
    ) -> HuggingFaceEngine:
        """An engine for a loaded model, whose dtype and device stay as they are."""
        engine = cls.__new__(cls)
        loading.check_kind(model.config)
        with memory_for(type(model).__name__):
            engine._set_up(model.eval(), tokenizer, max_batch_tokens, max_batch_rows)
        return engine

    def _set_up(
        self, model: Any, tokenizer: Any, max_batch_tokens: int | None, max_batch_rows: int | None
    ) -> None:
        super().__init__()
        for name, bound in (("max_batch_tokens", max_batch_tokens), ("max_batch_rows", max_batch_rows)):
            if bound is not None:
                whole(name, bound, least=1)
        self.model, self.tokenizer = model, tokenizer
        lookup = model.get_input_embeddings()
        self.device: torch.device = lookup.weight.device
        if self.device.type == "cpu":
            keep_freed_memory()
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            log.warning("engine=hf is slow on a GPU; engine=vllm is the fast way")
        self._loaded_bytes = torch.cuda.memory_allocated(self.device) if on_gpu else 0
        self.set_embeddings(lookup, lookup.weight)
        self.context_length: int = loading.context_length(model.config)
        generation = getattr(model, "generation_config", None)
        self.max_new_tokens = getattr(generation, "max_new_tokens", None)
        self.eos_ids: frozenset[int] = loading.eos_ids(model, tokenizer)
        self._runner = choose_runner(model)
        self.batch_invariant = self._runner.batch_invariant
        self.max_batch_tokens: int = max_batch_tokens or fitting_tokens(
            self.device, self._runner.position_bytes
        )
        if self.device.type == "cpu" and model.num_parameters() > LARGE:
            max_batch_rows = max_batch_rows or ROWS_ON_CPU
            if model.dtype == torch.float32:
                log.info("float32 is exact; model.dtype=bfloat16 takes half the memory")
        self._runner.max_rows = max_batch_rows
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._restart([])

    def begin(self, rows: dict[int, Sequence]) -> None:
        """Start work on ``rows``, sorted by content, so that prompts with a common prefix are adjacent.

        Under a bound of rows the requests of lower turns go first, so that first results come early.
        """
        super().begin(rows)
        self._waiting = self._in_order(self._waiting, rows.values())

    def _in_order(self, waiting: Iterable[Sequence], new: Iterable[Sequence]) -> deque[Sequence]:
        ordered = [*waiting, *sorted(new, key=attrgetter("content", "ticket"))]
        if self._runner.max_rows is not None:
            ordered.sort(key=attrgetter("request.turn"))
        return deque(ordered)

    @cached_property
    def _grammars(self) -> Grammars:
        return Grammars(self.tokenizer, self.vocabulary, self.eos_ids)

    def prepare(self, request: Request, ticket: int = -1) -> Sequence:
        """See :meth:`Engine.prepare`."""
        row: Sequence = super().prepare(request, ticket)
        if request.schema and row.max_new_tokens:
            row.grammar = self._grammars.start(request.schema)
        return row

    @torch.inference_mode()
    def advance(self) -> list[tuple[int, Outcome]]:
        """Compute the prompts of new requests, or else the next token of all running requests."""
        try:  # the next logits: of new sequences if there is room for some, or else of all that run
            started = self._runner.admit(self._waiting, len(self._running))
            self._running += started
            rows = started or list(self._running)
            logits = self._runner.prefill(rows) if started else self._runner.decode(rows)
            outcomes = self.extend(rows, logits)
        except BaseException as error:
            if is_out_of_memory(error):
                return self._halve()
            self._restart([])  # the next batch must not read blocks of this batch
            raise
        self._leave(outcomes)
        return list(outcomes.items())

    def drop(self, tickets: Collection[int]) -> None:
        """Forget those requests of ``tickets`` that are in progress."""
        super().drop(tickets)
        self._leave(tickets)
        self._waiting = deque(sequence for sequence in self._waiting if sequence.ticket not in tickets)

    @property
    def peak_bytes(self) -> dict[str, int]:
        """Peak bytes by kind: ``kv`` of all keys and values and, on a GPU, ``activations``."""
        kv = self._runner.peak_kv_bytes
        if self.device.type != "cuda":
            return {"kv": kv}
        fixed = self._loaded_bytes + max(kv, self._runner.reserved_kv_bytes)
        return {"kv": kv, "activations": max(0, torch.cuda.max_memory_allocated(self.device) - fixed)}

    def begin_run(self) -> None:
        """Forget the state of earlier runs, and restart ``peak_bytes``."""
        with self.lock:
            if not self._running:
                self._runner.begin_run()
            if self.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(self.device)

    def close(self) -> None:
        """Release memory and devices; the engine cannot be used afterwards."""
        with self.lock:
            super().close()
            del self.model, self._lookup, self._weight, self._runner
            gc.collect()
            torch.cuda.empty_cache()

    def _leave(self, tickets: Collection[int]) -> None:
        """Remove ``tickets`` from the running batch."""
        leaving = [sequence for sequence in self._running if sequence.ticket in tickets]
        for sequence in leaving:
            self._runner.release(sequence)
        if leaving:
            self._running = [sequence for sequence in self._running if sequence.ticket not in tickets]

    def _restart(self, sequences: list[Sequence]) -> None:
        """Drop all state, and start again with ``sequences``."""
        fresh = [self.prepare(sequence.request, sequence.ticket) for sequence in sequences]
        self.queued.update((sequence.ticket, sequence) for sequence in fresh)
        self._running, self._waiting = [], self._in_order([], fresh)
        self._runner.resize(self.max_batch_tokens)

    def _halve(self) -> list[tuple[int, Outcome]]:
        """Halve the size of the batch that did not fit, limit batches to it, and run the sequences again.

        A sequence that did not fit alone ends with a UserError.
        """
        in_progress, remaining = self._runner.reserved_tokens, [*self._running, *self._waiting]
        outcomes: list[tuple[int, Outcome]] = []
        if self.max_batch_tokens < min(sequence.max_tokens for sequence in self._running):
            outcomes = [(sequence.ticket, _too_long(sequence)) for sequence in self._running]
            remaining = list(self._waiting)
        self.max_batch_tokens = max(1, min(self.max_batch_tokens, in_progress or self.max_batch_tokens) // 2)
        self._restart(remaining)
        gc.collect()
        torch.cuda.empty_cache()
        log.warning("memory ran out; batches now hold at most %d tokens", self.max_batch_tokens)
        return outcomes


def _too_long(sequence: Sequence) -> UserError:
    return UserError(
        f"Out of memory for a prompt of {sequence.prompt_tokens} tokens and {sequence.max_new_tokens} new "
        "tokens; shorten them or take a smaller model"
    )
