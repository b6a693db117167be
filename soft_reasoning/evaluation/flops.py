"""How much arithmetic a run took, by the usual estimate.

A position costs 2 N for the matrix products with N weights (Kaplan et al. 2020, section 2.1) and 4 L H d for
each key that it attends to, in L layers of H heads of width d (Chowdhery et al. 2022, appendix B: 12 L H d
with the backward pass). Left out, as there: norms, softmax and sampling. Too high: every position is counted
with the output layer, which a prompt needs once, every layer as one of full attention, the last token of a
completion as if it were fed back, and a position computed again as if it attended to the whole prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soft_reasoning.types import Usage


def rates(model: Any) -> dict[str, int] | None:
    """Operations of a Hugging Face ``model`` by ``position`` and by ``key`` attended to; None without one.

    N leaves the lookup table out unless it is the output layer too, and counts those of a mixture's experts
    that a token passes through.
    """
    if model is None:
        return None
    config, lookup = model.config.get_text_config(), model.get_input_embeddings().weight
    output = model.get_output_embeddings()
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    share = (getattr(config, "num_experts_per_tok", None) or 1) / experts if experts else 1.0
    weights = 0.0
    for name, weight in model.named_parameters():
        packed = getattr(weight, "quant_state", None)
        count = weight.numel() if packed is None else packed.shape.numel()
        weights += count * (share if ".experts." in name else 1.0)
    if output is None or output.weight is not lookup:
        weights -= lookup.numel()
    heads = getattr(config, "num_attention_heads", 0)  # some models have none
    width = getattr(config, "head_dim", None) or config.hidden_size // max(1, heads)
    return {"position": round(2 * weights), "key": 4 * config.num_hidden_layers * heads * width}


def flops(usage: Usage, rate: Mapping[str, int]) -> int:
    """Operations that ``usage`` stands for."""
    positions = usage.prompt_tokens - usage.cached_tokens + usage.generated_tokens + usage.recomputed_tokens
    return rate["position"] * positions + rate["key"] * usage.attended
