"""Any decoder-only language model of transformers, behind the engine seam."""

from __future__ import annotations

import gc
import logging
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Many
from threading import RLock
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.checks import whole
from soft_reasoning.engines.base import PreparedRequest, prepare
from soft_reasoning.engines.batch_engine import BatchEngine
from soft_reasoning.engines.devices import device_of, is_out_of_memory, keep_freed_memory, memory_for
from soft_reasoning.engines.embedding_table import EmbeddingTable
from soft_reasoning.engines.hidden_states import ShowsHiddenStates
from soft_reasoning.engines.huggingface import loading
from soft_reasoning.engines.huggingface.probe import choose_runner, not_finite
from soft_reasoning.engines.huggingface.sequence import Sequence
from soft_reasoning.engines.sampling import choose
from soft_reasoning.engines.text import StopChecker
from soft_reasoning.types import Completion, Prompt, Request, UserError

log: logging.Logger = logging.getLogger(__name__)

CPU_BYTES = 2**31
"""Memory for keys and values on the CPU, unless ``max_batch_tokens`` is given; on a GPU it is half
of what is free."""


class HuggingFaceEngine(BatchEngine, ShowsHiddenStates):
    """Runs ``path`` (a folder, a hub name, a GGUF file, or ``demo``) with transformers.

    Its methods may be called from several threads; they take turns.

    Args:
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``; auto is float32 on the CPU.
        device: cuda where there is one, else the CPU, unless given; ``device_map`` spreads a model instead.
        quantization: ``4bit``, ``8bit`` or the arguments of ``BitsAndBytesConfig``.
        adapter: a folder (or hub name) of PEFT weights, merged into the model's own.
        max_batch_tokens: most positions whose keys and values are in memory at once; found from the memory
            that is free when None, and halved for good when memory runs out.

    Repeatability: on the CPU in float32 a request gets bitwise the same completion alone, in any batch and in
    any order (of mixtures of experts the same tokens). The number of threads and the kind of CPU may change
    the last bits. On a GPU, and in lower precision, sums depend on the batch in their last bits, so a greedy
    token at a near tie may differ beside other neighbours; ``dtype="float32"`` makes that rarer.

    Example:
        >>> engine = HuggingFaceEngine("demo")
        >>> prompt = tuple(engine.tokenizer.encode("Question: 1 + 1?"))
        >>> engine.generate([Request(prompt, max_new_tokens=8)])[0].text
    """

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
    ) -> None:
        where = device_of(device)
        with memory_for(path):
            model, tokenizer = loading.load(
                path,
                dtype=dtype,
                device=where,
                revision=revision,
                attn_implementation=attn_implementation,
                device_map=device_map,
                quantization=quantization,
                trust_remote_code=trust_remote_code,
                adapter=adapter,
            )
            self._set_up(model, tokenizer, max_batch_tokens)

    @classmethod
    def from_loaded(
        cls, model: Any, tokenizer: Any, *, max_batch_tokens: int | None = None
    ) -> HuggingFaceEngine:
        """An engine over a model that is loaded already; it is used as it is, in its dtype and place."""
        engine = cls.__new__(cls)
        loading.refuse(model.config)
        with memory_for(type(model).__name__):
            engine._set_up(model.eval(), tokenizer, max_batch_tokens)
        return engine

    def _set_up(self, model: Any, tokenizer: Any, max_batch_tokens: int | None) -> None:
        super().__init__()
        if max_batch_tokens is not None:
            whole("engine.max_batch_tokens", max_batch_tokens, least=1)
        self._lock = RLock()
        self.model, self.tokenizer = model, tokenizer
        lookup = model.get_input_embeddings()
        self._table = EmbeddingTable(lookup, lookup.weight)
        if self.device.type == "cpu":
            keep_freed_memory()
        on_gpu = self.device.type == "cuda"
        self._loaded_bytes = torch.cuda.memory_allocated(self.device) if on_gpu else 0
        self.hidden_size: int = int(self.embed([0]).shape[1])
        self.embedding_rms: float = self._table.rms()
        self.context_length: int = loading.context_length(model.config)
        self.eos_ids: frozenset[int] = loading.eos_ids(model, tokenizer)
        self._stops = StopChecker(tokenizer)
        self._runner = choose_runner(model)
        free = torch.cuda.mem_get_info(self.device)[0] // 2 if on_gpu else CPU_BYTES
        fitting = max(4096, int(free / max(self._runner.position_bytes, 1)))
        self.max_batch_tokens: int = max_batch_tokens or fitting
        self._runner.resize(self.max_batch_tokens)

    def embed(self, ids: Many[int]) -> Tensor:
        """(len(ids), D) float32 on the CPU, as the model's own lookup returns it (scale included)."""
        return self._table.embed(ids)

    def generate(self, requests: Many[Request]) -> list[Completion]:
        """Complete ``requests``, in input order; errors as in ``engines.base.Engine``."""
        sequences = [Sequence(i, self.check(request)) for i, request in enumerate(requests)]
        with self._lock:
            self._run_all(sequences, self._generate)
            return [
                sequence.output.completion(
                    self.tokenizer, self.eos_ids, self._stops, cached_tokens=sequence.cached_tokens
                )
                for sequence in sequences
            ]

    def check(self, request: Request) -> PreparedRequest:
        """Return ``request`` cut at its soft tokens; errors as in ``generate``."""
        return prepare(request, self.hidden_size, self.context_length, len(self._table))

    def next_token_logits(
        self, prompts: Many[Prompt], ids: Many[int] | None = None, *, top: int | None = None
    ) -> tuple[Tensor, list[int]]:
        """Logits as in ``engines.base.Engine``, and how many tokens of each prompt were cached."""
        asked = [Request(prompt.ids, max_new_tokens=1) for prompt in prompts]
        sequences = [Sequence(i, self.check(request)) for i, request in enumerate(asked)]
        found: dict[int, Tensor] = {}

        def read(waiting: deque[Sequence], running: list[Sequence]) -> None:
            while running := self._runner.admit(waiting, 0):
                logits = self._runner.prefill(running)
                self._normalisers(logits)
                wanted = logits if ids is None else logits[:, torch.tensor(list(ids), device=logits.device)]
                for sequence, row in zip(running, wanted.cpu(), strict=True):
                    found[sequence.index] = row
                    self._runner.release(sequence)

        with self._lock:
            self._run_all(sequences, read)
        width = len(self._table) if ids is None else len(ids)
        rows = [found[i] for i in range(len(sequences))]
        cached = [sequence.cached_tokens for sequence in sequences]
        return (torch.stack(rows).clone() if rows else torch.empty(0, width)), cached

    def nearest_tokens(self, x: Tensor, count: int = 3) -> list[list[tuple[int, float]]]:
        """For each row of ``x`` (n, D) the ``count`` tokens of highest cosine similarity, best first."""
        return self._table.nearest(x, count)

    @property
    def device(self) -> torch.device:
        """Where the embedding table lies."""
        return self._table.weight.device

    @property
    def peak_bytes(self) -> dict[str, int]:
        """The most bytes so far, by kind: ``kv`` of all keys and values and, on a GPU, ``activations``."""
        return self._memory(self._runner.peak_kv_bytes, torch.cuda.max_memory_allocated)

    @property
    def used_bytes(self) -> dict[str, int]:
        """Bytes now, as ``peak_bytes`` counts them."""
        return self._memory(self._runner.used_kv_bytes, torch.cuda.memory_allocated)

    def _memory(self, kv: int, allocated: Callable[[torch.device], int]) -> dict[str, int]:
        if self.device.type != "cuda":
            return {"kv": kv}
        other = self._loaded_bytes + max(kv, self._runner.reserved_kv_bytes)
        return {"kv": kv, "activations": max(0, allocated(self.device) - other)}

    def begin_run(self) -> None:
        """Forget what earlier runs left, and count ``peak_bytes`` from now on."""
        with self._lock:
            self._runner.begin_run()
            if self.device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(self.device)

    def close(self) -> None:
        """Give memory and devices back; the engine is not used afterwards."""
        with self._lock:
            del self.model, self._table, self._runner
            gc.collect()
            torch.cuda.empty_cache()

    def _generate(self, waiting: deque[Sequence], running: list[Sequence]) -> None:
        """Complete the sequences of ``waiting``; ``running`` shows those in work."""
        while waiting or running:
            # 1. New sequences get their prompts computed, and all others one more token.
            started = self._runner.admit(waiting, len(running))
            running += started
            rows = started or list(running)
            logits = self._runner.prefill(rows) if started else self._runner.decode(rows)
            # 2. Choose the next tokens; their log-probabilities are those of the unscaled logits.
            normalisers = self._normalisers(logits)
            tokens = choose(logits, [sequence.output for sequence in rows], sorted(self.eos_ids))
            logprobs = (logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1) - normalisers).tolist()
            # 3. Complete sequences leave the batch.
            ended = set()
            for sequence, token, logprob in zip(rows, tokens.tolist(), logprobs, strict=True):
                if sequence.output.add(token, logprob, self.eos_ids, self._stops):
                    self._runner.release(sequence)
                    ended.add(id(sequence))
            if ended:
                running[:] = [sequence for sequence in running if id(sequence) not in ended]

    def _normalisers(self, logits: Tensor) -> Tensor:
        """(R,) log-sum-exp of ``logits`` (R, V). Raises UserError where some are NaN or infinite."""
        normalisers = logits.logsumexp(-1)
        if not bool(normalisers.isfinite().all()):
            raise UserError(not_finite(self._table.weight.dtype))
        return normalisers

    @torch.inference_mode()
    def _run_all(
        self, sequences: list[Sequence], run: Callable[[deque[Sequence], list[Sequence]], None]
    ) -> None:
        """Run every sequence; where memory runs out, halve the bound and run the unfinished ones again.

        They are sorted by content, so that prompts that begin alike are side by side.
        """
        left = sorted(sequences, key=lambda s: (s.content, s.index))
        while left:
            waiting, running = deque(left), list[Sequence]()
            try:
                run(waiting, running)
                return
            except BaseException as error:
                if not is_out_of_memory(error):  # the next batch must not read this one's blocks
                    self._runner.resize(self.max_batch_tokens)
                    raise
                in_work = self._runner.reserved_tokens
            undone = {id(sequence) for sequence in (*waiting, *running)}
            left = [sequence for sequence in left if id(sequence) in undone]
            self._halve(left, in_work)

    def _halve(self, left: list[Sequence], in_work: int) -> None:
        """Bound batches by half of ``in_work``, the positions of the batch that did not fit."""
        smallest = min(left, key=lambda sequence: sequence.most_tokens)
        if self.max_batch_tokens < smallest.most_tokens:
            raise UserError(
                f"expected memory for a prompt of {smallest.prompt_tokens} tokens and "
                f"{smallest.prepared.max_new_tokens} new ones, and it ran out; shorten them or take a "
                "smaller model"
            )
        for sequence in left:
            sequence.reset()
        self.max_batch_tokens = max(1, min(self.max_batch_tokens, in_work or self.max_batch_tokens) // 2)
        self._runner.resize(self.max_batch_tokens)
        gc.collect()
        torch.cuda.empty_cache()
        log.warning("memory ran out; batches now hold at most %d tokens", self.max_batch_tokens)
