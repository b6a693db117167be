"""Finds out at load time how a model can be run, by running it on a dozen tokens."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import torch
from torch import Tensor

from soft_reasoning.engines.allocation import is_out_of_memory
from soft_reasoning.engines.dense import DenseRunner
from soft_reasoning.engines.native import PagedAttention
from soft_reasoning.engines.paged import PagedRunner
from soft_reasoning.engines.planning import LEAST_SHARED, Job
from soft_reasoning.engines.runners import ModelCalls, PlainRunner, TreeRunner
from soft_reasoning.types import Request, UserError

log = logging.getLogger(__name__)

PREFILL_TOKENS = {"cpu": 2048, "cuda": 16384}
KINDS = {"full_attention", "sliding_attention"}
LENGTH_DEPENDENT = {"dynamic", "longrope"}
"""Rotary embeddings that change with the largest position of a pass. (What was read before stays as it is;
Phi-3's own loop reads it anew.)"""


@torch.inference_mode()
def choose_runner(
    calls: ModelCalls, *, kept_tokens: int, record: bool = False, attention: PagedAttention | None = None
) -> TreeRunner | PlainRunner:
    """A :class:`TreeRunner` if it gives the model's own logits, else a :class:`PlainRunner`.

    Where prefixes are shared, ``kept_tokens`` positions may be kept between batches, ``record`` asks for
    decode steps replayed as CUDA graphs, and ``attention`` over pages is taken if given.

    UserError for a model that gives other logits from embeddings than from the ids they belong to. A model
    whose prefixes are not shared gets a warning, once.
    """
    length = LEAST_SHARED + 8
    ids = tuple((7 * i + 3) % calls.lookup.weight.shape[0] for i in range(length))
    try:
        expected = calls.model(torch.tensor([ids], device=calls.device)).logits[0, -1].float()
    except Exception as error:  # whatever a foreign architecture raises is the reason to give
        if is_out_of_memory(error):
            raise
        raise UserError(_refusal(calls, f"a plain forward pass fails: {error}")) from error
    plain = PlainRunner(calls)
    problem = _differs(plain, ids, expected)
    plain.forget()
    if problem:
        raise UserError(_refusal(calls, f"run from input embeddings, {problem}"))
    problem = _unshared(calls.model)
    if problem:
        _tell_unshared(type(calls.model).__name__, problem)
        return plain
    most = PREFILL_TOKENS.get(calls.device.type, 16384)
    bounds = {"prefill_tokens": most, "kept_tokens": kept_tokens}
    tree = (
        PagedRunner(calls, attention, **bounds) if attention else DenseRunner(calls, record=record, **bounds)
    )
    problem = _differs(tree, ids, expected)
    if problem:
        _tell_unshared(type(calls.model).__name__, f"with them {problem}")
        return plain
    tree.forget()
    return tree


@cache
def _tell_unshared(name: str, reason: str) -> None:
    reason = " ".join(reason.split())[:300]
    log.warning("%s runs without shared prefixes, which takes longer: %s", name, reason)


def _unshared(model: Any) -> str:
    """Why the prefixes of ``model`` cannot be shared, whatever a short prompt says; empty if they may be."""
    config = model.config.get_text_config()
    kinds = set(getattr(config, "layer_types", None) or [])
    if not getattr(model, "_supports_attention_backend", False) or not kinds <= KINDS:
        return "its attention is not one that can be replaced here"
    rope = getattr(config, "rope_parameters", None) or {}
    found = {some.get("rope_type") for some in (rope, *rope.values()) if isinstance(some, dict)}
    if found & LENGTH_DEPENDENT:
        return "its rotary embeddings depend on the longest row of a pass"
    if len({weight.device for weight in model.parameters()} - {torch.device("meta")}) > 1:
        return "its layers lie on several devices"
    return ""


def _differs(runner: TreeRunner | PlainRunner, ids: tuple[int, ...], expected: Tensor) -> str:
    """Why ``runner`` does not give ``expected`` after ``ids``, fed in every way; empty if it does."""
    cut = len(ids) - 3
    soft = runner.calls.embed(ids[cut:-1]).float()
    job = Job(0, Request(ids, soft=soft), ids[:cut], (LEAST_SHARED, cut), 1, (), soft, 1)
    try:
        runner.start([job])
        logits = runner.step(torch.tensor([ids[-1]] * runner.batch_size(1)))[0]
    except Exception as error:  # as above
        if is_out_of_memory(error):
            raise
        return f"it fails: {error}"
    # Half precision differs by rounding alone; a wrong mask or scale differs by far more than this.
    tolerance = 1e-3 if runner.calls.dtype == torch.float32 else 0.1
    error = float((logits - expected).abs().max() / expected.abs().max().clamp_min(1e-6))
    return "" if error < tolerance else f"its logits differ by {error:.2g} of their size"


def _refusal(calls: ModelCalls, reason: str) -> str:
    name = type(calls.model).__name__
    return f"cannot serve {name}: {' '.join(reason.split())[:300]}; choose another decoder-only model"
