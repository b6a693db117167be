"""Chooses at load time how to run a model, by running it on a few dozen tokens."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear

from soft_reasoning.engines.base import not_finite
from soft_reasoning.engines.devices import is_out_of_memory
from soft_reasoning.engines.huggingface.block_manager import BLOCK
from soft_reasoning.engines.huggingface.model_runner import ModelRunner
from soft_reasoning.engines.huggingface.plain_runner import PlainRunner
from soft_reasoning.engines.huggingface.sequence import Sequence
from soft_reasoning.engines.output import prepare
from soft_reasoning.types import Request, UserError

log: logging.Logger = logging.getLogger(__name__)

LONG = BLOCK + 8
"""Tokens of one prompt: a full block and a few more."""
ROWS, SHORT, STEPS = 9, 5, 4
"""A batch of ROWS prompts of SHORT tokens; each of STEPS steps feeds one more token, then ends a row."""
MAX_TOKENS = 2 * ROWS * BLOCK
LEAST_ROWS = (8, 16)
"""Paddings to try on the CPU in float32 until a row's bits do not depend on the other rows."""
CROWD = (8, 16, 24, 32, 64)
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Settings of mixtures: an expert's number of rows depends on the batch, which few tokens may not show."""
KINDS = {"full_attention", "sliding_attention"}
LENGTH_DEPENDENT = {"dynamic", "longrope"}
"""Rotary embeddings that change with the largest position of a pass."""


@torch.inference_mode()
def choose_runner(model: Any) -> ModelRunner | PlainRunner:
    """Return a :class:`ModelRunner` if it gives the model's own logits, else a :class:`PlainRunner`.

    Its ``max_tokens`` is small; ``resize`` sets it. A model that cannot read a block table causes a warning.
    If a cache gives wrong logits once rows have left a batch, the model runs one row at a time. The runner's
    ``batch_invariant`` tells whether a row has the same bits alone as in a batch.

    Raises:
        UserError: If the model's logits are not finite, or differ between embeddings and token ids.
    """
    with _without_time_step_limits(model):
        runner = _choose(model)
        _make_invariant(runner)
    return runner


def _choose(model: Any) -> ModelRunner | PlainRunner:
    config = model.config
    if config.model_type == "falcon" and config.alibi and config._attn_implementation == "eager":
        raise UserError(
            "cannot serve Falcon with alibi in eager attention: transformers adds its position bias twice "
            "there; take model.attn_implementation=sdpa"
        )
    try:
        texts = _texts(model)
    except Exception as error:  # a model's code may raise any error
        if is_out_of_memory(error):
            raise
        raise UserError(_refusal(model, f"a plain forward pass fails: {error}")) from error
    if not all(bool(logits.isfinite().all()) for _, _, logits in texts):
        raise UserError(not_finite(model.get_input_embeddings().weight.dtype))
    problem = _no_block_table(model)
    if not problem:
        runner = ModelRunner(model, max_tokens=MAX_TOKENS)
        problem = _problem(runner, texts)
        if not problem:
            return runner
    plain = PlainRunner(model, max_tokens=MAX_TOKENS)
    if _problem(plain, texts):
        plain.serve_rows_alone()
        if differs := _problem(plain, texts):
            raise UserError(_refusal(model, f"run from input embeddings, {differs}"))
        problem += "; its cache is wrong once a row has left a batch, so it runs one row at a time"
    name, reason = type(model).__name__, " ".join(problem.split())[:300]
    log.warning("%s runs without a shared prefix cache, which takes longer: %s", name, reason)
    return plain


def _make_invariant(runner: ModelRunner | PlainRunner) -> None:
    """Choose the padding with which a row's bits do not depend on other rows; set ``batch_invariant``."""
    config = runner.model.config.get_text_config()
    mixture = any(getattr(config, name, None) for name in EXPERTS) and runner.max_rows != 1
    if runner.device.type != "cpu" or runner.dtype != torch.float32 or mixture:
        return
    runner.batch_invariant = runner.max_rows == 1
    for padding in LEAST_ROWS:
        if not runner.batch_invariant:
            runner.padding = padding
            runner.batch_invariant = _rows_alike(runner)
    if not runner.batch_invariant:
        runner.padding = LEAST_ROWS[0]


def _rows_alike(runner: ModelRunner | PlainRunner) -> bool:
    """Whether a row has the same bits alone, in a batch, and with any number of rows in a linear layer."""
    layers = {module.weight.shape: module for module in runner.model.modules() if type(module) is Linear}
    for layer in layers.values():
        x = layer.weight[torch.arange(max(CROWD)) % len(layer.weight)]
        among = layer(x)
        counts = [count for count in CROWD if count % runner.padding == 0]
        if not all(torch.equal(layer(x[:count]), among[:count]) for count in counts):
            return False
    ids = _ids(len(runner.lookup.weight), ROWS, SHORT + STEPS)
    crowded, alone = _serve(runner, ids, SHORT), _serve(runner, ids[2:3], SHORT)
    return all(torch.equal(logits, crowded[2, position]) for (_, position), logits in alone.items())


def _texts(model: Any) -> list[tuple[Tensor, int, Tensor]]:
    """One long text, then several short texts: ids, length of the prompt, logits of a plain pass."""
    lookup = model.get_input_embeddings().weight
    texts = (_ids(len(lookup), 1, LONG + 1), LONG), (_ids(len(lookup), ROWS, SHORT + STEPS), SHORT)
    return [(ids, prompt, model(ids.to(lookup.device)).logits.float()) for ids, prompt in texts]


def _problem(runner: ModelRunner | PlainRunner, texts: list[tuple[Tensor, int, Tensor]]) -> str:
    """Why ``runner`` does not give the logits of ``texts``; empty if it does."""
    worst = 0.0
    try:
        for ids, prompt, expected in texts:
            for (row, position), logits in _serve(runner, ids, prompt).items():
                error = (logits - expected[row, position]).abs().max()
                worst = max(worst, float(error / expected.abs().max().clamp_min(1e-6)))
    except Exception as error:  # a model's code may raise any error
        if is_out_of_memory(error):
            raise
        return f"it fails: {error}"
    # Half precision differs by rounding alone; a wrong mask or scale differs by far more than this.
    tolerance = 1e-3 if runner.dtype == torch.float32 else 0.1
    return "" if worst < tolerance else f"its logits differ by {worst:.2g} of their size"


def _ids(vocabulary: int, rows: int, length: int) -> Tensor:
    """(rows, length) token ids; no two rows are alike."""
    place = torch.arange(length)
    return torch.stack([(7 * place + 3 + 31 * row + row * place) % vocabulary for row in range(rows)])


def _serve(runner: ModelRunner | PlainRunner, ids: Tensor, prompt: int) -> dict[tuple[int, int], Tensor]:
    """Logits by row and position of a batch of texts ``ids`` (R, L), whose prompts have ``prompt`` tokens.

    The last two tokens of a prompt are soft; the tokens after it are fed one by one. After each step a row
    ends: the first, the middle, the last.
    """
    waiting, logits = deque[Sequence](), dict[tuple[int, int], Tensor]()
    for row, text in enumerate(ids.tolist()):
        soft = runner.embed(text[prompt - 2 : prompt]).float()
        limits = {"hidden_size": soft.shape[1], "context_length": 2**31, "vocabulary": max(text) + 1}
        request = Request(tuple(text[: prompt - 2]), soft=soft, max_new_tokens=len(text) - prompt + 1)
        waiting.append(Sequence(row, prepare(request, **limits)))
    while waiting:
        running = runner.admit(waiting, 0)
        rows = runner.prefill(running)
        for step, position in enumerate(range(prompt - 1, ids.shape[1])):
            if step:
                for sequence in running:
                    sequence.ids.append(int(ids[sequence.ticket, position]))
                rows = runner.decode(running)
            logits |= {(s.ticket, position): row for s, row in zip(running, rows, strict=True)}
            if step and len(running) > 1:
                runner.release(running.pop((0, len(running) // 2, -1)[step % 3 - 1]))
        for sequence in running:
            runner.release(sequence)
    return logits


@contextmanager
def _without_time_step_limits(model: Any) -> Iterator[None]:
    """Compare Mamba-2 layers without the bound on time steps, which transformers applies only in long passes.

    With it, the model's steps with a cache differ from its pass over the whole sequence.
    """
    layers = [layer for layer in model.modules() if hasattr(layer, "time_step_limit")]
    limits = [layer.time_step_limit for layer in layers]
    for layer in layers:
        layer.time_step_limit = (0.0, math.inf)
    try:
        yield
    finally:
        for layer, limit in zip(layers, limits, strict=True):
            layer.time_step_limit = limit


def _no_block_table(model: Any) -> str:
    """Why ``model`` cannot read a block table by its configuration; empty if the probe should try."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or [])
    if not getattr(model, "_supports_attention_backend", False) or not kinds <= KINDS:
        return "its attention cannot be replaced here"
    rope = getattr(config, "rope_parameters", None) or {}
    types = {part.get("rope_type") for part in (rope, *rope.values()) if isinstance(part, dict)}
    if types & LENGTH_DEPENDENT:
        return "its rotary embeddings depend on the longest row of a pass"
    if len({weight.device for weight in model.parameters()} - {torch.device("meta")}) > 1:
        return "its layers are on several devices"
    return ""


def _refusal(model: Any, reason: str) -> str:
    name = type(model).__name__
    return f"cannot serve {name}: {' '.join(reason.split())[:300]}; choose another decoder-only model"
