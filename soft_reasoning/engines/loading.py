"""Loading a model and its tokenizer by name or folder, with one clear line for each kind of error."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from soft_reasoning.engines.adapter import merged
from soft_reasoning.engines.devices import is_out_of_memory, too_large
from soft_reasoning.engines.gguf import gguf_arguments, is_gguf, log_memory, why_not_gguf
from soft_reasoning.engines.paths import ADVICE, resolve
from soft_reasoning.types import UserError


def dtype_of(name: str | torch.dtype, device: torch.device) -> str | torch.dtype:
    """Return a dtype; ``auto`` is float32 on the CPU and the dtype of the stored weights on other devices."""
    if isinstance(name, torch.dtype):
        return name
    if name == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name not in known:
        raise UserError(f"expected model.dtype to be auto or one of {', '.join(known)}, got {name!r}")
    return known[name]


def load(
    path: str,
    device: torch.device,
    dtype: str | torch.dtype = "auto",
    attn_implementation: str | None = None,
    device_map: Any = None,
    quantization: dict[str, Any] | str | None = None,
    adapter: str | None = None,
    **source: Any,
) -> tuple[Any, Any]:
    """Return ``(model, tokenizer)`` in evaluation mode on ``device``, or spread as ``device_map`` says.

    ``adapter`` (a folder or hub name of PEFT weights) is merged into the model's weights. ``source`` holds
    ``revision`` and ``trust_remote_code``.

    Raises:
        UserError: If the model or the adapter cannot be loaded.
    """
    name = path = resolve(path)
    options: dict[str, Any] = {"dtype": dtype_of(dtype, device)}
    if is_gguf(path):
        name, file, dequantised = gguf_arguments(path, quantization)
        source |= file
        options |= dequantised
    options |= source
    given = {"attn_implementation": attn_implementation, "device_map": device_map}
    options |= {key: value for key, value in given.items() if value}
    try:
        if quantization:
            options["quantization_config"] = _quantization(quantization)
            options.setdefault("device_map", {"": str(device)})
        config = AutoConfig.from_pretrained(name, **source)
        refuse(config)
        if is_gguf(path):
            options["config"] = config  # reading it from the file again takes seconds
        tokenizer = AutoTokenizer.from_pretrained(name, **source)
        tokenizer.model_max_length = sys.maxsize  # no warnings: the engine itself refuses long prompts
        loaded: Any = AutoModelForCausalLM.from_pretrained(name, output_loading_info=True, **options)
        model, found = loaded
        check_weights(path, found)
    except UserError:
        raise
    except Exception as error:  # any error of a foreign model is the reason to give
        raise UserError(why(path, error)) from error
    if "device_map" not in options:
        model = model.to(device)
    if is_gguf(path):
        log_memory(path, model)
    if adapter:
        model = merged(model, adapter)
    return model.eval(), tokenizer


def check_weights(name: str, found: Mapping[str, Any]) -> None:
    """Refuse a model with missing or misshapen weights, which transformers would draw at random.

    ``found`` is the loading info of ``from_pretrained``.

    Raises:
        UserError: For such a model.
    """
    wrong = sorted(str(key) for key in found.get("missing_keys") or ())
    wrong += [str(key[0] if isinstance(key, tuple) else key) for key in found.get("mismatched_keys") or ()]
    if wrong:
        raise UserError(
            f"expected the weights of a whole causal language model in {name}, and {len(wrong)} are missing "
            f"or of another shape ({', '.join(wrong[:3])}{', ...' if len(wrong) > 3 else ''}): a model "
            f"without its language-model head, or one for classification, cannot generate; {ADVICE}"
        )


def refuse(config: Any) -> None:
    """Refuse a kind of model that takes no soft token before its answer.

    Raises:
        UserError: For such a model.
    """
    text = config.get_text_config()
    if getattr(text, "hidden_size_per_layer_input", None):
        raise UserError(
            f"expected a model that reads embeddings alone, got {config.model_type}, whose layers also look "
            "up embeddings of their own by token id (per-layer embeddings): a soft token has no id; choose "
            "another model"
        )
    if getattr(config, "is_encoder_decoder", False):
        raise UserError(
            f"expected a decoder-only language model, got {config.model_type}, an encoder-decoder: its "
            "answer starts from a decoder of its own, where no soft token can be placed; choose another model"
        )


def _quantization(asked: dict[str, Any] | str) -> Any:
    from transformers import BitsAndBytesConfig

    if isinstance(asked, str):
        known = {"4bit": {"load_in_4bit": True}, "8bit": {"load_in_8bit": True}}
        if asked not in known:
            raise UserError(f"expected model.quantization to be 4bit, 8bit or a mapping, got {asked!r}")
        asked = known[asked]
    return BitsAndBytesConfig(**asked)


def why(name: str, error: Exception) -> str:
    """Explain an error of ``from_pretrained`` in one line: what was expected, what came, how to fix it."""
    if is_out_of_memory(error):
        return too_large(name, error)
    if is_gguf(name) and (unsupported := why_not_gguf(name, error)):
        return unsupported
    text = " ".join(str(error).split())
    if "Unrecognized configuration class" in text:
        kind = text.partition("configuration class")[2].split("for this kind")[0].strip(" '<>") or name
        return (
            f"expected a causal language model, got {name} ({kind[:120]}), which transformers does not list "
            "as one: a vision-language or encoder model, say; choose the text model that it is built on"
        )
    if isinstance(error, ImportError) or "pip install" in text:
        return (
            f"model {name}: its settings need a package that is missing ({text[:200]}); install it "
            "('soft-reasoning[large]' brings accelerate and bitsandbytes), or change model.quantization, "
            "model.device_map or model.attn_implementation"
        )
    if Path(name).is_dir():
        return f"expected a complete model in {name}, and could not load it ({text[:200]}); {ADVICE}"
    return (
        f"expected the model {name} on the hub or in the local cache, and could not load it ({text[:200]}); "
        f"connect or set HF_HOME to a cache that holds it, log in if it is gated (hf auth login), or {ADVICE}"
    )


def eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return all end-of-sequence ids: the generation config's, else the config's, else the tokenizer's."""
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        if ids is not None:
            return frozenset([ids] if isinstance(ids, int) else ids)
    return frozenset()


def context_length(config: Any) -> int:
    """Return the most positions of a model; unbounded (2**31) if its config does not say."""
    text = config.get_text_config()
    names = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len", "seq_length")
    for name in names:
        value = getattr(text, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return 2**31
