"""vLLM as an engine: many requests at once, soft tokens as prompt embeddings, cached prefixes.

A request with soft tokens is one prompt in vLLM's mixed form: token ids with zero rows in ``prompt_embeds``
where ``prompt_is_token_ids`` is true, and the soft rows elsewhere. vLLM's cache is keyed by ids and rows,
so the candidates of a problem share the prompt before their soft tokens.

In float32, greedy completions equal those of ``huggingface`` token for token, and so does a first token
with a separate temperature. Other samples use vLLM's generators, seeded by the request: they are reproducible
on this engine and differ from those of ``huggingface``. The other requests of a batch may change the last
bits of log-probabilities and so, in low precision, decide between nearly equal logits (docs/engines.md).
"""

from __future__ import annotations

import gc
import itertools
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from soft_reasoning.engine import loading
from soft_reasoning.engine.base import Engine, Outcome
from soft_reasoning.engine.devices import keep_freed_memory
from soft_reasoning.engine.paths import is_gguf, resolve, try_hub
from soft_reasoning.engine.running import RunningRequest
from soft_reasoning.engine.sampling import sample_tokens, settings
from soft_reasoning.engine.vllm.setup import (
    SET_HERE,
    check_options,
    import_vllm,
    load_embeddings,
    load_eos_ids,
    on_the_cpu,
    refusal,
    start_engine,
)
from soft_reasoning.types import FinishReason, Request, TopLogprobs, UserError, seed_for

CPU_OPTIONS: dict[str, Any] = {
    "enforce_eager": True,
    "block_size": 32,  # blocks of 128, the default there, would cache little
    "enable_chunked_prefill": False,  # fails there together with a seed
}

MOST_NAMED = 128
"""Maximum number of token ids for which vLLM returns log-probabilities by id."""

HOTTEST = 2.0
"""The highest temperature at which vLLM samples."""

TURN = 32  # most tokens that vLLM generates between two checks of a deadline

SAME = 0.1
"""Largest difference of log-probabilities after ids and after their embeddings, also in bfloat16."""


class VLLMEngine(Engine):
    """Runs a model with vLLM, on GPUs or the CPU.

    ``model`` is the model without its weights; operations are counted from it. ``peak_bytes`` is empty, since
    vLLM reserves its share of memory at the start.

    Args:
        path: A folder, a name on the hub, or ``demo``.
        dtype: ``auto``, ``float32``, ``bfloat16`` or ``float16``; auto is float32 on the CPU.
        revision: Branch or commit on the hub.
        trust_remote_code: Whether the model's own code may run.
        device_map: Rejected unless None or ``auto``, since vLLM does not read it.
        attn_implementation: Rejected unless None, since vLLM does not read it.
        options: Further fields of ``vllm.EngineArgs``: ``tensor_parallel_size``,
            ``pipeline_parallel_size``, ``gpu_memory_utilization``, ``max_model_len``, ``max_num_seqs``,
            ``quantization``, ...

    Example:
        >>> engine = VLLMEngine("demo")
        >>> prompt = tuple(engine.tokenizer.encode("Question: 1 + 1?"))
        >>> engine.generate([Request(prompt, max_new_tokens=8)])[0].text
    """

    writes_in_turns = True  # of ``TURN`` tokens, each with a seed of its own

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
        super().__init__()
        keep_freed_memory()
        on_cpu = on_the_cpu()
        vllm = import_vllm(on_cpu)
        check_options(options, device_map, attn_implementation)
        name = resolve(path)
        if not Path(name).exists():
            try_hub()
        if is_gguf(name):
            raise UserError(
                f"model.path: expected a folder or hub name with engine=vllm, got {name}; use engine=hf"
            )
        source = {"revision": revision, "trust_remote_code": trust_remote_code}
        self.device: torch.device = torch.device("cpu" if on_cpu else "cuda")
        weights_dtype = loading.choose_dtype(dtype, self.device)
        try:
            config = AutoConfig.from_pretrained(name, **source)
            loading.check_kind(config)
            self.tokenizer: Any = AutoTokenizer.from_pretrained(name, **source)
            self.eos_ids: frozenset[int] = load_eos_ids(name, config, self.tokenizer, source)
            try:
                self._engine = start_engine(
                    vllm,
                    model=name,
                    dtype=str(weights_dtype).removeprefix("torch."),
                    **SET_HERE,
                    **source,
                    **{**(CPU_OPTIONS if on_cpu else {}), **options},
                )
            except (TypeError, ValueError, AssertionError) as error:
                raise UserError(refusal(name, error, options)) from error
            try:
                self._set_up(name, config, source)
            except BaseException:
                self._shut_down()
                raise
        except (OSError, ValueError, ImportError, KeyError, RuntimeError) as error:
            raise UserError(loading.explain(name, error)) from error

    def _set_up(self, name: str, config: Any, source: dict[str, Any]) -> None:
        """Read what the engine needs beside vLLM, which runs."""
        model = self._engine.model_config
        self.set_embeddings(*load_embeddings(name, config, dtype=model.dtype, **source))
        with torch.device("meta"):
            self.model: Any = AutoModelForCausalLM.from_config(
                config, dtype=model.dtype, trust_remote_code=source["trust_remote_code"]
            )
        self.context_length: int = model.max_model_len
        self._dtype: torch.dtype = model.dtype
        self._most_at_once = 2 * self._engine.vllm_config.scheduler_config.max_num_seqs
        self._names = itertools.count()
        self._waiting: deque[RunningRequest] = deque()
        # By vLLM's name for a request: its ticket, and the function that reads its output.
        self._running: dict[str, tuple[int, Callable[[Any], None]]] = {}
        self._done: list[tuple[int, Outcome]] = []
        self._check_soft_tokens(config.model_type)

    def begin(self, rows: dict[int, RunningRequest]) -> None:
        """Start work on ``rows``, by ticket. Requests that only read come first."""
        super().begin(rows)
        for row in rows.values():
            if row.max_new_tokens == 0:
                self._send(row)
            else:
                self._waiting.append(row)

    def advance(self) -> list[tuple[int, Outcome]]:
        """Let vLLM work until its next outputs, and pass these to their requests."""
        while self._waiting and len(self._running) < self._most_at_once:
            self._send(self._waiting.popleft())
        for output in self._engine.step():
            if output.finished and output.request_id in self._running:
                _, receive = self._running.pop(output.request_id)
                receive(output)
        done, self._done = self._done, []
        return done

    def drop(self, tickets: Collection[int]) -> None:
        """Forget those requests of ``tickets`` that are in progress."""
        super().drop(tickets)
        self._engine.abort_request([n for n, (ticket, _) in self._running.items() if ticket in tickets])
        self._running = {n: entry for n, entry in self._running.items() if entry[0] not in tickets}
        self._waiting = deque(row for row in self._waiting if row.ticket not in tickets)
        self._done = [(ticket, outcome) for ticket, outcome in self._done if ticket not in tickets]

    def begin_run(self) -> None:
        """Forget what earlier runs cached."""
        with self.lock:
            self._engine.reset_prefix_cache()

    def close(self) -> None:
        """Release memory and devices; the engine cannot be used afterwards."""
        with self.lock:
            self.drop(list(self.queued))
        self._shut_down()
        del self._lookup, self._weight

    def _shut_down(self) -> None:
        """End vLLM."""
        self._engine.engine_core.shutdown()
        del self._engine
        gc.collect()
        from vllm.distributed import (  # pyright: ignore[reportMissingImports]
            cleanup_dist_env_and_memory,
        )

        cleanup_dist_env_and_memory()

    def _send(self, row: RunningRequest) -> None:
        """Request the rest of ``row`` from vLLM, or only the next token's log-probabilities.

        The latter is needed where vLLM would sample differently, and where logits are read.
        """
        request, count, max_tokens = row.request, len(row.ids), row.max_new_tokens
        temperature, top_k, top_p = sampling = settings(request.sampling, count)
        reads = request.next_logits is not False and not count
        hot = sampling != settings(request.sampling, count + 1) or temperature > HOTTEST
        # Before min_tokens vLLM also bars the tokenizer's end token, which the model may not use as an end.
        if max_tokens == 0 or reads or hot or count < request.min_new_tokens:
            options = self._logprob_options(row, temperature, top_k)
            params = self._params(max_tokens=1, temperature=0.0, **options)
            receive = self._receive_logprobs
        else:
            params = self._params(
                max_tokens=min(max_tokens - count, TURN if request.deadline else max_tokens),
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                seed=seed_for(request.seed, count) if count else request.seed,
                stop=list(request.stop),
                include_stop_str_in_output=True,
                logprobs=min(request.top_logprobs, self.vocabulary),
            )
            receive = self._receive_tokens
        prompt = {"prompt_token_ids": [*row.head, *row.tail, *row.ids]}
        # A request that only reads is mixed, too, so that requests with soft tokens find its cached prompt.
        if row.soft is not None or max_tokens == 0:
            prompt = self._mixed(row)
        self._add(prompt, params, row.ticket, partial(receive, row))

    def _logprob_options(self, row: RunningRequest, temperature: float, top_k: int) -> dict[str, Any]:
        """Options for the log-probabilities that vLLM returns: few, since each of them takes time."""
        request, writes = row.request, row.max_new_tokens > 0
        wanted = request.next_logits if not row.ids else False
        if isinstance(wanted, tuple) and not writes and not request.top_logprobs:
            named = sorted(set(wanted))
            if len(named) <= MOST_NAMED:
                return {"logprob_token_ids": named}
        if wanted is not False or (writes and temperature and not top_k):
            return {"logprobs": -1}
        drawn = (top_k or 1) + len(self.eos_ids) if writes else 0
        return {"logprobs": min(max(drawn, request.top_logprobs), self.vocabulary)}

    def _receive_tokens(self, row: RunningRequest, output: Any) -> None:
        """Add the tokens that vLLM generated."""
        generated, count = output.outputs[0], row.request.top_logprobs
        flat = generated.logprobs  # at each position the chosen token, then the likeliest
        for start, end in zip(flat.start_indices, flat.end_indices, strict=True) if count else ():
            part = slice(start + 1, min(end, start + 1 + count))
            top = TopLogprobs(tuple(flat.token_ids[part]), tuple(flat.logprobs[part]))
            row.top_logprobs.append(top)
        chosen = [flat.logprobs[start] for start in flat.start_indices]
        self._continue(row, output, generated.token_ids, chosen)

    def _receive_logprobs(self, row: RunningRequest, output: Any) -> None:
        """Read vLLM's log-probabilities, and draw a token from them as the other engines do."""
        flat = output.outputs[0].logprobs
        logprobs = torch.full((self.vocabulary,), -torch.inf, dtype=torch.float32)  # of those not returned
        logprobs[torch.tensor(flat.token_ids)] = torch.tensor(flat.logprobs, dtype=torch.float32)
        row.read(logprobs, 0.0)
        if not row.max_new_tokens:
            self._continue(row, output, (), ())
            return
        [(token, *_)] = sample_tokens(logprobs[None], [row], sorted(self.eos_ids))
        self._continue(row, output, [token], [float(logprobs[token])])

    def _continue(
        self, row: RunningRequest, output: Any, ids: Sequence[int], logprobs: Sequence[float]
    ) -> None:
        """Add tokens to ``row`` and complete it, or send it again if vLLM stopped where engines would not."""
        if not row.ids:
            row.cached_tokens = output.num_cached_tokens or 0
        row.ids += ids
        row.logprobs += logprobs
        completion = row.finish(self.eos_ids, self.stops)
        whole = len(row.ids) == row.max_new_tokens or row.late()
        if completion.finish_reason == FinishReason.LENGTH and not whole:
            self._send(row)
        else:
            self._done.append((row.ticket, completion))

    def _add(self, prompt: dict[str, Any], params: Any, ticket: int, receive: Callable[[Any], None]) -> None:
        name = str(next(self._names))
        [rendered] = self._engine.renderer.render_cmpl([prompt])
        self._engine.add_request(name, rendered, params)
        self._running[name] = ticket, receive

    def _mixed(self, row: RunningRequest) -> dict[str, Any]:
        """The prompt of ``row`` and its generated tokens, as ids and soft rows."""
        soft = torch.empty(0, self.hidden_size) if row.soft is None else row.soft
        soft = soft.detach().to("cpu", self._dtype)
        before, after = list(row.head), [*row.tail, *row.ids]
        rows = torch.zeros(len(before) + len(soft) + len(after), self.hidden_size, dtype=self._dtype)
        # The cache ignores the mask: minus zeros distinguish a soft row of zeros from a token's row.
        rows[len(before) : len(before) + len(soft)] = torch.where(soft == 0, -0.0, soft)
        return {
            "prompt_embeds": rows,
            "prompt_token_ids": [*before, *[0] * len(soft), *after],
            "prompt_is_token_ids": [True] * len(before) + [False] * len(soft) + [True] * len(after),
        }

    def _params(self, **settings: Any) -> Any:
        """Sampling parameters; a completion ends at any of ``eos_ids``, as in the other engines."""
        from vllm.sampling_params import (  # pyright: ignore[reportMissingImports]
            RequestOutputKind,
            SamplingParams,
        )

        return SamplingParams(
            ignore_eos=True,
            stop_token_ids=sorted(self.eos_ids),
            flat_logprobs=True,
            output_kind=RequestOutputKind.FINAL_ONLY,
            **settings,
        )

    def _check_soft_tokens(self, model_type: str) -> None:
        """Reject a model for which vLLM's embedding input differs from the output of the model's lookup."""
        ids = tuple(range(min(8, self.vocabulary)))
        logprobs: list[dict[int, float]] = []

        def read(output: Any) -> None:
            flat = output.outputs[0].logprobs
            logprobs.append(dict(zip(flat.token_ids, flat.logprobs, strict=True)))

        params = self._params(max_tokens=1, temperature=0.0, logprobs=5)
        soft = self.prepare(Request(ids[:-1], soft=self.embed(ids[-1:]), max_new_tokens=1))
        for prompt in ({"prompt_token_ids": list(ids)}, self._mixed(soft)):
            self._add(prompt, params, -1, read)
            while self._running:
                self.advance()
        by_ids, by_rows = logprobs
        if any(abs(by_rows.get(token, -torch.inf) - value) > SAME for token, value in by_ids.items()):
            raise UserError(
                f"expected vLLM to treat a token's embedding like the token, and for models of the kind "
                f"{model_type} it does not; use engine=hf"
            )
