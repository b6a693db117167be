"""Loading a model and its tokenizer by name or folder, with a clear message for each kind of error."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig, GgufConfig
from transformers.integrations.gguf.reader import read_gguf_metadata

from soft_reasoning.checks import OptionError, local_path
from soft_reasoning.engine.devices import GAIN, is_out_of_memory, product_speeds, too_large
from soft_reasoning.engine.paths import ADVICE, is_gguf, refuse_part, resolve, try_hub
from soft_reasoning.types import UserError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LARGE = 300_000_000
"""Models with more parameters are slow in float32 on a CPU."""
QUANTIZATIONS: dict[str, dict[str, Any]] = {"4bit": {"load_in_4bit": True}, "8bit": {"load_in_8bit": True}}

log: logging.Logger = logging.getLogger(__name__)


def choose_dtype(
    name: str | torch.dtype,
    device: torch.device,
    parameters: Callable[[], int] = lambda: 0,
    width: int = 1024,
    *,
    gguf: bool = False,
) -> str | torch.dtype:
    """Return a dtype.

    ``auto`` is the dtype of the stored weights, and bfloat16 for a GGUF file, whose weights have none. On the
    CPU it is float32, or bfloat16 for models of more than ``LARGE`` ``parameters`` if products of ``width``
    inputs are faster in it here.
    """
    if isinstance(name, torch.dtype):
        return name
    if name == "auto" and device.type != "cpu":
        return torch.bfloat16 if gguf else "auto"
    if name == "auto":
        return _choose_dtype(width) if parameters() > LARGE else torch.float32
    if name not in DTYPES:
        raise OptionError("dtype", f"expected auto or one of {', '.join(DTYPES)}, got {name!r}")
    return DTYPES[name]


def _choose_dtype(width: int) -> torch.dtype:
    """The faster of bfloat16 and float32 on this CPU, by one thread: so other work does not change it."""
    speeds = product_speeds(width)
    exact, half = (speeds[dtype, 1] / 1e9 for dtype in (torch.float32, torch.bfloat16))
    chosen = torch.bfloat16 if half > GAIN * exact else torch.float32
    other = "float32 is exact" if chosen == torch.bfloat16 else "bfloat16 takes half the memory"
    kind = str(chosen).removeprefix("torch.")
    reached = f"one thread reaches {exact:.0f} GFLOPS in float32 products here and {half:.0f} in bfloat16"
    log.info("%s: %s; model.dtype=%s", kind, reached, other)
    return chosen


def is_large(model: Any) -> bool:
    """Whether ``model`` has more than ``LARGE`` parameters."""
    return sum(parameter.numel() for parameter in model.parameters()) > LARGE


def width_of(config: Any) -> int:
    """The width of the layers of the model that ``config`` describes."""
    return getattr(config.get_text_config(), "hidden_size", 1024)


def count_parameters(config: Any, trust_remote_code: bool = False) -> int:
    """The parameters of the model that ``config`` describes, which takes no memory."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    return sum(parameter.numel() for parameter in model.parameters())


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
    choose_dtype(dtype, device)  # an unknown name is rejected before anything is read
    if quantization:
        options["quantization_config"] = _quantization(path, quantization)
        options.setdefault("device_map", {"": str(device)})
    if not Path(path).exists():
        try_hub()
    if is_gguf(path):
        name, _, source["gguf_file"] = path.rpartition("/")
        options["quantization_config"] = GgufConfig(dequantize=True)
    try:
        config = AutoConfig.from_pretrained(name, **source)
        check_kind(config)
        trusted = bool(source.get("trust_remote_code"))
        parameters = partial(count_parameters, config, trusted)
        options["dtype"] = choose_dtype(dtype, device, parameters, width_of(config), gguf=is_gguf(path))
        if is_gguf(path):
            options["config"] = config  # reading it from the file again takes seconds
        tokenizer = AutoTokenizer.from_pretrained(name, **source)
        tokenizer.model_max_length = sys.maxsize  # no warnings: the engine itself rejects long prompts
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            name, output_loading_info=True, **options, **source
        )
        model, info = loaded
        check_weights(path, info)
    except Exception as error:  # a model's code may raise any error
        refuse_part(path, split_count(path))
        if isinstance(error, UserError):
            raise
        raise UserError(explain(path, error)) from error
    if "device_map" not in options:
        model = model.to(device)
    if is_gguf(path):
        model.config._name_or_path = path  # transformers names the folder, which may hold other models
        add_end_of_turn(model, path)
        kind, size = str(model.dtype).removeprefix("torch."), model.get_memory_footprint() / 1e6
        log.info(
            "%s is dequantised to %s: %.1f MB of weights; soft-reasoning convert %s FOLDER does it once",
            Path(path).name,
            kind,
            size,
            path,
        )
    return (merge_adapter(model, adapter) if adapter else model).eval(), tokenizer


def split_count(path: str) -> int:
    """Return the number of files that a model is split into, from the metadata of its GGUF file ``path``."""
    if not (is_gguf(path) and Path(path).is_file()):
        return 1
    try:
        return int(read_gguf_metadata(path)[0].get("split.count", 1))
    except Exception as error:  # a broken file, whose error is reported
        log.info("%s shows no metadata: %s", path, error)
        return 1


def add_end_of_turn(model: Any, file: str) -> None:
    """Add the end-of-turn token of a GGUF ``file`` to the generation config, which lacks it."""
    metadata, _ = read_gguf_metadata(file)
    ends = (metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot"))
    model.generation_config.eos_token_id = sorted({end for end in ends if end is not None}) or None


def merge_adapter(model: Any, adapter: str) -> Any:
    """Return ``model`` with the weights of ``adapter``, a folder or hub name, merged into its weights.

    Raises:
        UserError: If PEFT is missing, or the adapter does not fit this model.
    """
    try:
        from peft import PeftModel
    except ImportError as error:
        raise OptionError(
            "adapter", "expected the package peft, got none; pip install 'soft-reasoning[finetuning]'"
        ) from error
    name = str(local_path("adapter", adapter))
    try:
        with warnings.catch_warnings():  # PEFT uses a renamed module of transformers
            warnings.simplefilter("ignore", FutureWarning)
            return PeftModel.from_pretrained(model, name).merge_and_unload()
    except (OSError, ValueError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        raise OptionError(
            "adapter",
            f"expected a PEFT adapter of this model, got {name}, which could not be loaded "
            f"({' '.join(str(error).split())[:200]})",
        ) from error


def _quantization(path: str, settings: dict[str, Any] | str) -> Any:
    if is_gguf(path):
        raise OptionError(
            "quantization",
            f"expected null with a GGUF file, got {settings}; leave it out, as loading dequantises the file",
        )
    if isinstance(settings, str) and settings not in QUANTIZATIONS:
        raise OptionError("quantization", f"expected 4bit, 8bit or a mapping, got {settings!r}")
    try:
        return BitsAndBytesConfig(**(QUANTIZATIONS[settings] if isinstance(settings, str) else settings))
    except Exception as error:  # it may raise any error for the user's arguments
        raise UserError(explain(path, error)) from error


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
            f"{len(wrong)} are missing or of another shape "
            f"({', '.join(wrong[:3])}{', ...' if len(wrong) > 3 else ''}); a model without its "
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
    text = " ".join(str(error).split())
    if "Unrecognized configuration class" in text:
        kind = text.partition("configuration class")[2].split("for this kind")[0].strip(" '<>") or name
        return (
            f"expected a causal language model, got {name} ({kind[:120]}), which transformers lists as "
            "another kind, such as vision-language or encoder; choose the text model that it is built on"
        )
    if isinstance(error, ImportError) or "pip install" in text:
        return (
            f"model {name}: its settings need a package that is missing ({text[:200]}); install it "
            "('soft-reasoning[large]' has accelerate and bitsandbytes, 'soft-reasoning[gguf]' the reader of "
            "GGUF files), or change model.quantization, model.device_map or model.attn_implementation"
        )
    if Path(name).is_file():
        return (
            f"expected a GGUF file of an architecture that transformers can read, got {name}, which could "
            f"not be loaded ({text[:200]}); give a folder or hub name with the model's safetensors weights"
        )
    if Path(name).is_dir():
        return (
            f"expected a complete model in {name}, got one that could not be loaded ({text[:200]}); {ADVICE}"
        )
    return (
        f"expected the model {name} on the hub or in the local cache, got an error ({text[:200]}); "
        f"connect or set HF_HOME to a cache that holds it, log in if it is gated (hf auth login), or {ADVICE}"
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
    except (
        Exception
    ) as error:  # a template may raise any error; those of a prompt are reported when it is built
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
