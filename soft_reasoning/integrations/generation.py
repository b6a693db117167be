"""``model.generate`` of transformers by Soft Reasoning: the function behind ``custom_generate``."""

from __future__ import annotations

from collections.abc import Sequence
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
from soft_reasoning.integrations.generation_settings import Settings, settings_of
from soft_reasoning.solution import Solution
from soft_reasoning.types import UserError


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
        inputs: As ``input_ids``.
        generation_config: Options of generation, which ``options`` win over.
        input_ids: The prompts.
        attention_mask: 1 for the tokens of a prompt; a row is padded on the left or the right. By default
            padding tokens are left out.
        tokenizer: The model's tokenizer.
        method: The method's name.
        preset: Which parts Soft Reasoning has.
        k: Candidates of a round, or samples.
        rounds: Rounds after the first.
        answer_type: The type of answers, as for :class:`~soft_reasoning.SoftReasoner`.
        max_tokens: Most generated tokens per row, the verifier's included.
        seed: Seed of every draw.
        prompt: The wording of verifiers, as for :class:`~soft_reasoning.SoftReasoner`.
        overrides: Overrides of the configuration, as there.
        options: Other arguments of ``model.generate`` (``generation_settings.ACTS``).

    Returns:
        (b, n + longest) ids: the rows, then the tokens of their solutions, padded on the right; or an object
        with these as ``sequences``.

    Raises:
        UserError: In one line, for an argument that is missing, unknown or has no effect here.
    """
    if tokenizer is None:
        raise UserError("generate: expected the model's tokenizer, got none; add tokenizer=tokenizer")
    ids = _ids(inputs, input_ids)
    settings = settings_of(model, generation_config, options)
    rows = _rows(ids, attention_mask, settings)
    most = settings.most_tokens(ids.shape[1])
    training = model.training
    try:
        with SoftReasoner(
            model, tokenizer, method=method, preset=preset, k=k, rounds=rounds, answer_type=answer_type,
            max_tokens=max_tokens, max_seconds=settings.max_seconds, seed=seed, prompt=prompt,
            overrides=[*overrides, f"max_new_tokens={most}", *settings.sampling(method)],
        ) as reasoner:  # fmt: skip
            reasoner.context.engine.eos_ids = settings.eos_ids
            solutions = reasoner.solve([_question(row, tokenizer, settings.stop) for row in rows])
    finally:
        model.train(training)
    found = [_tokens(one, tokenizer)[:most] for one in solutions]
    sequences = _joined(ids, found, settings.pad_id)
    if not settings.return_dict:
        return sequences
    return SoftReasoningOutput(
        sequences=cast(torch.LongTensor, sequences),
        answers=[one.answer for one in solutions],
        solutions=solutions,
    )


def _ids(inputs: Tensor | None, input_ids: Tensor | None) -> Tensor:
    if (inputs is None) == (input_ids is None):
        raise UserError("generate: expected input_ids, or inputs, and not both; give token ids (b, n)")
    ids = inputs if input_ids is None else input_ids
    if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point() or not ids.numel():
        shape = tuple(ids.shape) if isinstance(ids, Tensor) else type(ids).__name__
        raise UserError(f"generate: expected token ids (b, n) as input_ids, got {shape}")
    return ids


def _rows(ids: Tensor, mask: Tensor | None, settings: Settings) -> list[list[int]]:
    """The prompts without their padding."""
    if mask is None:  # as transformers itself does
        pads = settings.pad_given and settings.pad_id not in settings.eos_ids
        mask = ids.ne(settings.pad_id) if pads else torch.ones_like(ids)
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
    chosen = solution.chosen
    if chosen is not None and chosen.token_ids:
        return chosen.token_ids
    return tokenizer.encode(solution.text, add_special_tokens=False) if solution.text else ()


def _joined(ids: Tensor, found: Sequence[Sequence[int]], pad: int) -> Tensor:
    longest = max(len(one) for one in found)
    new = torch.full((len(found), longest), pad, dtype=ids.dtype)
    for row, tokens in zip(new, found, strict=True):
        row[: len(tokens)] = torch.tensor(list(tokens), dtype=ids.dtype)
    return torch.cat([ids, new.to(ids.device)], dim=1)
