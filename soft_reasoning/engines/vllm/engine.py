"""vLLM as an engine: many requests at once, soft tokens as prompt embeddings, prefixes cached.

A request with soft tokens is one prompt in vLLM's mixed form: token ids with zero rows in ``prompt_embeds``
where ``prompt_is_token_ids`` is true, and the soft rows elsewhere. vLLM's cache is keyed by ids and rows,
so the candidates of a problem share the prompt before their soft tokens.

In float32, greedy completions equal those of ``huggingface`` token for token, and so does a first token
with its own temperature. Other samples use vLLM's generators, seeded by the request: they are reproducible
on this engine and differ from the other's. The other requests of a batch may change the last bits of
log-probabilities and so, in low precision, decide a near tie. On a GPU the environment variable
VLLM_BATCH_INVARIANT=1 rules that out.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from threading import RLock
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from soft_reasoning.engines.base import PreparedRequest, prepare
from soft_reasoning.engines.devices import keep_freed_memory
from soft_reasoning.engines.gguf import is_gguf
from soft_reasoning.engines.huggingface import loading
from soft_reasoning.engines.paths import resolve
from soft_reasoning.engines.sampling import draw, draws_of, settings
from soft_reasoning.engines.text import StopChecker, finish
from soft_reasoning.engines.vllm.inputs import mixed_prompt, sampling_params
from soft_reasoning.engines.vllm.setup import (
    SET_HERE,
    check_model_options,
    check_options,
    eos_ids_of,
    import_vllm,
    load_embeddings,
    on_the_cpu,
    refusal,
)
from soft_reasoning.types import Completion, Prompt, Request, UserError, seed_for

CPU_OPTIONS: dict[str, Any] = {
    "enforce_eager": True,
    "block_size": 32,  # blocks of 128, the default there, would cache little
    "enable_chunked_prefill": False,  # fails there beside a seed
}

MOST_NAMED = 128
"""Most token ids for which vLLM returns log-probabilities by name."""

HOTTEST = 2.0
"""The highest temperature at which vLLM samples."""

SAME = 0.1
"""Log-probabilities after ids and after their embeddings differ by less, in bfloat16 too."""


@dataclasses.dataclass
class _Run:
    """A request in progress, and what vLLM generated for it in one or more passes."""

    ticket: int
    prepared: PreparedRequest
    ids: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[float] = dataclasses.field(default_factory=list)
    cached: int = 0
    recomputed: int = 0


class VLLMEngine:
    """Runs a model with vLLM, on GPUs or the CPU.

    ``model`` is the model without its weights, from which operations are counted. There is no
    ``peak_bytes`` or ``used_bytes``. vLLM reserves its share of memory at the start. Its statistics give the
    share of blocks in use, without cached ones and without their size, and nothing of activations.

    Args:
        path: A folder, a name on the hub, or ``demo``.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``; auto is float32 on the CPU.
        revision: Branch or commit on the hub.
        trust_remote_code: Whether the model's own code may run.
        device_map: Refused unless None or ``auto``, since vLLM does not read it.
        attn_implementation: Refused unless None, since vLLM does not read it.
        options: Further fields of ``vllm.EngineArgs``: ``tensor_parallel_size``,
            ``pipeline_parallel_size``, ``gpu_memory_utilization``, ``max_model_len``, ``max_num_seqs``,
            ``quantization``, ...

    Example:
        >>> engine = VLLMEngine("demo")
        >>> prompt = tuple(engine.tokenizer.encode("Question: 1 + 1?"))
        >>> engine.generate([Request(prompt, max_new_tokens=8)])[0].text
    """

    def __init__(
        self,
        path: str,
        *,
        dtype: str = "auto",
        revision: str | None = None,
        trust_remote_code: bool = False,
        device_map: Any = None,
        attn_implementation: str | None = None,
        **options: Any,
    ) -> None:
        keep_freed_memory()
        on_cpu = on_the_cpu()
        vllm = import_vllm(on_cpu)
        from vllm.usage.usage_lib import UsageContext  # pyright: ignore[reportMissingImports]

        check_model_options(device_map, attn_implementation)
        check_options(options, vllm.EngineArgs)
        name = resolve(path)
        if is_gguf(name):
            raise UserError(
                f"model.path: expected a folder or hub name with engine=vllm, got {name}; use engine=hf"
            )
        source = {"revision": revision, "trust_remote_code": trust_remote_code}
        self.device: torch.device = torch.device("cpu" if on_cpu else "cuda")
        wanted = loading.dtype_of(dtype, self.device)
        try:
            config = AutoConfig.from_pretrained(name, **source)
            loading.refuse(config)
            self.tokenizer: Any = AutoTokenizer.from_pretrained(name, **source)
            self.eos_ids: frozenset[int] = eos_ids_of(name, config, self.tokenizer, source)
            try:
                arguments = vllm.EngineArgs(
                    model=name,
                    dtype=str(wanted).removeprefix("torch."),
                    **SET_HERE,
                    **source,
                    **{**(CPU_OPTIONS if on_cpu else {}), **options},
                )
                self._engine = vllm.LLMEngine.from_engine_args(
                    arguments,
                    usage_context=UsageContext.LLM_CLASS,  # its defaults are for many requests at once
                )
            except (TypeError, ValueError, AssertionError) as error:
                raise UserError(refusal(name, error, options)) from error
            model = self._engine.model_config
            self._table = load_embeddings(name, config, dtype=model.dtype, **source)
            with torch.device("meta"):
                self.model: Any = AutoModelForCausalLM.from_config(
                    config, dtype=model.dtype, trust_remote_code=trust_remote_code
                )
        except (OSError, ValueError, ImportError, KeyError, RuntimeError) as error:
            raise UserError(loading.why(name, error)) from error
        self.hidden_size: int = self._table.weight.shape[1]
        self.context_length: int = model.max_model_len
        self.embedding_rms: float = self._table.rms()
        self._mixed = partial(mixed_prompt, width=self.hidden_size, dtype=model.dtype)
        self._params = partial(sampling_params, self.eos_ids)
        self._most_at_once = 2 * self._engine.vllm_config.scheduler_config.max_num_seqs
        self._stops = StopChecker(self.tokenizer)
        self._lock = RLock()  # vLLM's own loop runs in one thread
        self._numbers = itertools.count()
        self._waiting: deque[_Run] = deque()
        # By vLLM's name for a request: the ticket it is part of, and what reads its output.
        self._running: dict[str, tuple[int, Callable[[Any], None]]] = {}
        self._done: dict[int, Any] = {}  # by ticket
        try:
            self._check_soft_tokens(config.model_type)
        except BaseException:
            self.close()
            raise

    def embed(self, ids: Sequence[int]) -> Tensor:
        """(len(ids), D) float32 on the CPU, as the model's own lookup returns it (scale included)."""
        return self._table.embed(ids)

    def nearest_tokens(self, x: Tensor, count: int = 3) -> list[list[tuple[int, float]]]:
        """For each row of ``x`` (n, D) the ``count`` tokens of highest cosine similarity, best first."""
        return self._table.nearest(x, count)

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Complete ``requests``, in input order; errors as in ``engines.base.Engine``."""
        with self._lock:
            return self._finish(self.submit(requests))

    def submit(self, requests: Sequence[Request]) -> list[int]:
        """Queue ``requests``; errors are raised as in ``generate``, before any is queued."""
        with self._lock:
            runs = [_Run(next(self._numbers), self._prepare(request)) for request in requests]
            self._waiting.extend(runs)
            return [run.ticket for run in runs]

    def collect(self, tickets: Sequence[int]) -> list[tuple[int, Completion]]:
        """Work until at least one of ``tickets`` is complete and return the complete ones.

        Empty if all are cancelled.
        """
        with self._lock:
            while not (done := [ticket for ticket in tickets if ticket in self._done]):
                if not (self._waiting or self._running):
                    return []
                self._step()
            return [(ticket, self._done.pop(ticket)) for ticket in done]

    def cancel(self, tickets: Sequence[int]) -> None:
        """Drop the requests of ``tickets``."""
        dropped = set(tickets)
        with self._lock:
            self._engine.abort_request([n for n, (ticket, _) in self._running.items() if ticket in dropped])
            self._running = {n: run for n, run in self._running.items() if run[0] not in dropped}
            self._waiting = deque(run for run in self._waiting if run.ticket not in dropped)
            self._done = {ticket: done for ticket, done in self._done.items() if ticket not in dropped}

    def next_token_logits(
        self, prompts: Sequence[Prompt], ids: Sequence[int] | None = None, *, top: int | None = None
    ) -> tuple[Tensor, list[int]]:
        """Return log-probabilities, which are logits as well, ahead of the queued requests.

        It is as ``engines.base.Engine`` says. With ``top`` and without ``ids``, a token that is not among
        the ``top`` likeliest has minus infinity.
        """
        named = None if ids is None or len(set(ids)) > MOST_NAMED else sorted(set(ids))
        # Few where few are needed: vLLM looks up as many for all that it computes beside this prompt.
        likeliest = -1 if ids is not None or top is None else min(top, len(self._table))
        wanted = {"logprobs": likeliest} if named is None else {"logprob_token_ids": named}
        params = self._params(max_tokens=1, temperature=0.0, **wanted)
        chosen = slice(None) if ids is None else torch.tensor(list(ids), dtype=torch.long)
        asked = [self._prepare(Request(prompt.ids, max_new_tokens=1)) for prompt in prompts]
        tickets = [next(self._numbers) for _ in asked]

        def read(ticket: int, output: Any) -> None:
            self._done[ticket] = self._row(output)[chosen], output.num_cached_tokens or 0

        with self._lock:
            for ticket, prepared in zip(tickets, asked, strict=True):
                # In the mixed form as well, so that requests with soft tokens find their prompt in the cache.
                self._add(self._mixed(prepared), params, ticket, partial(read, ticket))
            done = self._finish(tickets)
        rows = [row for row, _ in done]
        width = len(self._table) if ids is None else len(ids)
        return torch.stack(rows) if rows else torch.empty(0, width), [cached for _, cached in done]

    def begin_run(self) -> None:
        """Forget what earlier runs cached."""
        with self._lock:
            self._engine.reset_prefix_cache()

    def close(self) -> None:
        """Release memory and devices; the engine cannot be used afterwards."""
        self._cancel_all()
        self._engine.engine_core.shutdown()
        del self._engine, self._table
        gc.collect()
        from vllm.distributed import (  # pyright: ignore[reportMissingImports]
            cleanup_dist_env_and_memory,
        )

        cleanup_dist_env_and_memory()

    def _prepare(self, request: Request) -> PreparedRequest:
        return prepare(request, self.hidden_size, self.context_length, len(self._table))

    def _cancel_all(self) -> None:
        with self._lock:
            self.cancel([run.ticket for run in self._waiting])
            self.cancel([ticket for ticket, _ in self._running.values()])
            self._done.clear()

    def _finish(self, tickets: Sequence[int]) -> list[Any]:
        """The results of ``tickets``."""
        while not all(ticket in self._done for ticket in tickets):
            self._step()
        return [self._done.pop(ticket) for ticket in tickets]

    def _step(self) -> None:
        """Let vLLM work until its next outputs, and hand them to their requests."""
        try:
            while self._waiting and len(self._running) < self._most_at_once:
                self._send(self._waiting.popleft())
            for output in self._engine.step():
                if output.finished and output.request_id in self._running:
                    _, read = self._running.pop(output.request_id)
                    read(output)
        except BaseException:  # for example interrupted: nobody will ask for the rest
            self._cancel_all()
            raise

    def _send(self, run: _Run) -> None:
        """Ask vLLM for the rest of ``run``, or for the next token's log-probabilities.

        The latter is needed where vLLM would sample differently.
        """
        request, written = run.prepared.request, len(run.ids)
        temperature, top_k, top_p = drawn = settings(request.sampling, written)
        alone = drawn != settings(request.sampling, written + 1)
        # Before min_tokens vLLM bars the tokenizer's end token too, which need not be one of the model's.
        if alone or temperature > HOTTEST or written < request.min_new_tokens:
            likeliest = top_k or (-1 if temperature else 1)
            odds = likeliest if likeliest < 0 else min(likeliest + len(self.eos_ids), len(self._table))
            params = self._params(max_tokens=1, temperature=0.0, logprobs=odds)
            receive = self._draw
        else:
            params = self._params(
                max_tokens=run.prepared.max_new_tokens - written,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                seed=seed_for(request.seed, written) if written else request.seed,
                stop=list(request.stop),
                include_stop_str_in_output=True,
                logprobs=0,
            )
            receive = self._receive
        prompt = {"prompt_token_ids": [*run.prepared.head, *run.prepared.tail, *run.ids]}
        prompt = prompt if run.prepared.soft is None else self._mixed(run.prepared, run.ids)
        self._add(prompt, params, run.ticket, partial(receive, run))

    def _receive(self, run: _Run, output: Any) -> None:
        """Take what vLLM generated."""
        wrote = output.outputs[0]
        self._continue(run, output, wrote.token_ids, wrote.logprobs.logprobs)

    def _draw(self, run: _Run, output: Any) -> None:
        """Draw one token from vLLM's log-probabilities, as the other engines do."""
        request, step = run.prepared.request, len(run.ids)
        logprobs = self._row(output)
        logits = logprobs.clone()
        if step < request.min_new_tokens:
            logits[sorted(self.eos_ids)] = -torch.inf
        temperature, top_k, top_p = settings(request.sampling, step)
        if temperature:
            u = draws_of(request)[step : step + 1]
            [token] = draw(logits[None], u, temperature=temperature, top_k=top_k, top_p=top_p).tolist()
        else:
            token = int(logits.argmax())
        self._continue(run, output, [token], [float(logprobs[token])])

    def _continue(self, run: _Run, output: Any, ids: Sequence[int], logprobs: Sequence[float]) -> None:
        """Add to ``run``; it is complete or goes on, as vLLM may stop at what the others see no end in."""
        prepared = run.prepared
        cached = output.num_cached_tokens or 0
        if run.ids:  # all that a later turn is given, but for the last token, was computed before
            run.recomputed += prepared.prompt_tokens + len(run.ids) - 1 - cached
        else:
            run.cached = cached
        run.ids += ids
        run.logprobs += logprobs
        count, text, reason = finish(
            self.tokenizer,
            run.ids,
            stop=prepared.request.stop,
            eos=self.eos_ids,
            min_new_tokens=prepared.request.min_new_tokens,
            checker=self._stops,
        )
        if reason == "length" and len(run.ids) < prepared.max_new_tokens:
            self._send(run)
            return
        self._done[run.ticket] = Completion(
            token_ids=tuple(run.ids[:count]),
            logprobs=tuple(run.logprobs[:count]),
            text=text,
            finish_reason=reason,
            prompt_tokens=prepared.prompt_tokens,
            cached_tokens=run.cached,
            recomputed_tokens=run.recomputed,
        )

    def _row(self, output: Any) -> Tensor:
        """(V,) log-probabilities of the first token; minus infinity for those that vLLM did not return."""
        found = output.outputs[0].logprobs
        row = torch.full((len(self._table),), -torch.inf)
        row[torch.tensor(found.token_ids)] = torch.tensor(found.logprobs)
        return row

    def _add(self, prompt: dict[str, Any], params: Any, ticket: int, receive: Callable[[Any], None]) -> None:
        name = str(next(self._numbers))
        [rendered] = self._engine.renderer.render_cmpl([prompt])
        self._engine.add_request(name, rendered, params)
        self._running[name] = ticket, receive

    def _check_soft_tokens(self, model_type: str) -> None:
        """Refuse a model that vLLM feeds embeddings otherwise than its own lookup returns them."""
        ids = tuple(range(min(8, len(self._table))))
        logprobs: list[dict[int, float]] = []
        params = self._params(max_tokens=1, temperature=0.0, logprobs=5)
        for prompt in (
            {"prompt_token_ids": list(ids)},
            self._mixed(self._prepare(Request(ids[:-1], soft=self.embed(ids[-1:]), max_new_tokens=1))),
        ):

            def read(output: Any) -> None:
                found = output.outputs[0].logprobs
                logprobs.append(dict(zip(found.token_ids, found.logprobs, strict=True)))

            self._add(prompt, params, next(self._numbers), read)
            while self._running:
                self._step()
        by_ids, by_rows = logprobs
        if any(abs(by_rows.get(token, -torch.inf) - value) > SAME for token, value in by_ids.items()):
            raise UserError(
                f"expected vLLM to take a token's embedding for the token, and for a model of the kind "
                f"{model_type} it does not; use engine=hf"
            )
