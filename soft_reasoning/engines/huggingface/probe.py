"""Finding out at load time how a model can be run, by running it on a few dozen tokens."""

from __future__ import annotations

import copy
import logging
import math
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engines.base import prepare
from soft_reasoning.engines.devices import is_out_of_memory
from soft_reasoning.engines.huggingface.attention import NAME
from soft_reasoning.engines.huggingface.block_manager import BLOCK
from soft_reasoning.engines.huggingface.model_runner import ModelCalls, ModelRunner
from soft_reasoning.engines.huggingface.plain_runner import PlainRunner
from soft_reasoning.engines.huggingface.sequence import Sequence
from soft_reasoning.types import Request, UserError

log: logging.Logger = logging.getLogger(__name__)

PROBE_TOKENS = BLOCK + 8
"""One full block and a few more tokens."""
KINDS = {"full_attention", "sliding_attention"}
LENGTH_DEPENDENT = {"dynamic", "longrope"}
"""Rotary embeddings that change with the largest position of a pass."""


@torch.inference_mode()
def choose_runner(model: Any) -> ModelRunner | PlainRunner:
    """Return a :class:`ModelRunner` if it gives the model's own logits, else a :class:`PlainRunner`.

    Its ``max_tokens`` is small; ``resize`` sets it. A model without a block table causes one warning.

    Raises:
        UserError: If the model's logits are not finite, or differ between embeddings and token ids.
    """
    with _without_time_step_limits(model):
        return _choose(model)


def _choose(model: Any) -> ModelRunner | PlainRunner:
    calls = ModelCalls(model)
    ids = tuple((7 * i + 3) % calls.lookup.weight.shape[0] for i in range(PROBE_TOKENS))
    try:
        expected = model(torch.tensor([ids], device=calls.device)).logits[0, -1].float()
    except Exception as error:  # any error of a foreign architecture is the reason to give
        if is_out_of_memory(error):
            raise
        raise UserError(_refusal(model, f"a plain forward pass fails: {error}")) from error
    if not bool(expected.isfinite().all()):
        raise UserError(not_finite(calls.dtype))
    problem = _no_block_table(model)
    if not problem:
        runner = ModelRunner(ModelCalls(_with_block_attention(model)), max_tokens=2 * PROBE_TOKENS)
        problem = _differs(runner, ids, expected)
        if not problem:
            return runner
    plain = PlainRunner(calls, max_tokens=2 * PROBE_TOKENS)
    differs = _differs(plain, ids, expected)
    if differs:
        raise UserError(_refusal(model, f"run from input embeddings, {differs}"))
    _warn_plain(type(model).__name__, problem)
    return plain


@contextmanager
def _without_time_step_limits(model: Any) -> Iterator[None]:
    """Compare Mamba-2 layers without the bound on time steps that transformers has in a long pass alone.

    With it, the model's own steps with a cache differ from its pass over the whole sequence.
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


def not_finite(dtype: torch.dtype) -> str:
    """Say in one line that logits are NaN or infinite."""
    advice = "model.dtype=bfloat16, which has float32's range" if dtype == torch.float16 else "other weights"
    return (
        f"expected finite logits, got NaN or infinity from a model in {str(dtype).removeprefix('torch.')}; "
        f"its numbers overflow or its weights are damaged: take {advice} or model.dtype=float32"
    )


def _with_block_attention(model: Any) -> Any:
    """A copy of ``model`` that shares its weights and attends over the block table."""
    weights = {id(x): x for x in (*model.parameters(), *model.buffers())}
    view = copy.deepcopy(model, weights)
    view.set_attn_implementation(NAME)
    return view


@cache
def _warn_plain(name: str, reason: str) -> None:
    reason = " ".join(reason.split())[:300]
    log.warning("%s runs without a shared prefix cache, which takes longer: %s", name, reason)


def _no_block_table(model: Any) -> str:
    """Why ``model`` cannot read a block table, independent of the probe; empty if it may."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or [])
    if not getattr(model, "_supports_attention_backend", False) or not kinds <= KINDS:
        return "its attention is not one that can be replaced here"
    rope = getattr(config, "rope_parameters", None) or {}
    found = {some.get("rope_type") for some in (rope, *rope.values()) if isinstance(some, dict)}
    if found & LENGTH_DEPENDENT:
        return "its rotary embeddings depend on the longest row of a pass"
    if len({weight.device for weight in model.parameters()} - {torch.device("meta")}) > 1:
        return "its layers are on several devices"
    return ""


def _differs(runner: ModelRunner | PlainRunner, ids: tuple[int, ...], expected: Tensor) -> str:
    """Why ``runner`` does not give ``expected`` after ``ids``; empty if it does.

    All but three are fed as ids, then two as soft tokens, and the last one as a generated token.
    """
    cut = len(ids) - 3
    soft = runner.calls.embed(list(ids[cut:-1])).float()
    limits = {"hidden_size": soft.shape[1], "context_length": 2**31, "vocabulary": max(ids) + 1}
    prepared = prepare(Request(ids[:cut], soft=soft, max_new_tokens=2), **limits)
    sequence = Sequence(0, prepared)
    try:
        [sequence] = runner.admit(deque([sequence]), 0)
        runner.prefill([sequence])
        sequence.output.ids.append(ids[-1])
        logits = runner.decode([sequence])[0]
        runner.release(sequence)
    except Exception as error:  # as above
        if is_out_of_memory(error):
            raise
        return f"it fails: {error}"
    # Half precision differs by rounding alone; a wrong mask or scale differs by far more than this.
    tolerance = 1e-3 if runner.calls.dtype == torch.float32 else 0.1
    error = float((logits - expected).abs().max() / expected.abs().max().clamp_min(1e-6))
    return "" if error < tolerance else f"its logits differ by {error:.2g} of their size"


def _refusal(model: Any, reason: str) -> str:
    name = type(model).__name__
    return f"cannot serve {name}: {' '.join(reason.split())[:300]}; choose another decoder-only model"
