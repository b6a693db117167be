"""Training rows as token ids: the prompt of a run, and the solution as its continuation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from soft_reasoning.data.exemplars import Exemplar
from soft_reasoning.prompts import Prompts
from soft_reasoning.types import Problem, UserError


@dataclass(frozen=True)
class Example:
    """Token ids of prompt and response; the response begins at ``start`` and ends with end of sequence."""

    ids: tuple[int, ...]
    start: int


def examples_of(
    rows: Sequence[Exemplar], prompts: Prompts, *, response: str, max_length: int
) -> list[Example]:
    """Return the rows whose example has at most ``max_length`` tokens; truncated ones would teach not to end.

    ``response`` is the template of what the model should write, with {thought} and {answer}. After a
    prompt's cue it begins with a space.

    Raises:
        UserError: If no row is short enough, or the tokenizer has no end-of-sequence token.
    """
    tokenizer = prompts.tokenizer
    if tokenizer.eos_token_id is None:
        raise UserError("finetuning: expected a tokenizer with an end-of-sequence token, got none")
    cue = prompts.wording.cue
    space = " " if cue and not cue[-1].isspace() else ""
    made = []
    for row in rows:
        prompt = prompts.solve(Problem(row.question, row.question)).ids
        text = space + response.format(thought=row.thought, answer=row.answer)
        ids = prompt + tuple(tokenizer.encode(text, add_special_tokens=False)) + (tokenizer.eos_token_id,)
        if len(ids) <= max_length:
            made.append(Example(ids, len(prompt)))
    if not made:
        raise UserError(
            f"finetuning.max_length: expected rows of at most {max_length} tokens, got none of {len(rows)}; "
            "raise it, or take other training rows"
        )
    return made


def parts(batch: Sequence[Example], max_tokens: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield ``batch`` in parts of at most ``max_tokens`` padded tokens, shortest rows first.

    A part has at least one row.

    Yields:
        Token ids (r, t), padded on the right with 0, and a boolean mask (r, t) of responses.
    """
    rows: list[Example] = []
    for example in sorted(batch, key=lambda e: len(e.ids)):
        if rows and (len(rows) + 1) * len(example.ids) > max_tokens:
            yield _padded(rows)
            rows = []
        rows.append(example)
    yield _padded(rows)


def _padded(rows: Sequence[Example]) -> tuple[Tensor, Tensor]:
    width = max(len(row.ids) for row in rows)
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    response = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        ids[i, : len(row.ids)] = torch.tensor(row.ids)
        response[i, row.start : len(row.ids)] = True
    return ids, response
