"""A small Llama in few operations: where a step costs more to dispatch than to compute, that is its speed.

The same model as transformers' (``probe`` compares the logits), written for float32 on the CPU: query, key
and value weights are one matrix, gate and up weights another; the norm in front of each and the scale of the
queries are multiplied into them; rotary embeddings are one product of complex numbers. The weights of the
layers are copied for it, so it serves small models only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from soft_reasoning.engines.passes import Pass
from soft_reasoning.engines.tree import attend

CLASSES = {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM"}
MOST_BYTES = 2**28
"""Larger models are busy computing, whatever the number of operations."""

linear = torch.ops.mkldnn._linear_pointwise


@dataclass(frozen=True)
class Layer:
    """``qkv`` ((Hq + 2 Hkv) d, D), ``gate_up`` (2 I, D): weights with their biases; ``eps`` of the norms."""

    qkv: tuple[Tensor, Tensor | None]
    out: tuple[Tensor, Tensor | None]
    gate_up: tuple[Tensor, Tensor | None]
    down: tuple[Tensor, Tensor | None]
    eps: tuple[Tensor, Tensor]
    window: int | None


class Lean:
    """The decoder of ``model``; see :func:`lean`."""

    def __init__(self, model: Any) -> None:
        config, decoder = model.config, model.model
        self._width = decoder.layers[0].self_attn.head_dim
        self._query_heads, self._heads = config.num_attention_heads, config.num_key_value_heads
        self._rotary, self._norm, self._head = decoder.rotary_emb, decoder.norm, model.lm_head
        self._layers = [self._layer(layer, config) for layer in decoder.layers]

    def logits(self, now: Pass, embeddings: Tensor, positions: Tensor, *, last: bool) -> Tensor:
        """(N, V) logits of the packed ``embeddings`` (N, D) at ``positions`` (N,), of the ``last`` alone if
        asked (1, V)."""
        cos, sin = self._rotary(embeddings, position_ids=positions.unsqueeze(0))
        half = self._width // 2
        turn = torch.complex(cos[0, :, :half], sin[0, :, :half]).unsqueeze(1)  # (N, 1, d / 2)
        h, n = embeddings, len(embeddings)
        cut = self._query_heads * self._width, (self._query_heads + self._heads) * self._width
        for i, layer in enumerate(self._layers):
            qkv = linear.default(_normed(h, layer.eps[0]), *layer.qkv, "none", [], "")
            q = self._turned(qkv[:, : cut[0]], turn)
            k = self._turned(qkv[:, cut[0] : cut[1]], turn)
            v = qkv[:, cut[1] :].view(n, self._heads, self._width)
            now.keep(i, k, v)
            out = attend(now, i, q, k, v, window=layer.window).flatten(1)
            h = linear.binary(out, h, *layer.out, "add")
            gate, up = linear.default(_normed(h, layer.eps[1]), *layer.gate_up, "none", [], "").chunk(2, -1)
            h = linear.binary(nn.functional.silu(gate).mul_(up), h, *layer.down, "add")
        return self._head(self._norm(h[-1:] if last else h))

    def _turned(self, x: Tensor, turn: Tensor) -> Tensor:
        """(N, H, d): rotary embedding of ``x`` (N, H * d), whose halves of a head lie interleaved."""
        pairs = torch.view_as_complex(x.view(len(x), -1, self._width // 2, 2))
        return torch.view_as_real(pairs * turn).flatten(2)

    def _layer(self, layer: Any, config: Any) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        norms = layer.input_layernorm, layer.post_attention_layernorm
        q, k = (_interleaved(part, self._width) for part in (attention.q_proj, attention.k_proj))
        q = tuple(x if x is None else x * self._width**-0.5 for x in q)
        v, gate, up = ((part.weight, part.bias) for part in (attention.v_proj, mlp.gate_proj, mlp.up_proj))
        kinds = getattr(config, "layer_types", None)
        slides = not kinds or kinds[attention.layer_idx] == "sliding_attention"
        return Layer(
            qkv=_behind(norms[0], q, k, v),
            out=(attention.o_proj.weight, attention.o_proj.bias),
            gate_up=_behind(norms[1], gate, up),
            down=(mlp.down_proj.weight, mlp.down_proj.bias),
            eps=tuple((n.weight.new_tensor(n.variance_epsilon) * len(n.weight)).sqrt() for n in norms),
            window=getattr(config, "sliding_window", None) if slides else None,
        )


def lean(model: Any) -> Lean | None:
    """``model`` in few operations; None for one not of ``CLASSES``, not plain, small, float32, on the CPU."""
    if type(model).__name__ not in CLASSES or not torch.backends.mkldnn.is_available():
        return None
    weights = list(model.parameters())
    plain = all(w.device.type == "cpu" and w.dtype == torch.float32 for w in weights)
    small = sum(w.numel() * w.element_size() for w in weights) <= MOST_BYTES
    layers = model.model.layers
    linears = [m for layer in layers for name, m in layer.named_modules() if name.endswith("_proj")]
    whole = len(linears) == 7 * len(layers) and all(isinstance(m, nn.Linear) for m in linears)
    if not (plain and small and whole and model.config.hidden_act == "silu"):
        return None
    with torch.no_grad():
        return Lean(model)


def _normed(x: Tensor, eps: Tensor) -> Tensor:
    """``x`` (N, D) by its length; the square root of D and the norm's weight are in the weights behind it."""
    return x / torch.hypot(torch.linalg.vector_norm(x, dim=-1, keepdim=True), eps)


def _behind(norm: Any, *parts: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor | None]:
    """The parts' weights and biases as one, with ``norm`` multiplied in."""
    weight = torch.cat([w for w, _ in parts]) * (norm.weight * len(norm.weight) ** 0.5)
    biases = [b for _, b in parts if b is not None]
    return weight, torch.cat(biases) if len(biases) == len(parts) else None


def _interleaved(part: Any, width: int) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of ``part`` with dimensions j and j + d / 2 of each head side by side."""
    order = torch.arange(len(part.weight)).view(-1, 2, width // 2).transpose(1, 2).flatten()
    return part.weight[order], None if part.bias is None else part.bias[order]
