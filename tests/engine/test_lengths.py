"""Every architecture, prompts of every length, batches of every size: the logits of one plain pass."""

import math
from collections import deque
from itertools import permutations

import pytest
import torch

from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.engine.huggingface.plain_runner import PlainRunner
from soft_reasoning.engine.huggingface.sequence import Sequence
from soft_reasoning.types import Request
from tests.engine.models import FAMILIES, HYBRIDS, OTHERS, VOCABULARY, tiny

LONGEST, STEPS = 33, 3
"""One position more than a block of keys; tokens that are fed after each prompt."""


class Texts:
    """Random texts, and the logits after each of their positions from one pass without a cache."""

    def __init__(self, model, count: int = 4, length: int = LONGEST + STEPS) -> None:
        generator = torch.Generator().manual_seed(1)
        self.ids = torch.randint(3, VOCABULARY, (count, length), generator=generator)
        self.width = model.get_input_embeddings().weight.shape[1]
        with torch.no_grad():
            self.logits = torch.stack([model(row[None]).logits[0].float() for row in self.ids])

    def sequence(self, index: int, length: int) -> Sequence:
        text = index % len(self.ids)
        ids = tuple(self.ids[text, :length].tolist())
        limits = {"hidden_size": self.width, "context_length": 2**31, "vocabulary": VOCABULARY}
        return Sequence(text, Request(ids, max_new_tokens=STEPS + 1), **limits)

    def worst(self, rows: list[Sequence], logits: torch.Tensor) -> float:
        """Largest error of ``logits`` (R, V), next tokens of ``rows``, relative to the logits' size."""
        expected = torch.stack([self.logits[row.ticket, row.position] for row in rows])
        return float((logits - expected).abs().max() / expected.abs().max())


@torch.inference_mode()
def worst_error(runner, texts: Texts, lengths: list[int], ends: tuple[int, ...] | None = None) -> float:
    """Serve a batch of prompts of ``lengths``, of which rows leave after each step.

    Args:
        ends: In which order rows leave, by their index in ``lengths``; without it the first, a middle
            and the last row leave, then all. Empty: only the prompts run.
    """
    waiting = deque(texts.sequence(i, length) for i, length in enumerate(lengths))
    rows = list(waiting)
    worst, running = 0.0, list[Sequence]()
    while waiting or running:
        if started := runner.admit(waiting, len(running)):
            worst = max(worst, texts.worst(started, runner.prefill(started)))
            running += started
        for end in (0, len(running) // 2, -1) if ends is None else ends:
            for row in running:
                row.ids.append(int(texts.ids[row.ticket, row.position + 1]))
            worst = max(worst, texts.worst(running, runner.decode(running)))
            leaves = running[end if len(running) > end else -1] if ends is None else rows[end]
            if leaves not in running:  # rows of other lengths wait for their turn
                continue
            running.remove(leaves)
            runner.release(leaves)
            if not running:
                break
        while running and not waiting:
            runner.release(running.pop())
    return worst


def runners(family: str):
    """The runner, whose passes have a multiple of 8 rows as on the CPU, then any as on a GPU, and texts."""
    model = tiny(family)
    for layer in model.modules():
        if hasattr(layer, "time_step_limit"):  # transformers applies it in a pass without a cache alone
            layer.time_step_limit = (0.0, math.inf)
    runner = HuggingFaceEngine.from_loaded(model, FakeTokenizer())._runner
    texts = Texts(model)
    yield runner, texts
    runner.padding = 1
    yield runner, texts


@pytest.mark.parametrize("family", sorted(FAMILIES | HYBRIDS))
def test_lengths_on_both_sides_of_a_padding_boundary(family):
    for runner, texts in runners(family):
        for lengths in ([8], [9], [32], [33], [8] * 9, [3, 5, 33, 7, 8]):
            assert worst_error(runner, texts, lengths) < 1e-3, (runner.padding, lengths)


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(FAMILIES | HYBRIDS | OTHERS))
def test_all_lengths_all_batches_and_all_orders(family):
    lengths = range(1, LONGEST + 1)
    sizes = range(17, 0, -3)  # three rows leave, one after each step: steps of 1 to 17 rows
    for runner, texts in runners(family):
        first = runner.padding != 1
        for length in lengths:
            error = worst_error(runner, texts, [length], None if first else ())
            assert error < 1e-3, (runner.padding, length)
        for rows in sizes:
            # A model's own cache takes rows of one length; over the block table any rows run together.
            equal = isinstance(runner, PlainRunner)
            some = [5 + rows if equal else 1 + (7 * row + rows) % LONGEST for row in range(rows)]
            assert worst_error(runner, texts, some) < 1e-3, (runner.padding, some)
        for order in permutations(range(3)) if first else ():
            assert worst_error(runner, texts, [31, 8, 9], order) < 1e-3, (runner.padding, order)
