"""An estimate of a run's floating-point operations.

A position costs 2 N for the matrix products with N weights (Kaplan et al. 2020, section 2.1) and 4 L H d
per key that it attends to, in L layers of H heads of width d (Chowdhery et al. 2022, appendix B: 12 L H d
with the backward pass). Norms, softmax and sampling are left out, as there. The estimate is too high in
four ways: every position counts the output layer, which a prompt needs once; every layer counts as full
attention; the last token of a completion counts as if it were fed back; and a recomputed position counts as
if it attended to the whole prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from soft_reasoning.types import Usage


def rates(model: Any) -> dict[str, int] | None:
    """Return the operations of a Hugging Face ``model`` per ``position`` and per attended ``key``.

    None without a model. N leaves out the lookup table unless it is also the output layer. Of a mixture of
    experts it counts those that a token passes through.
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
    """Return the operations of ``usage``."""
    positions = usage.prompt_tokens - usage.cached_tokens + usage.generated_tokens + usage.recomputed_tokens
    return rate["position"] * positions + rate["key"] * usage.attended
