"""Any decoder-only language model of transformers, behind the engine seam."""

from __future__ import annotations

import gc
import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.checks import whole
from soft_reasoning.engines import loading
from soft_reasoning.engines.allocation import device_of, is_out_of_memory, memory_for
from soft_reasoning.engines.decode import decode_batch
from soft_reasoning.engines.native import paged_attention
from soft_reasoning.engines.neurons import ShowsNeurons
from soft_reasoning.engines.onednn import with_onednn
from soft_reasoning.engines.planning import Job, batches, job_of, positions, reading
from soft_reasoning.engines.probe import choose_runner
from soft_reasoning.engines.runners import ModelCalls
from soft_reasoning.engines.text import StopWatch
from soft_reasoning.types import Completion, Prompt, Request, UserError

log = logging.getLogger(__name__)

LOOKUP_CHUNK = 8192
KEPT_SHARE, LEAST_KEPT = 4, 8192
"""Between batches at most this part of ``max_batch_tokens`` is kept, beside it, or so many positions if that
is less: the exemplars of a run at any rate."""


class HuggingFaceEngine(ShowsNeurons):
    """Runs ``path`` (a folder, a hub name, or ``demo``) with transformers.

    dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``; auto is float32 on the CPU.
    device: cuda where there is one, else the CPU, unless given; ``device_map`` spreads a model instead.
    quantization: ``4bit``, ``8bit`` or the arguments of ``BitsAndBytesConfig``.
    adapter: a folder (or hub name) of PEFT weights, merged into the model's own.
    max_batch_tokens: most positions whose keys and values are held at once; found from the memory that is
        free when ``None``, and halved for good when memory runs out.
    compile: ``auto`` or true records decode steps as CUDA graphs on a GPU, and on the CPU in float32 has
        the machine's C compiler, where there is one, make attention over keys and values in pages (true
        insists); false does neither.

    What repeats: on the CPU in float32 a request gets bitwise the same completion alone, in any batch and in
    any order, with one thread and with two (of mixtures of experts the same tokens). The number of threads,
    the kind of CPU and whether attention is compiled may change the last bits. On a GPU, and in lower
    precision, sums depend on the batch in their last bits, and a greedy token at a near tie may fall
    otherwise beside other neighbours; ``dtype="float32"`` makes that rarer. A run makes the same batches
    again if ``max_batch_tokens`` is given (free memory differs), with the same ``max_live`` and problems and
    without a resume; ``torch.use_deterministic_algorithms(True)`` with ``CUBLAS_WORKSPACE_CONFIG=:4096:8``
    rules out kernels that do not repeat their own sums. What is said of GPUs follows from PyTorch's notes on
    reproducibility; it was not measured.

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
        compile: bool | str = "auto",
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
            self._set_up(model, tokenizer, max_batch_tokens, compile)

    @classmethod
    def from_loaded(
        cls, model: Any, tokenizer: Any, *, max_batch_tokens: int | None = None, compile: bool | str = "auto"
    ) -> HuggingFaceEngine:
        """An engine over a model that is loaded already; it is used as it is, in its dtype and place."""
        engine = cls.__new__(cls)
        loading.refuse(model.config)
        with memory_for(type(model).__name__):
            engine._set_up(model.eval(), tokenizer, max_batch_tokens, compile)
        return engine

    def _set_up(self, model: Any, tokenizer: Any, max_batch_tokens: int | None, compile: bool | str) -> None:
        if max_batch_tokens is not None:
            whole("engine.max_batch_tokens", max_batch_tokens, least=1)
        if compile not in ("auto", True, False):
            raise UserError(f"expected engine.compile to be auto, true or false, got {compile!r}")
        self.model, self.tokenizer = model, tokenizer
        self._calls = ModelCalls(with_onednn(model))
        on_gpu = self._calls.device.type == "cuda"
        self._loaded_bytes = torch.cuda.memory_allocated(self._calls.device) if on_gpu else 0
        on_cpu = self._calls.device.type == "cpu" and self._calls.dtype == torch.float32
        attention = paged_attention() if on_cpu and compile is not False else None
        if compile is True and not (on_gpu or attention):
            raise UserError(
                "expected a GPU, or float32 and a C compiler, for engine.compile=true, found neither; "
                "leave it at auto"
            )
        self.max_batch_tokens = max_batch_tokens or free_tokens(model, self._calls)
        self._runner = choose_runner(
            self._calls,
            kept_tokens=max(self.max_batch_tokens // KEPT_SHARE, LEAST_KEPT),
            record=on_gpu and compile is not False,
            attention=attention,
        )
        self._watch = StopWatch(tokenizer)
        self.eos_ids = eos_ids(model, tokenizer)
        self._vocabulary = self._calls.lookup.weight.shape[0]
        self.hidden_size = int(self.embed([0]).shape[1])
        self.context_length = context_length(model.config)
        self._norms: Tensor | None = None
        self.embedding_rms = self._rms()

    @torch.inference_mode()
    def embed(self, ids: Sequence[int]) -> Tensor:
        """(len(ids), D) float32 on the CPU, as the model's own lookup returns it (scale included)."""
        return self._calls.embed(ids).float().cpu().clone()

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Complete ``requests``, in input order; errors as in ``engines.base.Engine``."""
        jobs = [self._job(i, request) for i, request in enumerate(requests)]
        done: list[Any] = [None] * len(jobs)

        def run(batch: list[Job]) -> None:
            made = decode_batch(
                self._runner, batch, tokenizer=self.tokenizer, eos=self.eos_ids, watch=self._watch
            )
            for job, completion in zip(batch, made, strict=True):
                done[job.index] = completion

        self._run_all(jobs, run)
        return done

    def next_token_logits(
        self, prompts: Sequence[Prompt], ids: Sequence[int] | None = None, *, top: int | None = None
    ) -> tuple[Tensor, list[int]]:
        """(len(prompts), len(ids) or vocabulary) float32 logits of the token after each prompt, and how many
        tokens of each prompt were cached."""
        jobs = [self._job(i, reading(prompt)) for i, prompt in enumerate(prompts)]
        found: list[Tensor] = [torch.empty(0)] * len(jobs)
        counts = [0] * len(jobs)

        def run(batch: list[Job]) -> None:
            with torch.inference_mode():
                logits, cached = self._runner.start(batch)
                wanted = logits if ids is None else logits[:, torch.tensor(list(ids), device=logits.device)]
                for job, row, count in zip(batch, wanted.cpu(), cached, strict=False):
                    found[job.index], counts[job.index] = row, count

        self._run_all(jobs, run)
        width = self._vocabulary if ids is None else len(ids)
        return (torch.stack(found).clone() if found else torch.empty(0, width)), counts

    @torch.inference_mode()
    def nearest_tokens(self, x: Tensor, count: int = 3) -> list[list[tuple[int, float]]]:
        """For each row of ``x`` (n, D) the ``count`` tokens of highest cosine similarity, best first."""
        # On the model's device, in parts: a table of 128,000 tokens is gigabytes in float32. A scale that the
        # lookup applies to all tokens cancels out.
        table = self._calls.lookup.weight.split(LOOKUP_CHUNK)
        if self._norms is None:
            self._norms = torch.cat([some.float().norm(dim=-1) for some in table]).clamp_min(1e-12)
        x = torch.nn.functional.normalize(x.float().to(self._calls.device), dim=-1)
        cosines = torch.cat([x @ some.float().T for some in table], dim=-1) / self._norms
        best = cosines.topk(min(count, self._vocabulary), dim=-1)
        return [
            list(zip(tokens, values, strict=True))
            for tokens, values in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    @property
    def peak_bytes(self) -> dict[str, int]:
        """Most bytes held so far: ``kv`` for all keys and values at once, and on a GPU ``activations`` for
        all else but the weights, as PyTorch's allocator counts it (on the CPU nobody does)."""
        peaks = {"kv": self._runner.peak_kv_bytes}
        if self._calls.device.type == "cuda":
            held = torch.cuda.max_memory_allocated(self._calls.device)
            peaks["activations"] = max(0, held - self._loaded_bytes - peaks["kv"])
        return peaks

    @property
    def held_bytes(self) -> dict[str, int]:
        """Bytes held now, as ``peak_bytes`` counts them."""
        held = {"kv": self._runner.held_kv_bytes}
        if self._calls.device.type == "cuda":
            used = torch.cuda.memory_allocated(self._calls.device)
            held["activations"] = max(0, used - self._loaded_bytes - held["kv"])
        return held

    def begin_run(self) -> None:
        """Forget what earlier runs left, and count ``peak_bytes`` from now on."""
        self._runner.begin_run()
        if self._calls.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._calls.device)

    def close(self) -> None:
        """Give memory and devices back; the engine is not used afterwards."""
        self._runner.forget()
        del self.model, self._calls, self._runner
        self._norms = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _job(self, index: int, request: Request) -> Job:
        job = job_of(index, request, hidden_size=self.hidden_size, context_length=self.context_length)
        worst = max(request.prompt_ids, default=0)
        least = min(request.prompt_ids, default=0)
        if least < 0 or worst >= self._vocabulary:
            got = least if least < 0 else worst
            raise ValueError(f"expected prompt ids in 0..{self._vocabulary - 1}, got {got}")
        return job

    def _run_all(self, jobs: list[Job], run: Any) -> None:
        """Run every job once, in batches; where memory cannot hold one, halve the bound and plan anew."""
        for group in self._groups(jobs):
            planned = list(batches(group, self.max_batch_tokens, self._runner.layout))
            while planned:
                if _fits(planned[0], run) or self._fits_alone(planned[0], run):
                    del planned[0]
                    continue
                self._halve(planned[0])
                left = [job for batch in planned for job in batch]
                planned = list(batches(left, self.max_batch_tokens, self._runner.layout))

    def _fits_alone(self, batch: list[Job], run: Any) -> bool:
        """Run ``batch`` where it failed beside what earlier ones left, which may be what took the memory."""
        self._forget()
        fits = _fits(batch, run)
        if fits:
            self._runner.keep_less()
            log.warning("memory ran out; half as many prefixes are now kept between batches")
        return fits

    def _forget(self) -> None:
        self._runner.forget()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _halve(self, batch: list[Job]) -> None:
        self._forget()
        if len(batch) == 1:
            raise UserError(
                f"expected memory for a prompt of {batch[0].prompt_tokens} tokens and "
                f"{batch[0].max_new_tokens} new ones, and it ran out; shorten them or take a smaller model"
            )
        # What ``batch`` takes may be less than the bound; half of it is too little for ``batch``.
        self.max_batch_tokens = min(self.max_batch_tokens, positions(batch, self._runner.layout)) // 2
        log.warning("memory ran out; batches now hold at most %d tokens", self.max_batch_tokens)

    def _groups(self, jobs: list[Job]) -> list[list[Job]]:
        """Jobs that may be batched: all of them, or for a plain runner those of one prompt length."""
        if self._runner.layout.shared:
            return [jobs] if jobs else []
        groups: dict[int, list[Job]] = {}
        for job in jobs:
            groups.setdefault(job.prompt_tokens, []).append(job)
        return list(groups.values())

    def _rms(self) -> float:
        total, count = 0.0, 0
        for start in range(0, self._vocabulary, LOOKUP_CHUNK):
            some = self.embed(range(start, min(start + LOOKUP_CHUNK, self._vocabulary))).double()
            total, count = total + float(some.square().sum()), count + some.numel()
        return (total / count) ** 0.5


def eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """All end-of-sequence ids: those of the generation config, else the config's, else the tokenizer's."""
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return frozenset([ids] if isinstance(ids, int) else ids)
    return frozenset()


def context_length(config: Any) -> int:
    """Most positions the model was made for; unbounded (2**31) where its config does not say."""
    text = config.get_text_config()
    names = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length")
    for name in names:
        value = getattr(text, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return 2**31


def free_tokens(model: Any, calls: ModelCalls) -> int:
    """How many positions' keys and values fit in half of the memory that is free (2 GiB on the CPU)."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_attention_heads", None)
    width = config.hidden_size  # without attention too: its state takes less, reading a prompt takes more
    if heads:
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        width = head_dim * (getattr(config, "num_key_value_heads", None) or heads)
    size = 2 * config.num_hidden_layers * width * calls.dtype.itemsize
    free = torch.cuda.mem_get_info(calls.device)[0] // 2 if calls.device.type == "cuda" else 2**31
    return max(4096, free // size)


def _fits(batch: list[Job], run: Any) -> bool:
    """Run ``batch``; False where memory ran out, once the error no longer keeps the batch's tensors alive."""
    try:
        run(batch)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True
