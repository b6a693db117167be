"""Hidden states, the LM head and gradients of a loaded transformers model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutput

from soft_reasoning.engines.base import Engine
from soft_reasoning.engines.running import RunningRequest
from soft_reasoning.types import Request, UserError

ROWS = 128
"""States whose logits are in memory at a time."""
PROBED = 8
"""Tokens of the pass that checks the layers and the head against the whole model."""


class DifferentiableEngine(Engine):
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
            for row in [self.prepare(request) for request in requests]:
                embeddings = self._embeddings(row, row.soft)
                states.append(self._layers_and_head[0](embeddings)[0].float().cpu().clone())
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
        row = self.prepare(request)
        if row.soft is None:
            raise ValueError("expected a request with soft tokens, got none")
        with self.lock, torch.enable_grad():
            soft = row.soft.detach().clone().requires_grad_()
            logits = self.model(inputs_embeds=self._embeddings(row, soft), use_cache=False).logits[0]
            value = objective(logits[len(row.head) :].float())
            [gradient] = torch.autograd.grad(value, soft)
        return float(value.detach()), gradient.float().cpu()

    def _logits(self, states: Tensor) -> Tensor:
        """(n, vocabulary) float32: the LM head's output, scaled and capped as in the model."""
        weight = self.model.get_output_embeddings().weight
        return self._layers_and_head[1](states.to(weight.device, weight.dtype).unsqueeze(0))[0].float()

    @cached_property
    def _layers_and_head(self) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
        """The model's layers, from embeddings to states, and the rest, from states to logits.

        The rest is the model's own code, in a copy whose layers return their input, since models scale
        and cap their logits in many ways.

        Raises:
            UserError: If the two together do not give the model's logits.
        """
        reason = ""
        for layers in _candidates(self.model):
            shared = {id(x): x for x in self.model.parameters()}
            parts = _states(layers), _logits(copy.deepcopy(self.model, {**shared, id(layers): Given(layers)}))
            reason = self._difference(*parts)
            if not reason:
                return parts
        raise UserError(
            "LMHead: expected a model whose layers and LM head can be run apart, got "
            f"{type(self.model).__name__} ({reason}); choose another model or method"
        )

    @torch.inference_mode()
    def _difference(self, layers: Callable[[Tensor], Tensor], head: Callable[[Tensor], Tensor]) -> str:
        """How ``head`` after ``layers`` differs from the whole model; empty if they agree."""
        embeddings = self.embed(range(PROBED)).to(self.device, self._weight.dtype).unsqueeze(0)
        expected = _logits(self.model)(embeddings.clone()).float()  # some models change their input
        try:
            actual = head(layers(embeddings)).float()
        except Exception as error:  # a model's code may raise any error
            return " ".join(f"{type(error).__name__}: {error}".split())[:200]
        tolerance = 1e-3 * float(expected.abs().max())
        same = actual.shape == expected.shape and torch.allclose(actual, expected, rtol=0.0, atol=tolerance)
        return "" if same else "its logits differ"

    def close(self) -> None:
        """Forget the copy of the model's head, which holds weights."""
        self.__dict__.pop("_layers_and_head", None)
        super().close()

    def _embeddings(self, row: RunningRequest, soft: Tensor | None) -> Tensor:
        """(1, n, D): the prompt's embeddings, with ``soft`` between head and tail."""
        middle = self.embed([]) if soft is None else soft
        rows = torch.cat([self.embed(row.head), middle, self.embed(row.tail)])
        return rows.to(self.device, self._weight.dtype).unsqueeze(0)


class Given(torch.nn.Module):
    """Stands in for a model's layers: returns its input embeddings as their states.

    Its attributes are those of the layers.
    """

    def __init__(self, layers: Any) -> None:
        super().__init__()
        self.__dict__["layers"] = layers  # no part of this module

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["layers"], name)

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> BaseModelOutput:
        return Output(last_hidden_state=inputs_embeds)


class Output(BaseModelOutput):
    """An output whose other fields, which some models name, are None."""

    def __getattr__(self, name: str) -> None:
        return None


def _candidates(model: Any) -> Iterator[Any]:
    """Yield the modules that may be the model's layers, embeddings included."""
    lookup = model.get_input_embeddings()
    yield from (part for part in model.children() if any(module is lookup for module in part.modules()))
    yield model.get_decoder()


def _states(layers: Any) -> Callable[[Tensor], Tensor]:
    return lambda embeddings: layers(inputs_embeds=embeddings, use_cache=False).last_hidden_state


def _logits(model: Any) -> Callable[[Tensor], Tensor]:
    return lambda embeddings: model(inputs_embeds=embeddings, use_cache=False).logits
