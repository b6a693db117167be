"""Hidden states, the LM head and gradients of a loaded transformers model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from soft_reasoning.engines.base import Engine
from soft_reasoning.engines.output import PreparedRequest
from soft_reasoning.types import Request

ROWS = 128
"""States whose logits are in memory at a time."""


class OpenModel(Engine):
    """An engine whose transformers ``model`` can be read and differentiated. It has all abilities.

    Requests run one at a time with the model's original attention. So a result does not depend on a batch,
    and memory is that of a single request.
    """

    adjusts_logits = True
    feeds_embeddings = True

    @torch.inference_mode()
    def hidden_states(self, requests: Sequence[Request]) -> list[Tensor]:
        """See :class:`~soft_reasoning.engines.abilities.HiddenStates`."""
        states = []
        with self.lock:
            for prepared in [self.check(request) for request in requests]:
                embeddings = self._embeddings(prepared, prepared.soft)
                output = self.model.base_model(inputs_embeds=embeddings, use_cache=False)
                states.append(output.last_hidden_state[0].float().cpu().clone())
        return states

    @torch.inference_mode()
    def lm_head(self, states: Tensor) -> Tensor:
        """See :class:`~soft_reasoning.engines.abilities.LMHead`."""
        return self._logits(states).cpu().clone()

    @property
    def lm_head_share(self) -> float:
        """See :class:`~soft_reasoning.engines.abilities.LMHead`."""
        head, lookup = self.model.get_output_embeddings().weight, self.model.get_input_embeddings().weight
        weights = self.model.num_parameters() - (0 if head is lookup else lookup.numel())
        return head.numel() / weights

    def lm_head_gradient(
        self, states: Tensor, objective: Callable[[Tensor, slice], Tensor]
    ) -> tuple[float, Tensor]:
        """See :class:`~soft_reasoning.engines.abilities.LMHead`."""
        total, gradients = 0.0, []
        with self.lock, torch.enable_grad():
            for start in range(0, len(states), ROWS):
                chunk = states[start : start + ROWS].detach().clone().requires_grad_()
                value = objective(self._logits(chunk), slice(start, start + len(chunk)))
                gradients += torch.autograd.grad(value, chunk)
                total += float(value.detach())
        return total, torch.cat(gradients).float().cpu()

    def soft_gradient(self, request: Request, objective: Callable[[Tensor], Tensor]) -> tuple[float, Tensor]:
        """See :class:`~soft_reasoning.engines.abilities.SoftTokenGradients`."""
        prepared = self.check(request)
        if prepared.soft is None:
            raise ValueError("expected a request with soft tokens, got none")
        with self.lock, torch.enable_grad():
            soft = prepared.soft.detach().clone().requires_grad_()
            logits = self.model(inputs_embeds=self._embeddings(prepared, soft), use_cache=False).logits[0]
            value = objective(logits[len(prepared.head) :].float())
            [gradient] = torch.autograd.grad(value, soft)
        return float(value.detach()), gradient.float().cpu()

    def _logits(self, states: Tensor) -> Tensor:
        """(n, vocabulary) float32: the LM head's output, scaled and capped as in the model."""
        head, config = self.model.get_output_embeddings(), self.model.config
        logits = head(states.to(head.weight.device, head.weight.dtype)).float()
        logits = logits * (getattr(config, "logit_scale", None) or 1.0)  # Cohere
        logits = logits / (getattr(config, "logits_scaling", None) or 1.0)  # Granite
        cap = getattr(config, "final_logit_softcapping", None)  # Gemma 2
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def _embeddings(self, prepared: PreparedRequest, soft: Tensor | None) -> Tensor:
        """(1, n, D): the prompt's embeddings, with ``soft`` between head and tail."""
        middle = self.embed([]) if soft is None else soft
        rows = torch.cat([self.embed(prepared.head), middle, self.embed(prepared.tail)])
        return rows.to(self.device, self._weight.dtype).unsqueeze(0)
