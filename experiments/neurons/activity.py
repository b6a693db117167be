"""Which feed-forward neurons fire in right answers (paper, Appendix "Neuron Activation Analysis").

Everything here is arithmetic on recorded gates. A neuron is active if its activation exceeds zero, for SiLU
and GELU if its gate does. Activations are means over the first five answer tokens without the first ``skip``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from experiments.neurons.hooks import Neurons
from soft_reasoning.types import UserError, generator_for

TOKENS = 5
"""Number of first answer tokens, with soft tokens, whose activations count."""
MOST_FREQUENT, LARGEST_DIFFERENCE = 0.25, 0.20
"""Key neurons: the most frequently active neurons with the largest difference."""


@dataclass(frozen=True)
class Sample:
    """A completion and the place of its soft tokens.

    Attributes:
        prompt: Token ids of the prompt.
        soft: (m, D) embeddings inserted at ``position``, or None.
        tokens: Token ids of the answer.
        round: Round of the search.
        right: Whether the answer is right.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    right: bool
    soft: Tensor | None = None
    position: int | None = None
    round: int = 0

    def counted(self, skip: int) -> range:
        """Return the indices of the tokens that count; soft tokens after the prompt come before them."""
        behind = self.soft is not None and self.position in (None, len(self.prompt))
        soft = len(self.soft) if self.soft is not None and behind else 0
        return range(max(0, skip - soft), min(TOKENS - soft, len(self.tokens)))


@dataclass(frozen=True)
class Activity:
    """The activity of neurons in n samples.

    Attributes:
        rate: (n, layers, width) share of tokens with the neuron active.
        value: (n, layers, width) the neuron's mean activation.
        right: (n,) whether each sample is right.
        round: (n,) the round of each sample.
    """

    rate: Tensor
    value: Tensor
    right: Tensor
    round: Tensor

    def __getitem__(self, which: Tensor) -> Activity:
        """The samples of an index or a mask."""
        return Activity(self.rate[which], self.value[which], self.right[which], self.round[which])


def record(
    samples: Sequence[Sample], neurons: Neurons, embed: Any, *, skip: int = 0, batch: int = 32
) -> Activity:
    """Record the activity of ``samples`` in a pass each over prompt and first five answer tokens.

    Soft tokens after a prompt are the answer's first tokens and do not count. Methods are compared at equal
    positions if ``skip``, the number of soft tokens, leaves out as many tokens of other methods. ``embed``
    returns (len(ids), D) embeddings like the model's lookup.

    Raises:
        UserError: If a sample has no token that counts.
    """
    counted = [sample.counted(skip) for sample in samples]
    if not all(counted):
        raise UserError(
            "expected completions with tokens that count, got an empty one; choose another question"
        )
    weight, activate = next(neurons.model.parameters()), _activation(neurons.model)
    rates, values = [], []
    for start in range(0, len(samples), batch):
        part = samples[start : start + batch]
        rows = [_inputs(sample, embed) for sample in part]
        inputs = pad_sequence(rows, batch_first=True)
        mask = pad_sequence([torch.ones(len(row), dtype=torch.long) for row in rows], batch_first=True)
        gates = neurons.record(inputs.to(weight), mask.to(weight.device))
        for i, (sample, row) in enumerate(zip(part, rows, strict=True)):
            answer, span = len(row) - len(sample.tokens[:TOKENS]), counted[start + i]
            answer_gates = gates[:, i, answer + span.start : answer + span.stop]
            rates.append((answer_gates > 0).float().mean(dim=1))
            values.append(activate(answer_gates).mean(dim=1))
    right, rounds = ([getattr(sample, name) for sample in samples] for name in ("right", "round"))
    return Activity(torch.stack(rates), torch.stack(values), torch.tensor(right), torch.tensor(rounds))


def key_neurons(activity: Activity) -> Tensor:
    """(layers, width) booleans: the neurons with stronger activation in right answers.

    Of the 25 % most frequently active neurons over all layers, these are the 20 % with the largest positive
    difference in activation between right and wrong answers.

    Raises:
        UserError: If all samples are right or all are wrong.
    """
    right = activity.right
    if right.all() or not right.any():
        raise UserError("expected right and wrong completions, got one kind; choose another question")
    frequency = activity.rate.mean(dim=0).flatten()
    difference = (activity.value[right].mean(dim=0) - activity.value[~right].mean(dim=0)).flatten()
    frequent = frequency.topk(round(MOST_FREQUENT * frequency.numel())).indices
    count = round(LARGEST_DIFFERENCE * len(frequent))
    chosen = frequent[difference[frequent].topk(count).indices]
    keys = torch.zeros(frequency.numel(), dtype=torch.bool)
    keys[chosen[difference[chosen] > 0]] = True
    return keys.view(activity.rate.shape[1:])


def random_neurons(keys: Tensor, *, by_layer: bool, seed: int, name: str) -> Tensor:
    """(layers, width) booleans: a random control of the size of ``keys`` that avoids them.

    With ``by_layer`` each layer gets as many neurons as it has key neurons.
    """
    generator = generator_for(seed, name, "random neurons", by_layer)
    draws, chosen = torch.rand(keys.shape, generator=generator).masked_fill(keys, -1), torch.zeros_like(keys)
    parts = (keys, draws, chosen) if by_layer else (x.view(1, -1) for x in (keys, draws, chosen))
    for layer_keys, layer_draws, layer_chosen in zip(*parts, strict=True):
        layer_chosen[layer_draws.topk(min(int(layer_keys.sum()), int((~layer_keys).sum()))).indices] = True
    return chosen


def layer_rates(activity: Activity, among: Tensor | None = None) -> Tensor:
    """(layers,) activation rates: means over samples, tokens and neurons.

    With ``among``, over these neurons alone; a layer without any is NaN.
    """
    rate = activity.rate.mean(dim=0)
    if among is None:
        return rate.mean(dim=1)
    return torch.stack([row[chosen].mean() for row, chosen in zip(rate, among, strict=True)])


def mean_rate(activity: Activity, among: Tensor | None = None) -> float:
    """Return the activation rate over all neurons, or over ``among``."""
    rate = activity.rate.mean(dim=0)
    return float(rate.mean() if among is None else rate[among].mean())


def _inputs(sample: Sample, embed: Any) -> Tensor:
    """(length, D): prompt, soft tokens in their place, and the first answer tokens."""
    answer = sample.tokens[:TOKENS]
    rows = embed([*sample.prompt, *answer])
    if sample.soft is None:
        return rows
    at = len(sample.prompt) if sample.position is None else sample.position
    return torch.cat([rows[:at], sample.soft.to(rows), rows[at:]])


def _activation(model: Any) -> Any:
    """The model's activation function."""
    from transformers.activations import ACT2FN

    config = model.config.get_text_config()
    return ACT2FN[getattr(config, "hidden_act", None) or config.hidden_activation]
