"""The last hidden states and the LM head of a loaded transformers model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.types import Prompt


class ShowsHiddenStates:
    """Makes an engine with a transformers ``model`` one of ``engines.abilities.LastHiddenStates``."""

    model: Any

    @torch.inference_mode()
    def last_hidden_states(self, prompts: Sequence[Prompt]) -> Tensor:
        """(len(prompts), D) float32 on the CPU.

        Prompts are run one at a time, so that a prompt's state is the same in any batch.
        """
        device = self.model.get_input_embeddings().weight.device
        states = [
            self.model.base_model(torch.tensor([prompt.ids], device=device), use_cache=False)
            .last_hidden_state[0, -1]
            .float()
            .cpu()
            for prompt in prompts
        ]
        return torch.stack(states).clone() if states else torch.empty(0, self._head.weight.shape[-1])

    @torch.inference_mode()
    def lm_head(self, states: Tensor) -> Tensor:
        """(n, vocabulary) float32 on the CPU, for ``states`` (n, D)."""
        weight = self._head.weight
        return self._head(states.to(weight.device, weight.dtype)).float().cpu().clone()

    @property
    def _head(self) -> Any:
        return self.model.get_output_embeddings()
