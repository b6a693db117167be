"""``model.generate`` of transformers by Soft Reasoning: the function behind ``custom_generate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from transformers import GenerationConfig
from transformers.generation.utils import GenerateDecoderOnlyOutput

from soft_reasoning.api import SoftReasoner
from soft_reasoning.configuration.prompt_files import PromptLike
from soft_reasoning.data.questions import Question
from soft_reasoning.engines.text import decode
from soft_reasoning.solution import Solution
from soft_reasoning.types import UserError

ACTS = (
    "max_new_tokens", "max_length", "do_sample", "temperature", "top_k", "top_p", "max_time", "stop_strings",
    "eos_token_id", "pad_token_id", "return_dict_in_generate",
)  # fmt: skip
"""Options of generation that act."""

INDIFFERENT = (
    "bos_token_id", "use_cache", "transformers_version", "_from_model_config",
    "revision", "code_revision", "token", "cache_dir", "local_files_only", "force_download",
)  # fmt: skip
"""Options that change no token, such as where transformers finds the code of ``custom_generate``."""

NEUTRAL: dict[str, Any] = {
    "num_beams": 1, "num_return_sequences": 1, "repetition_penalty": 1.0, "length_penalty": 1.0,
    "no_repeat_ngram_size": 0, "min_length": 0, "min_new_tokens": 0, "typical_p": 1.0, "guidance_scale": 1.0,
}  # fmt: skip
"""Values of other options that ask for nothing; the others' are None and False."""

MOST = 300
"""Most new tokens where neither the call nor the model's own configuration says."""

SAMPLING = ("temperature", "top_k", "top_p")
WITH_DECODING = ("soft_reasoning", "random_embedding", "verified_sampling")
"""Methods whose sampling is the group ``decoding``."""
GREEDY = ("cot", "cot_decoding", "verifier_only")
"""Methods that do not sample."""


@dataclass
class SoftReasoningOutput(GenerateDecoderOnlyOutput):
    """What ``return_dict_in_generate=True`` gives.

    Attributes:
        answers: The final answer of each row; None where none could be read.
        solutions: The :class:`~soft_reasoning.Solution` of each row.
    """

    answers: list[str | None] | None = None
    solutions: list[Solution] | None = None


def generate(
    model: Any,
    inputs: Tensor | None = None,
    generation_config: GenerationConfig | None = None,
    *,
    input_ids: Tensor | None = None,
    attention_mask: Tensor | None = None,
    tokenizer: Any = None,
    method: str = "soft_reasoning",
    preset: str | None = None,
    k: int | None = None,
    rounds: int | None = None,
    answer_type: str | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
    prompt: PromptLike | None = None,
    overrides: Sequence[str] = (),
    **options: Any,
) -> Tensor | SoftReasoningOutput:
    """Complete each row of ``input_ids`` (b, n) by the solution that a method chooses.

    The rows are asked as they are. Verifiers are shown the decoded text of a row as the question.

    Args:
        model: A causal language model of transformers.
        inputs, input_ids: The prompts, by either name.
        generation_config: Options of generation, which ``options`` win over.
        attention_mask: 1 for the tokens of a prompt; a row is padded on the left or the right. By default
            padding tokens are left out.
        tokenizer: The model's tokenizer.
        method, preset, k, rounds, answer_type, max_tokens, seed, prompt, overrides: As for
            :class:`~soft_reasoning.SoftReasoner`; ``prompt`` is the wording of verifiers.
        options: Other arguments of ``model.generate`` (``ACTS``).

    Returns:
        (b, n + longest) ids: the rows, then the tokens of their solutions, padded on the right; or an object
        with these as ``sequences``.

    Raises:
        UserError: In one line, for an argument that is missing, unknown or has no effect here.
    """
    ids = _ids(inputs, input_ids, tokenizer)
    asked, own = _asked(generation_config, options), model.generation_config
    eos, pad, stop, as_object = (
        asked.get(key, getattr(own, key, None))
        for key in ("eos_token_id", "pad_token_id", "stop_strings", "return_dict_in_generate")
    )
    ends = frozenset([eos] if isinstance(eos, int) else eos or ())
    stops = [stop] if isinstance(stop, str) else stop or ()
    rows, most = _rows(ids, attention_mask, None if pad in ends else pad), _most(asked, own, ids.shape[1])
    training = model.training
    try:
        with SoftReasoner(
            model, tokenizer, method=method, preset=preset, k=k, rounds=rounds, answer_type=answer_type,
            max_tokens=max_tokens, max_seconds=asked.get("max_time"), seed=seed, prompt=prompt,
            overrides=[*overrides, f"max_new_tokens={most}", *_sampling(asked, method)],
        ) as reasoner:  # fmt: skip
            reasoner.context.engine.eos_ids = ends
            solutions = reasoner.solve([_question(row, tokenizer, stops) for row in rows])
    finally:
        model.train(training)
    pad = next(iter(ends), 0) if pad is None else pad
    sequences = _joined(ids, [_tokens(solution, tokenizer)[:most] for solution in solutions], pad)
    if not as_object:
        return sequences
    answers = [solution.answer for solution in solutions]
    return SoftReasoningOutput(cast(torch.LongTensor, sequences), answers=answers, solutions=solutions)


def _asked(config: GenerationConfig | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a call and its ``generation_config`` set.

    The model's own configuration gives lengths and special tokens. The call does not ask for its sampling and
    penalties, so they do not act.
    """
    if config is not None and not isinstance(config, GenerationConfig):
        raise UserError(f"generate: expected a GenerationConfig as generation_config, got {config!r:.60}")
    asked: dict[str, Any] = {}
    for source in ({} if config is None else config.to_dict(), options):
        asked |= {key: value for key, value in source.items() if value is not None}
    for key, value in asked.items():
        if key not in (*ACTS, *INDIFFERENT) and value is not False and value != NEUTRAL.get(key):
            raise UserError(
                f"generate: expected arguments among {', '.join(ACTS)} and those of soft_reasoning, got "
                f"{key}={value!r:.40}, which has no effect here; leave it out"
            )
    if not asked.get("do_sample") and (extra := [key for key in SAMPLING if key in asked]):
        raise UserError(f"generate: expected do_sample=True with {extra[0]}, got it without; add it")
    return asked


def _most(asked: Mapping[str, Any], own: Any, length: int) -> int:
    """Most new tokens after prompts of ``length`` tokens."""
    limits = ("max_new_tokens", "max_length")
    source = asked if any(key in asked for key in limits) else {key: getattr(own, key) for key in limits}
    new, most = (source.get(key) for key in limits)
    if new is not None or most is None:
        return MOST if new is None else new
    if most <= length:
        raise UserError(
            f"generate: expected max_length above the {length} tokens of input_ids, got {most}; "
            "set max_new_tokens"
        )
    return most - length


def _sampling(asked: Mapping[str, Any], method: str) -> list[str]:
    """The overrides that make ``method`` sample as asked, or not at all."""
    samples = asked.get("do_sample")
    if samples is None or (not samples and method in GREEDY):
        return []
    group = "decoding" if method in WITH_DECODING else "method"
    if (samples and method in GREEDY) or (not samples and group == "method"):
        kind = "that samples with do_sample=True" if samples else "that is greedy with do_sample=False"
        raise UserError(
            f"generate: expected a method {kind}, got method={method}; leave it out or take another method"
        )
    chosen = [f"decoding={'sampled' if samples else 'greedy'}"] if group == "decoding" else []
    return chosen + [f"{group}.{key}={asked[key]}" for key in SAMPLING if key in asked]


def _ids(inputs: Tensor | None, input_ids: Tensor | None, tokenizer: Any) -> Tensor:
    if tokenizer is None:
        raise UserError("generate: expected the model's tokenizer, got none; add tokenizer=tokenizer")
    if (inputs is None) == (input_ids is None):
        raise UserError("generate: expected input_ids, or inputs, and not both; give token ids (b, n)")
    ids = inputs if input_ids is None else input_ids
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point() or not ids.numel():
        shape = tuple(ids.shape) if isinstance(ids, Tensor) else type(ids).__name__
        raise UserError(f"generate: expected token ids (b, n) as input_ids, got {shape}")
    return ids


def _rows(ids: Tensor, mask: Tensor | None, pad: int | None) -> list[list[int]]:
    """The prompts without their padding: by ``mask``, else without the token ``pad``."""
    if mask is None:
        mask = torch.ones_like(ids) if pad is None else ids.ne(pad)
    if mask.shape != ids.shape:
        raise UserError(
            f"generate: expected an attention_mask {tuple(ids.shape)} as input_ids, got {tuple(mask.shape)}"
        )
    rows: list[list[int]] = []
    for number, (row, kept) in enumerate(zip(ids.cpu(), mask.cpu().bool(), strict=True)):
        at = kept.nonzero().flatten().tolist()
        if not at or len(at) != at[-1] - at[0] + 1 or (at[0] > 0 and at[-1] < len(row) - 1):
            raise UserError(
                f"generate: expected row {number} to be padded on the left or the right alone, got an "
                "attention_mask with other zeros; pad with tokenizer(..., padding=True)"
            )
        rows.append(row[at[0] : at[-1] + 1].tolist())
    return rows


def _question(row: Sequence[int], tokenizer: Any, stop: Sequence[str]) -> Question:
    name = " ".join(map(str, row))
    return {"question": decode(tokenizer, row), "id": name, "prompt": row, "stop": stop}


def _tokens(solution: Solution, tokenizer: Any) -> Sequence[int]:
    """The tokens of the chosen solution; a text of the verifier's, or of several completions, is encoded."""
    if solution.chosen is not None and solution.chosen.token_ids:
        return solution.chosen.token_ids
    return tokenizer.encode(solution.text, add_special_tokens=False) if solution.text else ()


def _joined(ids: Tensor, completions: Sequence[Sequence[int]], pad: int) -> Tensor:
    new = torch.full((len(completions), max(map(len, completions))), pad, dtype=ids.dtype)
    for row, tokens in zip(new, completions, strict=True):
        row[: len(tokens)] = torch.tensor(list(tokens), dtype=ids.dtype)
    return torch.cat([ids, new.to(ids.device)], dim=1)
