"""Fine-tuning of LoRA adapters with the constrained objective; a killed training resumes.

The reference is the same model with its adapters switched off, so one copy of the weights serves both.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from soft_reasoning.checks import form, real, whole
from soft_reasoning.display import Display
from soft_reasoning.finetuning.examples import Example, parts
from soft_reasoning.finetuning.objective import strengths, token_losses, token_weights
from soft_reasoning.types import UserError, generator_for, seed_for

STATE = "state.pt"
CHECKPOINT_SECONDS = 30.0
"""Seconds of work that a kill may lose."""
RECENT = 20
"""Number of steps whose means are shown."""
CLIP = 1.0
"""Largest norm of a step's gradient."""


@dataclass(frozen=True)
class Finetuning:
    """Settings of a fine-tuning: LoRA on every linear layer of attention and MLP, trained by AdamW.

    There is no dropout and no weight decay. The learning rate rises over ``warmup_steps`` and falls
    linearly to 0.

    Args:
        examples: Training rows; None is all.
        epochs: Passes over them.
        batch_size: Rows per step.
        learning_rate: The largest.
        warmup_steps: Steps until it is reached.
        beta1: AdamW's first moment.
        rank: Rank of the adapters.
        alpha: Their scale is ``alpha / rank``.
        b_first: Strength of the first token; with ``b_early``, ``early_tokens`` and ``b_rest`` as in
            ``objective.strengths``.
        max_length: Most tokens of an example.
        response: Template of the response.
        part_tokens: Most tokens per forward pass; changes results only by rounding.
        folder: Where adapters are stored.

    Raises:
        UserError: For a value out of its range.
    """

    examples: int | None = None
    epochs: int = 3
    batch_size: int = 16
    learning_rate: float = 1e-4
    warmup_steps: int = 10
    beta1: float = 0.5
    rank: int = 16
    alpha: float = 32
    b_first: float = 0.5
    b_early: float = 2.0
    early_tokens: int = 5
    b_rest: float = 0.1
    max_length: int = 512
    response: str = "{thought}\nAnswer: {answer}\n"
    part_tokens: int = 4096
    folder: str = "runs/adapters"

    def __post_init__(self) -> None:
        for key in ("epochs", "batch_size", "rank", "max_length", "part_tokens"):
            whole(f"finetuning.{key}", getattr(self, key), least=1)
        if self.examples is not None:
            whole("finetuning.examples", self.examples, least=1)
        for key in ("warmup_steps", "early_tokens"):
            whole(f"finetuning.{key}", getattr(self, key), least=0)
        for key in ("learning_rate", "alpha", "b_first", "b_early", "b_rest"):
            real(f"finetuning.{key}", getattr(self, key), above=0)
        real("finetuning.beta1", self.beta1, least=0, below=1)
        form("finetuning.response", self.response, {"thought": "", "answer": ""}, needed=["answer"])


def with_adapters(model: Any, settings: Finetuning, seed: int) -> Any:
    """Return ``model`` with new LoRA adapters that change nothing yet.

    Raises:
        UserError: Without PEFT.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise UserError(
            "fine-tuning: expected the package peft, got none; pip install 'soft-reasoning[finetuning]'"
        ) from error
    config = LoraConfig(
        task_type="CAUSAL_LM", target_modules="all-linear", lora_dropout=0.0, bias="none",
        r=settings.rank, lora_alpha=cast(int, settings.alpha),  # a float works too
    )  # fmt: skip
    with torch.random.fork_rng(), warnings.catch_warnings():
        torch.manual_seed(seed_for(seed, "finetuning", "adapters"))  # PEFT draws from global state
        warnings.simplefilter("ignore", FutureWarning)  # PEFT uses a renamed module of transformers
        return get_peft_model(model, config).eval()  # no dropout in the model either


def response_logprobs(model: Any, ids: Tensor, response: Tensor) -> Tensor:
    """Return float32 log-probabilities (n,) of the response tokens of ``ids`` (r, t), row by row.

    Padding is on the right, where causal attention never looks, so it needs no mask.
    """
    logits = model(input_ids=ids, use_cache=False).logits[:, :-1]
    wanted = response[:, 1:]
    return -F.cross_entropy(logits[wanted].float(), ids[:, 1:][wanted], reduction="none")


def backward(model: Any, batch: Sequence[Example], settings: Finetuning) -> dict[str, float]:
    """Add the gradient of the batch's mean loss over response tokens.

    Returns:
        Means of ``loss``, ``cross_entropy`` and ``weight`` over these tokens.
    """
    device = next(model.parameters()).device
    count = sum(len(example.ids) - example.start for example in batch)
    total = {"loss": 0.0, "cross_entropy": 0.0, "weight": 0.0}
    for ids, response in parts(batch, settings.part_tokens):
        ids = ids.to(device)
        with torch.no_grad(), model.disable_adapter():
            reference = response_logprobs(model, ids, response)
        logprobs = response_logprobs(model, ids, response)
        b = torch.cat([_strengths(n, settings) for n in response.sum(1).tolist()]).to(device)
        loss = token_losses(logprobs, reference, b).sum() / count
        loss.backward()
        total["loss"] += loss.item()
        total["cross_entropy"] -= logprobs.detach().sum().item() / count
        total["weight"] += token_weights(logprobs, reference, b).sum().item() / count
    return total


def train(
    model: Any, examples: Sequence[Example], work: Path, settings: Finetuning, seed: int, *, progress: bool
) -> dict[str, Any]:
    """Fine-tune ``model`` and save its adapters into ``work``; return the log.

    ``work`` holds a checkpoint at most CHECKPOINT_SECONDS old, from which the same call resumes to the same
    adapters.

    Raises:
        UserError: If the loss is no longer finite.
    """
    model = with_adapters(model, settings, seed)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(
        trained.values(), lr=settings.learning_rate, betas=(settings.beta1, 0.999), weight_decay=0.0
    )
    state = _load(work / STATE)
    if state is not None:
        with torch.no_grad():
            for name, p in trained.items():
                p.copy_(state["adapters"][name])
        optimizer.load_state_dict(state["optimizer"])
    log = state["log"] if state else {"loss": [], "cross_entropy": [], "weight": [], "seconds": 0.0}
    began = perf_counter() - log["seconds"]
    steps_per_epoch = -(-len(examples) // settings.batch_size)
    steps = settings.epochs * steps_per_epoch
    saved = perf_counter()
    with closing(Display(steps, "steps", enabled=progress)) as display:
        display.open(len(log["loss"]))
        for step in range(len(log["loss"]), steps):
            epoch, at = divmod(step, steps_per_epoch)
            order = torch.randperm(len(examples), generator=generator_for(seed, "finetuning", "epoch", epoch))
            chosen = order[at * settings.batch_size : (at + 1) * settings.batch_size].tolist()
            means = backward(model, [examples[i] for i in chosen], settings)
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * schedule(step, steps, settings.warmup_steps)
            norm = torch.nn.utils.clip_grad_norm_(trained.values(), CLIP)
            if not torch.isfinite(norm):
                raise UserError(f"fine-tuning: the loss is no longer finite at step {step + 1}; lower "
                                "finetuning.learning_rate")  # fmt: skip
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            for name, value in means.items():
                log[name].append(value)
            log["seconds"] = perf_counter() - began
            if perf_counter() - saved >= CHECKPOINT_SECONDS:
                weights = {name: p.detach() for name, p in trained.items()}
                _save(work / STATE, {"adapters": weights, "optimizer": optimizer.state_dict(), "log": log})
                saved = perf_counter()
            display.show(step + 1, lambda: _state(log))
    model.save_pretrained(work, save_embedding_layers=False)
    (work / STATE).unlink(missing_ok=True)
    return {"steps": steps, "examples": len(examples), **log}


def schedule(step: int, steps: int, warmup: int) -> float:
    """Return the learning rate of ``step`` (from 0) as a share of the largest."""
    return min(1.0, (step + 1) / max(1, warmup)) * (1 - step / steps)


def _state(log: Mapping[str, Any]) -> str:
    """The means of the last steps in words."""
    cross_entropy, weight = (fmean(log[key][-RECENT:]) for key in ("cross_entropy", "weight"))
    return f"cross-entropy {cross_entropy:.3f}  weight {weight:.2f}"


def _strengths(count: int, settings: Finetuning) -> Tensor:
    return strengths(
        count, first=settings.b_first, early=settings.b_early, early_tokens=settings.early_tokens,
        rest=settings.b_rest,
    )  # fmt: skip


def _save(path: Path, state: dict[str, Any]) -> None:
    """Write atomically."""
    draft = path.with_name(path.name + ".part")
    with open(draft, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def _load(path: Path) -> dict[str, Any] | None:
    return torch.load(path, map_location="cpu", weights_only=True) if path.is_file() else None
