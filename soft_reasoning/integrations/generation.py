"""``model.generate`` of transformers by Soft Reasoning: the function behind ``custom_generate``."""

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
from soft_reasoning.configuration.options import Options
from soft_reasoning.data.questions import Question
from soft_reasoning.engines.text import decode
from soft_reasoning.solution import Solution
from soft_reasoning.types import UserError

REASONER = ("prompt", "answer_type", "overrides", *Options.__annotations__)
"""Arguments of ``SoftReasoner``, such as ``max_new_tokens`` and ``temperature``."""

ACTS = (
    "do_sample", "max_time", "stop_strings", "eos_token_id", "pad_token_id", "return_dict_in_generate"
)  # fmt: skip
"""Other options of generation that act."""

INDIFFERENT = (
    "bos_token_id", "use_cache", "transformers_version", "_from_model_config",
    "revision", "code_revision", "token", "cache_dir", "local_files_only", "force_download",
)  # fmt: skip
"""Options that change no token, such as where transformers finds the code of ``custom_generate``."""

ONES = ("num_beams", "num_return_sequences", "repetition_penalty", "length_penalty", "guidance_scale")
"""Other options that ask for nothing where they are 1; the rest does where it is None, False or 0."""

MOST = 300
"""Most new tokens where neither the call nor the model's own configuration says."""


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
    **options: Any,
) -> Tensor | SoftReasoningOutput:
    """Complete each row of ``input_ids`` (b, n) by the solution that a method chooses.

    The rows are asked as they are. Verifiers are shown the decoded text of a row as the question.

    Args:
        model: A causal language model of transformers.
        inputs, input_ids: The prompts, by either name.
        generation_config: Options of generation, which ``options`` win over.
        attention_mask: 1 for the tokens of a prompt, 0 for padding. By default padding tokens are left out.
        tokenizer: The model's tokenizer.
        options: Arguments of :class:`~soft_reasoning.SoftReasoner`, whose ``prompt`` is the wording of
            verifiers, and other ones of ``model.generate`` (``ACTS``).

    Returns:
        (b, n + longest) ids: the rows, then the tokens of their solutions, padded on the right; or an object
        with these as ``sequences``.

    Raises:
        UserError: In one line, for an argument that is missing, unknown or has no effect here.
    """
    if tokenizer is None:
        raise UserError("generate: expected the model's tokenizer, got none; add tokenizer=tokenizer")
    ids = inputs if input_ids is None else input_ids
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point() or not ids.numel():
        shape = tuple(ids.shape) if isinstance(ids, Tensor) else type(ids).__name__
        raise UserError(f"generate: expected token ids (b, n) as input_ids, got {shape}")
    asked, own = _asked(generation_config, options), model.generation_config
    eos, pad, stop, most = (
        asked.get(key, getattr(own, key, None))
        for key in ("eos_token_id", "pad_token_id", "stop_strings", "max_new_tokens")
    )
    ends = frozenset([eos] if isinstance(eos, int) else eos or ())
    stops, most = [stop] if isinstance(stop, str) else stop or (), MOST if most is None else most
    arguments: dict[str, Any] = {key: asked[key] for key in REASONER if key in asked}
    arguments["max_new_tokens"] = most
    if "do_sample" in asked:
        arguments["temperature"] = asked.get("temperature", 1.0) if asked["do_sample"] else 0.0
    if "max_time" in asked:
        arguments["max_seconds"] = asked["max_time"]
    questions: list[Question] = [
        {"question": decode(tokenizer, row), "id": " ".join(map(str, row)), "prompt": row, "stop": stops}
        for row in _rows(ids, attention_mask, None if pad in ends else pad)
    ]
    training = model.training
    try:
        with SoftReasoner(model, tokenizer, **arguments) as reasoner:
            reasoner.context.engine.eos_ids = ends
            solutions = reasoner.solve(questions)
    finally:
        model.train(training)
    tokens = [torch.tensor(_tokens(each, tokenizer)[:most], dtype=ids.dtype) for each in solutions]
    new = pad_sequence(tokens, batch_first=True, padding_value=next(iter(ends), 0) if pad is None else pad)
    sequences = torch.cat([ids, new.to(ids.device)], dim=1)
    if not asked.get("return_dict_in_generate"):
        return sequences
    answers = [solution.answer for solution in solutions]
    return SoftReasoningOutput(cast(torch.LongTensor, sequences), answers=answers, solutions=solutions)


def _asked(config: GenerationConfig | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that a call and its ``generation_config`` set.

    The model's own configuration gives lengths and special tokens. The call does not ask for its sampling and
    penalties, so they do not act.
    """
    asked = {} if config is None else {k: v for k, v in config.to_dict().items() if v is not None}
    asked |= {key: value for key, value in options.items() if value is not None}
    for key, value in asked.items():
        if value and key not in (*REASONER, *ACTS, *INDIFFERENT) and not (key in ONES and value == 1):
            raise UserError(
                f"generate: expected arguments among {', '.join((*REASONER, *ACTS))}, got "
                f"{key}={value!r:.40}, which has no effect here; leave it out"
            )
    return asked


def _rows(ids: Tensor, mask: Tensor | None, pad: int | None) -> list[list[int]]:
    """The prompts without their padding: by ``mask``, else without the token ``pad``."""
    if mask is None:
        mask = torch.ones_like(ids) if pad is None else ids.ne(pad)
    if mask.shape != ids.shape:
        raise UserError(
            f"generate: expected an attention_mask {tuple(ids.shape)} as input_ids, got {tuple(mask.shape)}"
        )
    return [row[kept].tolist() for row, kept in zip(ids, mask.bool(), strict=True)]


def _tokens(solution: Solution, tokenizer: Any) -> Sequence[int]:
    """The tokens of the chosen solution; a text of the verifier's, or of several completions, is encoded."""
    if solution.chosen is not None and solution.chosen.token_ids:
        return solution.chosen.token_ids
    return tokenizer.encode(solution.text, add_special_tokens=False) if solution.text else ()
