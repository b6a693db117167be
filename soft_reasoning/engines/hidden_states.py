"""Hidden states, the LM head and gradients of a loaded transformers model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import RLock
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engines.base import PreparedRequest
from soft_reasoning.types import Request


class ShowsHiddenStates:
    """Gives an engine with a transformers ``model`` some of the protocols in ``engines.abilities``.

    They are ``HiddenStates``, ``LMHead`` and ``SoftTokenGradients``. Requests are run one at a time by the
    model's own attention, so a result is the same in any batch.
    """

    model: Any
    lock: RLock

    def check(self, request: Request) -> PreparedRequest:
        """Cut ``request`` at its soft tokens."""
        raise NotImplementedError

    @torch.inference_mode()
    def hidden_states(self, requests: Sequence[Request]) -> list[Tensor]:
        """(n, D) float32 on the CPU for each prompt."""
        states = []
        with self.lock:
            for prepared in [self.check(request) for request in requests]:
                embeddings = self._embeddings(prepared, prepared.soft)
                output = self.model.base_model(inputs_embeds=embeddings, use_cache=False)
                states.append(output.last_hidden_state[0].float().cpu().clone())
        return states

    @torch.inference_mode()
    def lm_head(self, states: Tensor) -> Tensor:
        """(n, vocabulary) float32 on the CPU, for ``states`` (n, D)."""
        head = self.model.get_output_embeddings()
        return head(states.to(head.weight.device, head.weight.dtype)).float().cpu().clone()

    def soft_gradient(self, request: Request, objective: Callable[[Tensor], Tensor]) -> tuple[float, Tensor]:
        """The value and the gradient (m, D) of ``objective``."""
        prepared = self.check(request)
        if prepared.soft is None:
            raise ValueError("expected a request with soft tokens, got one without")
        with self.lock, torch.enable_grad():
            soft = prepared.soft.detach().clone().requires_grad_()
            logits = self.model(inputs_embeds=self._embeddings(prepared, soft), use_cache=False).logits[0]
            value = objective(logits[len(prepared.head) :].float())
            [gradient] = torch.autograd.grad(value, soft)
        return float(value.detach()), gradient.float().cpu()

    def _embeddings(self, prepared: PreparedRequest, soft: Tensor | None) -> Tensor:
        """(1, n, D): the prompt's embeddings with ``soft`` in their place."""
        lookup = self.model.get_input_embeddings()
        device, dtype = lookup.weight.device, lookup.weight.dtype
        with torch.no_grad():
            head, tail = (
                lookup(torch.tensor([part], dtype=torch.long, device=device))
                for part in (prepared.head, prepared.tail)
            )
        middle = [] if soft is None else [soft.to(device, dtype).unsqueeze(0)]
        return torch.cat([head, *middle, tail], dim=1)
