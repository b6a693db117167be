"""Recording and masking the gated feed-forward neurons of a loaded transformers model, by forward hooks.

A neuron of a GLU layer is ``act(gate) * up``; it is active if ``act(gate)`` exceeds zero, for SiLU and GELU
if ``gate`` does. All hooks are on the gate's projection: a gate of zero is an activation of zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from soft_reasoning.types import UserError

GATE = "gate_proj"
"""Name of the gate's projection in the families of Llama, Qwen, Mistral and Gemma."""


class Neurons:
    """The gated neurons of ``model``: (layers, width).

    Hooks act on passes of ``model`` itself and are removed after each pass. The Hugging Face engine generates
    with a copy that shares the weights, so it is not affected: generate with ``neurons.model``.

    Raises UserError for a model without a gate in each feed-forward layer, or with layers of several widths.

    Example:
        >>> neurons = Neurons(engine.model)
        >>> gates = neurons.record(embeddings, attention_mask)  # (layers, batch, length, width)
        >>> with neurons.masked(chosen):  # (layers, width), true where a neuron is silenced
        ...     tokens = neurons.model.generate(prompt)
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._gates = [module for name, module in model.named_modules() if name.rpartition(".")[2] == GATE]
        layers = model.config.get_text_config().num_hidden_layers
        if len(self._gates) != layers or not all(isinstance(gate, nn.Linear) for gate in self._gates):
            raise UserError(
                f"{type(model).__name__}: expected a gate ({GATE}) in each of its {layers} feed-forward "
                f"layers, found {len(self._gates)}; take a dense model such as Llama, Qwen, Mistral or Gemma"
            )
        widths = {gate.out_features for gate in self._gates}
        if len(widths) > 1:
            raise UserError(
                f"{type(model).__name__}: expected layers of one width, got {sorted(widths)}; analyse another"
            )
        self.layers: int = layers
        self.width: int = widths.pop()

    @torch.inference_mode()
    def record(self, embeddings: Tensor, attention_mask: Tensor) -> Tensor:
        """Gates before the activation function of one forward pass.

        Args:
            embeddings: (batch, length, D) inputs as the model's lookup returns them.
            attention_mask: (batch, length), 0 where a row is padded on the right.

        Returns:
            (layers, batch, length, width) float32 on the CPU.
        """
        seen: list[Tensor] = []
        with self._hooked([lambda *args: seen.append(args[2].float().cpu())] * self.layers):
            self.model(inputs_embeds=embeddings, attention_mask=attention_mask, use_cache=False)
        return torch.stack(seen)

    @contextmanager
    def masked(self, silent: Tensor) -> Iterator[None]:
        """Silence the neurons where ``silent`` (layers, width) is true, in passes over one position per row.

        These are the passes of generated tokens; the prompt is read unchanged.
        """

        def build_hook(layer: int) -> Any:
            keep = ~silent[layer]

            def hook(module: nn.Module, inputs: Any, gate: Tensor) -> Tensor:
                return gate * keep.to(gate.device) if gate.shape[1] == 1 else gate

            return hook

        with self._hooked([build_hook(layer) for layer in range(self.layers)]):
            yield

    @contextmanager
    def _hooked(self, hooks: Sequence[Any]) -> Iterator[None]:
        added = [gate.register_forward_hook(hook) for gate, hook in zip(self._gates, hooks, strict=True)]
        try:
            yield
        finally:
            for handle in added:
                handle.remove()
