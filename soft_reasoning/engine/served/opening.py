"""Three ways to get a server: a URL, vLLM that is started here, or llama.cpp that is started here."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from copy import deepcopy
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer, GenerationConfig
from transformers.utils import logging as transformers_logging

from soft_reasoning.checks import OptionError
from soft_reasoning.engine import loading
from soft_reasoning.engine.base import CHUNK
from soft_reasoning.engine.paths import is_gguf, resolve, try_hub, weights_fingerprint
from soft_reasoning.engine.served.client import Server
from soft_reasoning.engine.served.engine import ServedEngine, TokenEngine
from soft_reasoning.engine.served.messages import MessageEngine
from soft_reasoning.engine.served.starting import StartedServer, start_llamacpp, start_vllm
from soft_reasoning.types import UserError

NEEDED = {
    "enable_prompt_embeds": True,
    "max_logprobs": -1,  # a method's probabilities are sums over all tokens
    "generation_config": "vllm",  # only our parameters determine sampling
    "enable_prompt_tokens_details": True,
}
"""Flags of vLLM's server that the engine sets itself."""

log: logging.Logger = logging.getLogger(__name__)


def served(
    url: str,
    *,
    tokenizer: str | None = None,
    name: str | None = None,
    dtype: str = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    **client: Any,
) -> ServedEngine:
    """Return the engine of a server that runs already.

    Args:
        url: Where the addresses are, such as ``http://localhost:8000/v1``.
        tokenizer: The model's folder, hub name or GGUF file here, of which the tokenizer is read, and, where
            the server takes soft tokens, the embedding table. None is the model that vLLM names, if it is
            here; otherwise messages are sent.
        name: The model's name at the server, needed if it serves several.
        dtype: Of the embedding table.
        revision: Branch or commit on the hub.
        trust_remote_code: Whether the model's own code may run.
        client: ``concurrency``, ``timeout``, ``retries`` and ``key_variable`` of
            :class:`~soft_reasoning.engine.served.client.Server`.
    """
    source = {"revision": revision, "trust_remote_code": trust_remote_code}
    return _opened(Server(url, **client), tokenizer, name, dtype, source)


def vllm(
    path: str,
    *,
    dtype: str = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    environment: str | None = None,
    concurrency: int = 256,
    timeout: float = 600.0,
    **flags: Any,
) -> ServedEngine:
    """Start vLLM's server on a model, and return its engine.

    Args:
        path: A folder, a name on the hub, or ``demo``.
        dtype: The model's dtype.
        revision: Branch or commit on the hub.
        trust_remote_code: Whether the model's own code may run.
        environment: The folder of the virtual environment with vLLM; None is this environment.
        concurrency: Maximum number of requests in flight.
        timeout: Seconds to wait for a reply.
        flags: Further flags of ``vllm serve``: ``tensor_parallel_size``, ``max_model_len``, ...
    """
    if fixed := NEEDED.keys() & flags.keys():
        raise OptionError(min(fixed), "this flag is set by the engine; remove it")
    name = resolve(path)
    if is_gguf(name):
        raise OptionError(
            "path", f"expected a folder or hub name with engine=vllm, got {path}; use engine=llamacpp"
        )
    source = {"revision": revision, "trust_remote_code": trust_remote_code}
    flags = {
        **NEEDED,
        "dtype": dtype,
        "revision": revision,
        **({"trust_remote_code": True} if trust_remote_code else {}),
        **flags,
    }
    server = start_vllm(name, flags, environment)
    return _opened(_client(server, concurrency, timeout), name, None, dtype, source, server)


def llamacpp(
    path: str,
    *,
    parallel: int = 8,
    context: int = 4096,
    threads: int | None = None,
    timeout: float = 600.0,
    **settings: Any,
) -> ServedEngine:
    """Start llama.cpp's server on a GGUF file, quantised as it is, and return its engine.

    Args:
        path: The file.
        parallel: Number of requests that are decoded together.
        context: Maximum number of tokens of each, prompt and completion together.
        threads: CPU threads; None is llama.cpp's default.
        timeout: Seconds to wait for a reply.
        settings: Further fields of xllamacpp's ``CommonParams``: ``n_gpu_layers``, ``flash_attn_type``, ...
    """
    file = resolve(path)
    if not is_gguf(file) or not Path(file).is_file():
        raise OptionError("path", f"expected a GGUF file of this machine with engine=llamacpp, got {path}")
    settings = {
        "n_parallel": parallel,
        "n_ctx": parallel * context,
        "cpuparams.n_threads": threads,
        **settings,
    }
    server = start_llamacpp(file, settings)
    source = {"revision": None, "trust_remote_code": False}
    return _opened(_client(server, parallel, timeout), file, None, "auto", source, server)


def _client(server: StartedServer, concurrency: int, timeout: float) -> Server:
    try:
        return Server(server.url, concurrency=concurrency, timeout=timeout)
    except BaseException:
        server.close()
        raise


def _opened(
    server: Server,
    tokenizer: str | None,
    name: str | None,
    dtype: str,
    source: dict[str, Any],
    started: StartedServer | None = None,
) -> ServedEngine:
    """Return the engine of ``server``; it, and the server that was ``started``, are closed on any error."""
    with ExitStack() as closing:
        if started is not None:
            closing.callback(started.close)
        closing.callback(server.close)
        if tokenizer is None:
            engine = MessageEngine(server, name)
            engine.closing = closing.pop_all()
            return engine
        model = load_files(tokenizer, source)
        embeddings = partial(load_embeddings, model.name, model.config, dtype, **source)
        engine = TokenEngine(
            server, model.tokenizer, model.eos_ids, None if is_gguf(model.name) else embeddings, name
        )
        if started is not None:
            engine.facts = {**engine.facts, "weights": weights_fingerprint(model.name, source["revision"])}
        engine.closing = closing.pop_all()
        return engine


class LocalFiles(NamedTuple):
    """What of a served model is here."""

    name: str
    config: Any
    tokenizer: Any
    eos_ids: frozenset[int]


def load_files(path: str, source: dict[str, Any]) -> LocalFiles:
    """Load the configuration and the tokenizer of a model: a folder, a name on the hub or a GGUF file."""
    name = resolve(path)
    if not Path(name).exists():
        try_hub()
    options = dict(source)
    folder = name
    if is_gguf(name):
        folder, _, options["gguf_file"] = name.rpartition("/")
    try:
        config = None  # of a GGUF file nothing else is needed, and reading it takes seconds
        if not is_gguf(name):
            config = AutoConfig.from_pretrained(folder, **options)
            loading.check_kind(config)
        tokenizer = AutoTokenizer.from_pretrained(folder, **options)
        generation = _generation(name, source)
    except (OSError, ValueError, ImportError, KeyError, RuntimeError) as error:
        raise UserError(loading.explain(name, error)) from error
    model = SimpleNamespace(config=config, generation_config=generation)
    return LocalFiles(name, config, tokenizer, loading.eos_ids(model, tokenizer))


def _generation(name: str, source: dict[str, Any]) -> Any:
    """The generation config of a model; None where it has none."""
    if is_gguf(name):
        return loading.generation_of_gguf(name)
    try:
        return GenerationConfig.from_pretrained(name, revision=source["revision"])
    except OSError:  # not every model has such a file
        return None


def load_embeddings(name: str, config: Any, dtype: str, **source: Any) -> tuple[Any, Tensor]:
    """Load lookup and rows of the embedding table of the model ``name``; its layers are left out.

    The rows come from its lookup, so a scale that it applies (Gemma's) is included.
    """
    config = deepcopy(config)
    text = config.get_text_config()
    text.num_hidden_layers = 0
    if getattr(text, "layer_types", None):
        text.layer_types = []
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # embeddings are stored as they are
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # of the weights that are left out
    try:
        model = AutoModel.from_pretrained(name, config=config, dtype=dtype, **source)
    finally:
        transformers_logging.set_verbosity(verbosity)
    lookup = model.get_input_embeddings()
    with torch.inference_mode():
        rows = torch.cat([lookup(ids) for ids in torch.arange(lookup.weight.shape[0]).split(CHUNK)])
    return rows.__getitem__, rows
