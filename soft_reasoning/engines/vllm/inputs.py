"""What vLLM is given for a request: its prompt and its sampling parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from soft_reasoning.engines.output import PreparedRequest


def mixed_prompt(
    prepared: PreparedRequest, written: Sequence[int] = (), *, width: int, dtype: torch.dtype
) -> dict[str, Any]:
    """Return the prompt of ``prepared`` and its generated tokens ``written``, as ids and soft rows."""
    soft = torch.empty(0, width) if prepared.soft is None else prepared.soft
    soft = soft.detach().to("cpu", dtype)
    before, after = list(prepared.head), [*prepared.tail, *written]
    rows = torch.zeros(len(before) + len(soft) + len(after), width, dtype=dtype)
    # The cache does not look at the mask: minus zeros tell a soft row of zeros from a token's row.
    rows[len(before) : len(before) + len(soft)] = torch.where(soft == 0, -0.0, soft)
    return {
        "prompt_embeds": rows,
        "prompt_token_ids": [*before, *[0] * len(soft), *after],
        "prompt_is_token_ids": [True] * len(before) + [False] * len(soft) + [True] * len(after),
    }


def sampling_params(eos_ids: frozenset[int], **settings: Any) -> Any:
    """Return vLLM's ``SamplingParams``; a completion ends at each of ``eos_ids``, as in the other engines."""
    from vllm.sampling_params import (  # pyright: ignore[reportMissingImports]
        RequestOutputKind,
        SamplingParams,
    )

    return SamplingParams(
        ignore_eos=True,
        stop_token_ids=sorted(eos_ids),
        flat_logprobs=True,
        output_kind=RequestOutputKind.FINAL_ONLY,
        **settings,
    )
