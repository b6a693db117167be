"""Loading a model and its tokenizer by name or folder, with a clear message for each kind of error."""

from __future__ import annotations

import logging
import math
import struct
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    GenerationConfig,
    GgufConfig,
)
from transformers.integrations.gguf.reader import read_gguf_metadata

from soft_reasoning.checks import OptionError, local_path
from soft_reasoning.engine.devices import is_out_of_memory, too_large
from soft_reasoning.engine.paths import ADVICE, is_gguf, resolve, try_hub
from soft_reasoning.types import UserError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

log: logging.Logger = logging.getLogger(__name__)


def choose_dtype(name: str | torch.dtype, device: torch.device, *, gguf: bool = False) -> str | torch.dtype:
    """Return a dtype: ``auto`` is float32 on the CPU, else that of the stored weights.

    The weights of a GGUF file have none; elsewhere than on the CPU they become bfloat16.
    """
    if isinstance(name, torch.dtype):
        return name
    if name == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16 if gguf else "auto"
    if name not in DTYPES:
        raise OptionError("dtype", f"expected auto or one of {', '.join(DTYPES)}, got {name!r}")
    return DTYPES[name]


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
    """Return ``(model, tokenizer)`` in evaluation mode on ``device``, or distributed by ``device_map``.

    ``adapter`` (a folder or hub name of PEFT weights) is merged into the model's weights. ``source`` holds
    ``revision`` and ``trust_remote_code``.

    Raises:
        UserError: If the model or the adapter cannot be loaded.
    """
    name = path = resolve(path)
    settings = {"attn_implementation": attn_implementation, "device_map": device_map}
    options: dict[str, Any] = {key: value for key, value in settings.items() if value}
    options["dtype"] = choose_dtype(dtype, device, gguf=is_gguf(path))
    if not Path(path).exists():
        try_hub()
    try:
        if quantization:
            options["quantization_config"] = _quantization(path, quantization)
            options.setdefault("device_map", {"": str(device)})
        if is_gguf(path):
            if Path(path).is_file():
                check_whole(path)
            name, _, source["gguf_file"] = path.rpartition("/")
            options["quantization_config"] = GgufConfig(dequantize=True)
        config = AutoConfig.from_pretrained(name, **source)
        check_kind(config)
        if is_gguf(path):
            options["config"] = config  # reading it from the file again takes seconds
        tokenizer = AutoTokenizer.from_pretrained(name, **source)
        tokenizer.model_max_length = sys.maxsize  # no warnings: the engine itself rejects long prompts
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            name, output_loading_info=True, **options, **source
        )
        model, info = loaded
        check_weights(path, info)
    except UserError:
        raise
    except Exception as error:  # a model's code may raise any error
        raise UserError(explain(path, error)) from error
    if "device_map" not in options:
        model = model.to(device)
    if is_gguf(path):
        model.config._name_or_path = path  # transformers names the folder, which may hold other models
        model.generation_config.eos_token_id = generation_of_gguf(path).eos_token_id
        size = model.get_memory_footprint() / 1e6
        log.info("%s is dequantised to %s: %.1f MB of weights", Path(path).name, model.dtype, size)
    return (merge_adapter(model, adapter) if adapter else model).eval(), tokenizer


def check_whole(file: str) -> None:
    """Raise an OptionError if a GGUF file ends before its last tensor."""
    from transformers.integrations.gguf import reader  # not public: only GGUF files depend on it
    from transformers.integrations.gguf.dequant import GGML_BLOCK

    size, needed = Path(file).stat().st_size, 0
    sizes = {0: (1, 4), 1: (1, 2), 30: (1, 2), **GGML_BLOCK}  # elements and bytes, first of plain floats
    try:
        blob = reader._mapped(file)  # pyright: ignore[reportPrivateUsage]
        metadata, count, at = reader._read_metadata(blob, file)  # pyright: ignore[reportPrivateUsage]
        tensors, at = reader._read_tensor_table(blob, count, at)  # pyright: ignore[reportPrivateUsage]
        start = at + -at % metadata.get("general.alignment", 32)
        for _, shape, kind, offset in tensors:
            block, width = sizes.get(kind, (1, 0))
            needed = max(needed, start + offset + math.prod(shape) // block * width)
    except struct.error:  # it ends within the header
        needed = size + 1
    if size < needed:
        raise OptionError(
            "path", f"expected a whole GGUF file, got {file}, cut off at {size} bytes; download it again"
        )


def generation_of_gguf(file: str) -> GenerationConfig:
    """Return a generation config with the end tokens of a GGUF ``file``, also that of a turn."""
    metadata, _ = read_gguf_metadata(file)
    ends = (metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot"))
    return GenerationConfig(eos_token_id=sorted({end for end in ends if end is not None}) or None)


def merge_adapter(model: Any, adapter: str) -> Any:
    """Return ``model`` with the weights of ``adapter``, a folder or hub name, merged into its weights.

    Raises:
        UserError: If PEFT is missing, or the adapter does not fit this model.
    """
    name = str(local_path("adapter", adapter))
    try:
        from peft import PeftModel

        with warnings.catch_warnings():  # PEFT uses a renamed module of transformers
            warnings.simplefilter("ignore", FutureWarning)
            return PeftModel.from_pretrained(model, name).merge_and_unload()
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        raise OptionError(
            "adapter",
            f"expected a PEFT adapter of this model, and the package peft, got {name} and an error "
            f"({' '.join(str(error).split())[:200]}); pip install peft accelerate",
        ) from error


def _quantization(path: str, settings: dict[str, Any] | str) -> BitsAndBytesConfig:
    if is_gguf(path):
        raise OptionError(
            "quantization",
            f"expected null with a GGUF file, got {settings}; leave it out, as loading dequantises the file",
        )
    if isinstance(settings, str):
        if settings not in ("4bit", "8bit"):
            raise OptionError("quantization", f"expected 4bit, 8bit or a mapping, got {settings!r}")
        settings = {f"load_in_{settings}": True}
    return BitsAndBytesConfig(**settings)


def check_weights(name: str, info: Mapping[str, Any]) -> None:
    """Reject a model with missing or misshapen weights, which transformers would draw at random.

    ``info`` is the loading info of ``from_pretrained``.

    Raises:
        UserError: For such a model.
    """
    wrong = sorted(str(key) for key in info.get("missing_keys") or ())
    wrong += [str(key[0] if isinstance(key, tuple) else key) for key in info.get("mismatched_keys") or ()]
    if wrong:
        raise UserError(
            f"expected the weights of a whole causal language model in {name}, got a model of which "
            f"{len(wrong)} are missing or of another shape, such as {wrong[0]}; a model without its "
            f"language-model head, or one for classification, cannot generate; {ADVICE}"
        )


def check_kind(config: Any) -> None:
    """Reject a kind of model that cannot read a soft token before its answer.

    Raises:
        UserError: For such a model.
    """
    text = config.get_text_config()
    if getattr(text, "hidden_size_per_layer_input", None):
        raise UserError(
            f"expected a model that reads embeddings alone, got {config.model_type}, whose layers also look "
            "up per-layer embeddings by token id: a soft token has no id; choose another model"
        )
    if getattr(config, "is_encoder_decoder", False):
        raise UserError(
            f"expected a decoder-only language model, got {config.model_type}, an encoder-decoder: its "
            "answer starts in the decoder, where no soft token can be placed; choose another model"
        )


def explain(name: str, error: Exception) -> str:
    """Describe an error of ``from_pretrained`` in one line: what was expected, what happened, and the fix."""
    if is_out_of_memory(error):
        return too_large(name, error)
    text = " ".join(str(error).split())[:200]
    if isinstance(error, ImportError) or "pip install" in str(error):
        return (
            f"model {name}: its settings need a package that is missing ({text}); pip install accelerate "
            "bitsandbytes (for a GGUF file gguf), or change model.quantization, model.device_map or "
            "model.attn_implementation"
        )
    return (
        f"expected a complete causal language model that transformers can load, got {name} and an error "
        f"({text}); {ADVICE}"
    )


def eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return all ids that end an answer.

    They are those of the generation config (else the config, or its text part in a composed model) and of
    the tokenizer, and the token that the chat template puts behind an assistant's message. If the
    token that ends the model's turn were missing, the model would go on with the next turn.
    """
    configs = [getattr(model, "generation_config", None)]
    if getattr(configs[0], "eos_token_id", None) is None:
        configs = [model.config, model.config.get_text_config()]
    ends = end_of_turn(tokenizer)
    for source in (*configs, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        ends |= {ids} if isinstance(ids, int) else set(ids or ())
    return frozenset(ends)


def end_of_turn(tokenizer: Any) -> set[int]:
    """The special token that the chat template puts behind an assistant's message; empty if there is none."""
    if not getattr(tokenizer, "chat_template", None):
        return set()
    text = "Aye, zinc"
    messages = [{"role": "user", "content": "7"}, {"role": "assistant", "content": text}]
    try:
        rendered = tokenizer.apply_chat_template(messages, tokenize=False)
    except Exception as error:  # a template may raise any; those of a prompt are reported when it is built
        log.info("the chat template shows no end of a turn: %s", error)
        return set()
    _, shown, after = rendered.rpartition(text)
    if not shown or not after:
        return set()
    first = set(tokenizer.encode(after, add_special_tokens=False)[:1])
    return first & {id for id, token in tokenizer.added_tokens_decoder.items() if token.special}


def context_length(config: Any) -> int:
    """Return the maximum number of positions of a model; 2**31 if its config does not specify it."""
    names = ("max_position_embeddings", "max_seq_len", "seq_length")  # the last two: MPT, Bloom
    values = (getattr(config.get_text_config(), name, None) for name in names)
    return next((value for value in values if isinstance(value, int) and value > 0), 2**31)
