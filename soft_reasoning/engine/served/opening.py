"""Three ways to get a server: a URL, vLLM that is started here, or llama.cpp that is started here."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
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
from soft_reasoning.engine.served.engine import ServedEngine, model_card
from soft_reasoning.engine.served.messages import MessageEngine
from soft_reasoning.engine.served.starting import StartedServer
from soft_reasoning.engine.served.tokens import TokenEngine
from soft_reasoning.types import UserError

NEEDED = {
    "enable_prompt_embeds": True,
    "max_logprobs": -1,  # a method's probabilities are sums over all tokens
    "generation_config": "vllm",  # only our parameters determine sampling
    "enable_prompt_tokens_details": True,
    "trust_request_chat_template": True,  # a soft token stands in a text that is not a chat
}
"""Flags of vLLM's server that the engine sets itself."""


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
        url: Where its addresses are, such as ``http://localhost:8000/v1``.
        tokenizer: The model's folder, hub name or GGUF file here, of which the tokenizer is read, and, where
            the server takes soft tokens, the embedding table. None is the folder that vLLM names, if it is
            here; otherwise messages are sent.
        name: The model's name at the server, needed if it serves several.
        dtype: Of the embedding table.
        revision: Branch or commit on the hub.
        trust_remote_code: Whether the model's own code may run.
        client: ``concurrency``, ``timeout``, ``retries`` and ``key_variable`` of
            :class:`~soft_reasoning.engine.served.client.Server`.
    """
    source = {"revision": revision, "trust_remote_code": trust_remote_code}
    return _opened(lambda: url, client, tokenizer, dtype, source, name)


def vllm(
    path: str,
    *,
    dtype: str = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    environment: str | None = None,
    concurrency: int = 256,
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
        flags: Further flags of ``vllm serve``, such as ``tensor_parallel_size``; True and False become
            ``--flag`` and ``--no-flag``, and None is left out.
    """
    if fixed := NEEDED.keys() & flags.keys():
        raise OptionError(min(fixed), "this flag is set by the engine; remove it")
    name, source = resolve(path), {"revision": revision, "trust_remote_code": trust_remote_code}
    if is_gguf(name):
        raise OptionError("path", f"expected a folder or hub name, got {path}; use engine=llamacpp")
    python = Path(environment).expanduser() / "bin" / "python" if environment else sys.executable
    # The module and not the command vllm, which a build for CPUs lacks.
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", name]
    command += ["--host", "127.0.0.1", "--port", "{port}", "--dtype", dtype]
    trusted = trust_remote_code or None
    for flag, value in {**NEEDED, "revision": revision, "trust_remote_code": trusted, **flags}.items():
        word = flag.replace("_", "-")
        if isinstance(value, bool):
            command.append(f"--{word}" if value else f"--no-{word}")
        elif value is not None:
            command += [f"--{word}", str(value)]
    return _opened(partial(StartedServer, "vllm", command), {"concurrency": concurrency}, name, dtype, source)


def llamacpp(
    path: str, *, parallel: int = 8, context: int = 4096, threads: int | None = None, **settings: Any
) -> ServedEngine:
    """Start llama.cpp's server on a GGUF file, quantised as it is, and return its engine.

    Args:
        path: The file.
        parallel: Number of requests that are decoded together.
        context: Maximum number of tokens of each, prompt and completion together.
        threads: CPU threads; None is llama.cpp's default.
        settings: Further fields of xllamacpp's ``CommonParams``, such as ``n_gpu_layers``.
    """
    file = resolve(path)
    if not is_gguf(file) or not Path(file).is_file():
        raise OptionError("path", f"expected a GGUF file of this machine with engine=llamacpp, got {path}")
    loading.check_whole(file)
    own = {"model.path": file, "n_parallel": parallel, "n_ctx": parallel * context}
    given = {**own, "cpuparams.n_threads": threads, **settings, "port": "{port}"}
    script = str(Path(__file__).with_name("llamacpp_server.py"))
    words = [f"{field}={value}" for field, value in given.items() if value is not None]
    start = partial(StartedServer, "llamacpp", [sys.executable, script, *words])
    source = {"revision": None, "trust_remote_code": False}
    return _opened(start, {"concurrency": parallel}, file, "auto", source)


def _opened(
    start: Callable[[], str | StartedServer],
    client: Mapping[str, Any],
    tokenizer: str | None,
    dtype: str,
    source: Mapping[str, Any],
    name: str | None = None,
) -> ServedEngine:
    """Return the engine of a server, by its URL or ``start``ed here; on an error all is closed again."""
    with ExitStack() as closing:
        begun = start()
        if isinstance(begun, StartedServer):
            closing.callback(begun.close)
        server = Server(begun if isinstance(begun, str) else begun.url, **client)
        closing.callback(server.close)
        card = model_card(server, name)
        if tokenizer is None and card.get("root") and Path(str(card["root"])).is_dir():
            tokenizer = str(card["root"])
        if tokenizer is None:
            engine = MessageEngine(server, card)
        else:
            files = load_files(tokenizer, source)
            table = None if is_gguf(files.name) else partial(load_embeddings, files, dtype, source)
            engine = TokenEngine(server, card, files.tokenizer, files.eos_ids, table)
            if isinstance(begun, StartedServer):
                weights = weights_fingerprint(files.name, source["revision"])
                engine.facts = {**engine.facts, "weights": weights}
        engine.closing = closing.pop_all()
        return engine


class LocalFiles(NamedTuple):
    """What of a served model is here."""

    name: str
    config: Any
    tokenizer: Any
    eos_ids: frozenset[int]


def load_files(path: str, source: Mapping[str, Any]) -> LocalFiles:
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


def _generation(name: str, source: Mapping[str, Any]) -> Any:
    """The generation config of a model; None where it has none."""
    if is_gguf(name):
        return loading.generation_of_gguf(name)
    try:
        return GenerationConfig.from_pretrained(name, revision=source["revision"])
    except OSError:  # not every model has such a file
        return None


def load_embeddings(files: LocalFiles, dtype: str, source: Mapping[str, Any]) -> tuple[Any, Tensor]:
    """Load lookup and rows of a model's embedding table; its layers are left out.

    The rows come from its lookup, so a scale that it applies (Gemma's) is included.
    """
    config = deepcopy(files.config)
    text = config.get_text_config()
    text.num_hidden_layers = 0
    if getattr(text, "layer_types", None):
        text.layer_types = []
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # embeddings are stored as they are
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # of the weights that are left out
    try:
        model = AutoModel.from_pretrained(files.name, config=config, dtype=dtype, **source)
    finally:
        transformers_logging.set_verbosity(verbosity)
    lookup = model.get_input_embeddings()
    with torch.inference_mode():
        rows = torch.cat([lookup(ids) for ids in torch.arange(lookup.weight.shape[0]).split(CHUNK)])
    return rows.__getitem__, rows
