"""Chooses at load time how to run a model, by running it on a few dozen tokens."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear

from soft_reasoning.engine.base import not_finite
from soft_reasoning.engine.devices import is_out_of_memory
from soft_reasoning.engine.huggingface.block_manager import BLOCK
from soft_reasoning.engine.huggingface.model_runner import ModelRunner
from soft_reasoning.engine.huggingface.plain_runner import PlainRunner
from soft_reasoning.engine.huggingface.sequence import Sequence
from soft_reasoning.types import Request, UserError

log: logging.Logger = logging.getLogger(__name__)

LONG = BLOCK + 8
"""Tokens of one prompt: a full block and a few more."""
ROWS, SHORT, STEPS = 9, 5, 4
"""A batch of ROWS prompts of SHORT tokens; each of STEPS steps feeds one more token, then ends a row."""
SHAPES = ((1, LONG + 1, LONG), (ROWS, SHORT + STEPS, SHORT))
"""One long text, then several short texts: rows, tokens, tokens of the prompt."""
MAX_TOKENS = 2 * ROWS * BLOCK
LEAST_ROWS = (8, 16)
"""Paddings to try on the CPU in float32 until a row's bits do not depend on the other rows."""
CROWD = (8, 16, 24, 32, 64)
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Settings of mixtures: an expert's number of rows depends on the batch, which few tokens may not show."""
TOLERANCE, TOLERANCE_IN_HALF = 1e-3, 0.05
"""Differences relative to the logits' size: those of rounding are smaller, of a wrong mask far larger."""
WORSE = 3
"""How much farther from float32 a runner may be than the model itself in half precision; rounding varies."""
KINDS = {"full_attention", "sliding_attention"}
LENGTH_DEPENDENT = {"dynamic", "longrope"}
"""Rotary embeddings that change with the largest position of a pass."""


@torch.inference_mode()
def choose_runner(model: Any) -> ModelRunner | PlainRunner:
    """Return a :class:`ModelRunner` if it gives the model's own logits, else a :class:`PlainRunner`.

    Its ``max_tokens`` is small; ``resize`` sets it. A model that cannot read a block table causes a warning.
    The runner's ``batch_invariant`` is whether a row has the same bits alone as in a batch.

    Raises:
        UserError: If the model's logits are not finite, differ between embeddings and token ids, or are wrong
            once a row has left a batch.
    """
    with _without_time_step_limits(model):
        runner = _choose(model)
        _make_invariant(runner)
    return runner


def _choose(model: Any) -> ModelRunner | PlainRunner:
    try:
        texts = [_Text(model, rows, length, prompt) for rows, length, prompt in SHAPES]
    except Exception as error:  # a model's code may raise any error
        if is_out_of_memory(error):
            raise
        raise UserError(_refusal(model, f"a plain forward pass fails: {error}")) from error
    if not all(bool(text.own.isfinite().all()) for text in texts):
        raise UserError(not_finite(model.get_input_embeddings().weight.dtype))
    problem = _no_block_table(model)
    if not problem:
        runner = ModelRunner(model, max_tokens=MAX_TOKENS)
        problem = _problem(runner, texts)
        if not problem:
            return runner
    plain = PlainRunner(model, max_tokens=MAX_TOKENS)
    if differs := _problem(plain, texts):
        raise UserError(_refusal(model, f"run from input embeddings, {differs}"))
    name = type(model).__name__
    log.warning("%s runs without a shared prefix cache, which takes longer: %s", name, _line(problem))
    return plain


def _make_invariant(runner: ModelRunner | PlainRunner) -> None:
    """Choose the padding with which a row's bits do not depend on other rows; set ``batch_invariant``."""
    config = runner.model.config.get_text_config()
    mixture = any(getattr(config, name, None) for name in EXPERTS)
    if runner.device.type != "cpu" or runner.dtype != torch.float32 or mixture:
        return
    for padding in LEAST_ROWS:
        runner.padding = padding
        if _rows_alike(runner):
            runner.batch_invariant = True
            return
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


class _Text:
    """Token ids (R, L), the length of their prompts, and their logits (R, L, V) in a plain pass.

    ``exact`` are those of a pass in float32; None if the model computes in float32 anyway, or cannot.
    """

    def __init__(self, model: Any, rows: int, length: int, prompt: int) -> None:
        lookup = model.get_input_embeddings().weight
        self.ids = _ids(len(lookup), rows, length)
        self.prompt = prompt
        self.own: Tensor = model(self.ids.to(lookup.device)).logits.float()
        self.exact: Tensor | None = None
        if lookup.dtype != torch.float32 and not getattr(model, "is_quantized", False):
            try:
                with in_float32(model):
                    self.exact = model(self.ids.to(lookup.device)).logits
            except RuntimeError as error:  # a layer that reads the weights of another (Jamba)
                if is_out_of_memory(error):
                    raise
                log.info("runners are compared in half precision: no pass in float32 (%s)", error)


@contextmanager
def in_float32(model: Any) -> Generator[None]:
    """Compute in float32 with the weights of ``model``, which are converted while their layer runs."""
    stored: dict[int, dict[str, Any]] = {}

    def widen(module: Any, inputs: Any) -> None:
        stored[id(module)] = dict(module._parameters)
        for name, weight in module._parameters.items():
            if weight is not None and weight.is_floating_point():
                module._parameters[name] = torch.nn.Parameter(weight.float(), requires_grad=False)

    def restore(module: Any, inputs: Any, output: Any) -> None:
        module._parameters.update(stored.pop(id(module)))

    handles = []
    for module in model.modules():
        if module._parameters:
            handles.append(module.register_forward_pre_hook(widen))
            handles.append(module.register_forward_hook(restore, always_call=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def divergence(logits: Tensor, exact: Tensor) -> float:
    """The mean KL divergence (nats) of the distributions of ``logits`` (..., V) from those of ``exact``."""
    log, other = (x.cpu().double().log_softmax(-1) for x in (exact, logits))  # mps has no float64
    return float((log.exp() * (log - other)).sum(-1).mean())


def _problem(runner: ModelRunner | PlainRunner, texts: list[_Text]) -> str:
    """Why ``runner`` does not reproduce the logits of the model's own passes; empty if it does."""
    for text in texts:
        try:
            served = _serve(runner, text.ids, text.prompt)
        except Exception as error:  # a model's code may raise any error
            if is_out_of_memory(error):
                raise
            return f"it fails: {error}"
        places, logits = tuple(zip(*served, strict=True)), torch.stack(list(served.values())).float()
        own = text.own[places]
        if text.exact is None:
            error = float((logits - own).abs().amax() / own.abs().amax().clamp_min(1e-6))
            if not error < (TOLERANCE if runner.dtype == torch.float32 else TOLERANCE_IN_HALF):
                return f"its logits differ by {error:.2g} of their size"
        else:
            exact = text.exact[places]
            ours, theirs = divergence(logits, exact), divergence(own, exact)
            if not ours < WORSE * theirs + 1e-4:
                return f"it is {ours:.2g} nats from float32, the model itself {theirs:.2g}"
    return ""


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
        waiting.append(Sequence(row, request, **limits))
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
def _without_time_step_limits(model: Any) -> Generator[None]:
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
    """Why ``model`` cannot read a block table by its configuration; empty if it should be tried."""
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
    return f"cannot serve {type(model).__name__}: {_line(reason)}; choose another decoder-only model"


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
