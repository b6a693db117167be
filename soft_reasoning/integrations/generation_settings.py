"""What the arguments and the configuration of ``model.generate`` mean for a search."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformers import GenerationConfig

from soft_reasoning.types import UserError

ACTS = (
    "max_new_tokens", "max_length", "do_sample", "temperature", "top_k", "top_p", "max_time", "stop_strings",
    "eos_token_id", "pad_token_id", "return_dict_in_generate",
)  # fmt: skip
"""Options of generation that act."""

INDIFFERENT = ("bos_token_id", "use_cache", "transformers_version", "_from_model_config")
"""Options that change no token."""

NEUTRAL: dict[str, Any] = {
    "num_beams": 1, "num_return_sequences": 1, "repetition_penalty": 1.0, "length_penalty": 1.0,
    "no_repeat_ngram_size": 0, "min_length": 0, "min_new_tokens": 0, "typical_p": 1.0, "guidance_scale": 1.0,
}  # fmt: skip
"""Values of other options that ask for nothing; the others' are None and False."""

MOST = 300
"""Most new tokens where neither the call nor the model's own configuration says."""

SAMPLED = ("soft_reasoning", "random_embedding", "verified_sampling")
"""Methods whose sampling is the group ``decoding``."""

GREEDY = ("cot", "cot_decoding", "verifier_only")
"""Methods that do not sample."""

OF_THE_HUB = ("revision", "code_revision", "token", "cache_dir", "local_files_only", "force_download")
"""Where transformers finds the code of ``custom_generate``."""


@dataclass(frozen=True)
class Settings:
    """What a call of ``generate`` asks for.

    Attributes:
        max_new_tokens: Most new tokens; None is not said.
        max_length: Most tokens of a row with its prompt; None is not said.
        do_sample: Whether the call asks for sampling; None is the method's own way.
        temperature: None is the method's own.
        top_k: Most likely tokens that are sampled from; None is the method's own.
        top_p: Their total probability; None is the method's own.
        max_seconds: Most seconds, which the rows share.
        stop: Texts that end a solution.
        eos_ids: Tokens that end a completion.
        pad_id: Fills rows up.
        pad_given: Whether the call or the model names a padding token.
        return_dict: Whether the output is an object.
    """

    max_new_tokens: int | None
    max_length: int | None
    do_sample: bool | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    max_seconds: float | None
    stop: tuple[str, ...]
    eos_ids: frozenset[int]
    pad_id: int
    pad_given: bool
    return_dict: bool

    def most_tokens(self, length: int) -> int:
        """Return the most new tokens after prompts of ``length`` tokens.

        Raises:
            UserError: If there is no room for one.
        """
        if self.max_new_tokens is not None:
            return self.max_new_tokens
        if self.max_length is None:
            return MOST
        if self.max_length <= length:
            raise UserError(
                f"generate: expected max_length above the {length} tokens of input_ids, got "
                f"{self.max_length}; set max_new_tokens"
            )
        return self.max_length - length

    def sampling(self, method: str) -> list[str]:
        """Return the overrides of the configuration that make ``method`` sample as asked, or not at all.

        Raises:
            UserError: If the method always samples.
        """
        if self.do_sample is None:
            return []
        group = "decoding" if method in SAMPLED else "method"
        if not self.do_sample:
            if group == "method" and method not in GREEDY:
                raise UserError(
                    f"generate: expected do_sample=True with method={method}, which samples, got False; "
                    "leave it out"
                )
            return ["decoding=greedy"] if group == "decoding" else []
        if method in GREEDY:
            raise UserError(
                f"generate: expected a method that samples with do_sample=True, got method={method}; leave "
                "it out or take another method"
            )
        given = {"temperature": self.temperature, "top_k": self.top_k, "top_p": self.top_p}
        chosen = ["decoding=sampled"] if group == "decoding" else []
        return chosen + [f"{group}.{key}={value}" for key, value in given.items() if value is not None]


def settings_of(model: Any, config: GenerationConfig | None, options: Mapping[str, Any]) -> Settings:
    """Read the options of a call, its ``generation_config`` and the model's own.

    The model's own configuration gives lengths and special tokens. Its sampling and penalties are not asked
    for by the call, so they do not act.

    Raises:
        UserError: For an argument that does not exist or cannot act.
    """
    given = {**_set(config), **{key: value for key, value in options.items() if value is not None}}
    for key, value in given.items():
        if key not in (*ACTS, *INDIFFERENT, *OF_THE_HUB) and value is not False and value != NEUTRAL.get(key):
            raise UserError(
                f"generate: expected arguments among {', '.join(ACTS)} and those of soft_reasoning, got "
                f"{key}={value!r:.40}, which has no effect here; leave it out"
            )
    own = model.generation_config

    def value(key: str) -> Any:
        found = given.get(key)
        return getattr(own, key, None) if found is None else found

    eos = value("eos_token_id")
    eos_ids = [] if eos is None else [eos] if isinstance(eos, int) else [int(one) for one in eos]
    pad = value("pad_token_id")
    if not given.get("do_sample") and (
        extra := [key for key in ("temperature", "top_k", "top_p") if key in given]
    ):
        raise UserError(f"generate: expected do_sample=True with {extra[0]}, got it without; add it")
    stop = value("stop_strings") or ()
    limited = any(key in given for key in ("max_new_tokens", "max_length"))
    source = given if limited else {"max_new_tokens": own.max_new_tokens, "max_length": own.max_length}
    return Settings(
        max_new_tokens=source.get("max_new_tokens"),
        max_length=source.get("max_length"),
        do_sample=given.get("do_sample"),
        temperature=given.get("temperature"),
        top_k=given.get("top_k"),
        top_p=given.get("top_p"),
        max_seconds=given.get("max_time"),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        eos_ids=frozenset(eos_ids),
        pad_id=int(pad) if pad is not None else next(iter(eos_ids), 0),
        pad_given=pad is not None,
        return_dict=bool(value("return_dict_in_generate")),
    )


def _set(config: GenerationConfig | None) -> dict[str, Any]:
    """What a configuration sets."""
    if config is None:
        return {}
    if not isinstance(config, GenerationConfig):
        raise UserError(f"generate: expected a GenerationConfig as generation_config, got {config!r:.60}")
    return {key: value for key, value in config.to_dict().items() if value is not None}
