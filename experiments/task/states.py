"""Record sampled texts of a real model with their hidden states, for the probe.

    python -m experiments.task.states FOLDER model=qwen25_coder_0_5b dataset=svamp dataset.path=FILE \\
        [--questions 400]

The texts are those of ``experiments.real_models.record``: the same prompts, temperature and seeds. FOLDER
gets, for each group of questions, ``texts-N.jsonl`` and ``states-N.npz``: states (texts, layers, kinds, D) in
float16, where kinds are the mean over the generated tokens that were fed to the model, the last of them, and
the means over the first 32 and 64. So decoding itself computes all of them. A repeated command goes on after
the last complete group.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from experiments.real_models.record import TEXT, line_of, requests
from soft_reasoning.configuration.build import build_context, build_dataset, build_engine
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.engines.base import Engine
from soft_reasoning.types import Completion, Problem, Request

SHARES = (1 / 3, 1 / 2, 2 / 3, 1)
FIRST = (32, 64)
QUEUED = 160
"""Texts in progress at least, so that the engine's batch stays full while there are questions."""
Item: TypeAlias = tuple[Problem, str, int, Request]
KINDS = ("mean", "last", *(f"first {count}" for count in FIRST))


def layers_of(model: torch.nn.Module) -> list[int]:
    """The layers that are read, a third, a half and two thirds up and the last."""
    count = model.config.num_hidden_layers
    return [round(share * count) for share in SHARES]


@torch.inference_mode()
def states(model: torch.nn.Module, request: Request, completion: Completion) -> Tensor:
    """(layers, kinds, D) of the tokens that decoding feeds: all generated ones but the last."""
    ids = torch.tensor([request.prompt_ids + completion.token_ids[:-1]])
    hidden = model.model(ids, output_hidden_states=True, use_cache=False).hidden_states
    # The last prompt token stands for a text of a single token.
    start = min(len(request.prompt_ids), ids.shape[1] - 1)
    fed = torch.stack([hidden[layer][0, start:].float() for layer in layers_of(model)])
    parts = [fed.mean(1), fed[:, -1], *(fed[:, :count].mean(1) for count in FIRST)]
    return torch.stack(parts, 1)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("overrides", nargs="*", help="model, data set and other options")
    parser.add_argument("--texts", type=int, default=5)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--max-new-tokens", type=int, default=512)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--questions", type=int, default=400)
    parser.add_argument("--group", type=int, default=20)
    arguments = parser.parse_args(words)
    config = compose_config(arguments.overrides)
    engine, dataset = build_engine(config), build_dataset(config)
    context = build_context(config, engine, dataset.exemplars())
    last = arguments.first + arguments.questions
    problems = dataset.problems()[arguments.first : last]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    asked = {TEXT: arguments.texts}, arguments.max_new_tokens, arguments.temperature
    groups: dict[int, list[Item]] = {}
    for start in range(0, len(problems), arguments.group):
        number = arguments.first + start
        if not (arguments.folder / f"states-{number}.npz").exists():
            groups[number] = [
                (problem, kind, sample, replace(request, turn=number))
                for problem in problems[start : start + arguments.group]
                for kind, sample, request in requests(problem, context, *asked)
            ]
    tickets: dict[int, tuple[int, int]] = {}
    done: dict[int, dict[int, Completion]] = {}
    waiting, began = list(groups), time.time()
    while waiting or tickets:
        while waiting and len(tickets) < QUEUED:
            number = waiting.pop(0)
            done[number] = {}
            for i, ticket in enumerate(engine.add([item[3] for item in groups[number]])):
                tickets[ticket] = number, i
        for ticket, completion in engine.step():
            if isinstance(completion, Exception):
                raise completion
            number, i = tickets.pop(ticket)
            done[number][i] = completion
            if len(done[number]) == len(groups[number]):
                complete = done.pop(number)
                write(
                    arguments.folder, number, groups[number], [complete[j] for j in sorted(complete)], engine
                )
                tokens = sum(completion.generated_tokens for completion in complete.values())
                print(f"{number}: {tokens} tokens, {time.time() - began:.0f} s", flush=True)


def write(
    folder: Path, number: int, items: Sequence[Item], completions: Sequence[Completion], engine: Engine
) -> None:
    """Write the texts and states of a group."""
    pairs = list(zip(items, completions, strict=True))
    with open(folder / f"texts-{number}.jsonl", "w", encoding="utf-8") as file:
        for (problem, kind, sample, _), completion in pairs:
            file.write(json.dumps(line_of(problem, kind, sample, "", completion)) + "\n")
    read = torch.stack([states(engine.model, item[3], completion) for item, completion in pairs])
    temporary = folder / "unfinished.npz"
    np.savez(temporary, states=read.numpy().astype(np.float16))
    temporary.replace(folder / f"states-{number}.npz")


if __name__ == "__main__":
    main()
