"""Transformers' ``model.generate`` with Soft Reasoning: the function behind ``custom_generate``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig
from transformers.generation.utils import GenerateDecoderOnlyOutput

from soft_reasoning.api import SoftReasoner
from soft_reasoning.configuration.implied import MAX_NEW_TOKENS
from soft_reasoning.configuration.options import Options
from soft_reasoning.data.questions import Question
from soft_reasoning.engines.text import decode
from soft_reasoning.solution import Solution
from soft_reasoning.types import UserError

REASONER = ("prompt", "answer_type", "overrides", *Options.__annotations__)
"""Arguments of ``SoftReasoner``, such as ``max_new_tokens`` and ``temperature``."""

EFFECTIVE = (
    "do_sample",
    "max_time",
    "stop_strings",
    "eos_token_id",
    "pad_token_id",
    "return_dict_in_generate",
)
"""Other options of generation that have an effect."""

INDIFFERENT = (
    "bos_token_id",
    "use_cache",
    "transformers_version",
    "_from_model_config",
    "revision",
    "code_revision",
    "token",
    "cache_dir",
    "local_files_only",
    "force_download",
)
"""Options that do not change tokens, such as the location of the code of ``custom_generate``."""

NEUTRAL_AT_1 = ("num_beams", "num_return_sequences", "repetition_penalty", "length_penalty", "guidance_scale")
"""Other options that are neutral at 1; all further options are neutral at None, False or 0."""


@dataclass
class SoftReasoningOutput(GenerateDecoderOnlyOutput):
    """The result with ``return_dict_in_generate=True``.

    Attributes:
        answers: The final answer of each row; None where it could not be parsed.
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
    **options: Any,
) -> Tensor | SoftReasoningOutput:
    """Complete each row of ``input_ids`` (b, n) by the solution that a method chooses.

    The rows are used as prompts unchanged. Verifiers read the decoded text of a row as the question.

    Args:
        model: A causal language model of transformers.
        inputs, input_ids: The prompts, by either name.
        generation_config: Options of generation; ``options`` have priority.
        attention_mask: 1 for the tokens of a prompt, 0 for padding. By default padding tokens are left out.
        tokenizer: The model's tokenizer.
        options: Arguments of :class:`~soft_reasoning.SoftReasoner`, whose ``prompt`` is the wording of
            verifiers, and other arguments of ``model.generate`` (``EFFECTIVE``).

    Returns:
        (b, n + longest) ids: the rows, then the tokens of their solutions, padded on the right; or an object
        with these as ``sequences``.

    Raises:
        UserError: For an argument that is missing, unknown or without effect here.
    """
    if tokenizer is None:
        raise UserError("generate: expected the model's tokenizer, got none; add tokenizer=tokenizer")
    ids = inputs if input_ids is None else input_ids
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point() or not ids.numel():
        shape = tuple(ids.shape) if isinstance(ids, Tensor) else type(ids).__name__
        raise UserError(f"generate: expected token ids (b, n) as input_ids, got {shape}")
    settings, defaults = _read_options(generation_config, options), model.generation_config
    eos, pad, stop, limit = (
        settings.get(key, getattr(defaults, key, None))
        for key in ("eos_token_id", "pad_token_id", "stop_strings", "max_new_tokens")
    )
    ends = frozenset([eos] if isinstance(eos, int) else eos or ())
    stops, limit = [stop] if isinstance(stop, str) else stop or (), MAX_NEW_TOKENS if limit is None else limit
    arguments = _reasoner_arguments(settings, limit)
    rows = _rows(ids, attention_mask, None if pad in ends else pad)
    _check_positions(options.get("position_ids"), ids, attention_mask)
    names = [" ".join(map(str, row)) + " again" * rows[:i].count(row) for i, row in enumerate(rows)]
    questions: list[Question] = [
        {"question": decode(tokenizer, row), "id": key, "prompt": row, "stop": stops, "max_new_tokens": limit}
        for row, key in zip(rows, names, strict=True)
    ]
    training = model.training
    try:
        with SoftReasoner(model, tokenizer, **arguments) as reasoner:
            reasoner.context.engine.eos_ids = ends
            solutions = reasoner.solve(questions)
    finally:
        model.train(training)
    tokens = [torch.tensor(_tokens(solution, tokenizer)[:limit], dtype=ids.dtype) for solution in solutions]
    new = pad_sequence(tokens, batch_first=True, padding_value=next(iter(ends), 0) if pad is None else pad)
    sequences = torch.cat([ids, new.to(ids.device)], dim=1)
    if not settings.get("return_dict_in_generate"):
        return sequences
    answers = [solution.answer for solution in solutions]
    return SoftReasoningOutput(cast(torch.LongTensor, sequences), answers=answers, solutions=solutions)


def _read_options(config: GenerationConfig | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a call and its ``generation_config`` set.

    The model's generation config supplies lengths and special tokens. Its sampling and penalties have no
    effect, since the call does not set them.
    """
    settings = {} if config is None else {k: v for k, v in config.to_dict().items() if v is not None}
    settings |= {key: value for key, value in options.items() if value is not None}
    for key, value in settings.items():
        if isinstance(value, Tensor):  # token_type_ids and position_ids, which tokenizers and processors add
            neutral = key == "position_ids" or key == "token_type_ids" and not value.any()
        else:
            neutral = not value or (key in NEUTRAL_AT_1 and value == 1)
        if not neutral and key not in (*REASONER, *EFFECTIVE, *INDIFFERENT):
            raise UserError(
                f"generate: expected arguments among {', '.join((*REASONER, *EFFECTIVE))}, got "
                f"{key}={value!r:.40}, which has no effect here; leave it out"
            )
    return settings


def _reasoner_arguments(settings: Mapping[str, Any], limit: int) -> dict[str, Any]:
    """The reasoner's arguments; ``limit`` bounds the completions of a method that is given by name."""
    arguments = {key: settings[key] for key in REASONER if key in settings}
    if isinstance(settings.get("method"), str | None):  # an object has its own bound for the verifier
        arguments["max_new_tokens"] = limit
    if "do_sample" in settings:
        arguments["temperature"] = settings.get("temperature", 1.0) if settings["do_sample"] else 0.0
    if "max_time" in settings:
        arguments["max_seconds"] = settings["max_time"]
    return arguments


def _rows(ids: Tensor, mask: Tensor | None, pad: int | None) -> list[list[int]]:
    """The prompts without their padding: by ``mask``, else without the token ``pad``."""
    if mask is None:
        mask = torch.ones_like(ids) if pad is None else ids.ne(pad)
    if mask.shape != ids.shape:
        raise UserError(
            f"generate: expected an attention_mask {tuple(ids.shape)} as input_ids, got {tuple(mask.shape)}"
        )
    return [row[mask_row].tolist() for row, mask_row in zip(ids, mask.bool(), strict=True)]


def _check_positions(positions: Tensor | None, ids: Tensor, mask: Tensor | None) -> None:
    """Reject position ids that do not count the tokens of each prompt from 0."""
    if positions is None:
        return
    read = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    expected = read.long().cumsum(-1) - 1
    rows, length = positions.shape[-2:-1], positions.shape[-1:]
    fits = length == ids.shape[-1:] and rows in ((), (1,), ids.shape[:1])
    if not fits or (positions - expected)[..., read].any():
        raise UserError(
            "generate: expected position_ids that count a prompt's tokens from 0, got others; leave them out"
        )


def _tokens(solution: Solution, tokenizer: Any) -> Sequence[int]:
    """The tokens of the chosen solution; the text of a verifier or of several completions is encoded."""
    chosen = solution.chosen
    if chosen is not None and chosen.token_ids:
        return (*tokenizer.encode(chosen.opening, add_special_tokens=False), *chosen.token_ids)
    return tokenizer.encode(solution.text, add_special_tokens=False) if solution.text else ()
