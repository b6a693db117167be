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
from collections.abc import Sequence as Many
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from experiments.real_models.record import TEXT, line_of, requests
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.engine.huggingface.sequence import Sequence
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.types import Completion, Problem, Request

SHARES = (1 / 3, 1 / 2, 2 / 3, 1)
FIRST = (32, 64)
QUEUED = 160
"""Texts in progress at least, so that the engine's batch stays full while there are questions."""
Item: TypeAlias = tuple[Problem, str, int, Request]
KINDS = ("mean", "last", *(f"first {count}" for count in FIRST))


class Reader:
    """Reads the states of the tokens that an engine's decoding feeds, layer by layer."""

    def __init__(self, engine: HuggingFaceEngine) -> None:
        self._runner, self._decode = engine._runner, engine._runner.decode
        model = self._runner.model.model
        count = len(model.layers)
        self._seen: list[Tensor] = []
        for layer in (*(model.layers[round(share * count) - 1] for share in SHARES[:-1]), model.norm):
            layer.register_forward_hook(self._see)
        self._runner.decode = self.decode
        self._kept: dict[int, tuple[int, Tensor]] = {}

    def _see(self, layer: object, inputs: object, output: Tensor | tuple[Tensor]) -> None:
        self._seen.append(output if isinstance(output, Tensor) else output[0])

    def decode(self, sequences: list[Sequence]) -> Tensor:
        """Decode as the engine does, and add what the tokens' states are to what is kept of each text."""
        self._seen.clear()
        logits = self._decode(sequences)
        states = torch.stack([x[0, : len(sequences)] for x in self._seen], 1).float()
        for sequence, state in zip(sequences, states, strict=True):
            count, kept = self._kept.get(sequence.ticket, (0, torch.zeros(len(KINDS), *state.shape)))
            kept[0] += state
            kept[1] = state
            for place, most in enumerate(FIRST, 2):
                if count < most:
                    kept[place] += state
            self._kept[sequence.ticket] = count + 1, kept
        return logits

    def pop(self, ticket: int) -> Tensor:
        """(layers, kinds, D) of a complete text; zeros if it has a single token, which was not fed."""
        shape = len(KINDS), len(SHARES), self._runner.model.config.hidden_size
        count, kept = self._kept.pop(ticket, (0, torch.zeros(shape)))
        counts = [max(min(count, most), 1) for most in (count, 1, *FIRST)]
        return (kept / torch.tensor(counts).view(-1, 1, 1)).transpose(0, 1)


def main(words: Many[str] | None = None) -> None:
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
    done: dict[int, dict[int, tuple[Completion, Tensor]]] = {}
    reader = Reader(engine)
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
            done[number][i] = completion, reader.pop(ticket)
            if len(done[number]) == len(groups[number]):
                complete = done.pop(number)
                completions, read = zip(*(complete[j] for j in sorted(complete)), strict=True)
                write(arguments.folder, number, groups[number], completions, read)
                tokens = sum(completion.generated_tokens for completion in completions)
                print(f"{number}: {tokens} tokens, {time.time() - began:.0f} s", flush=True)


def write(
    folder: Path, number: int, items: Many[Item], completions: Many[Completion], read: Many[Tensor]
) -> None:
    """Write the texts and states of a group."""
    pairs = list(zip(items, completions, strict=True))
    with open(folder / f"texts-{number}.jsonl", "w", encoding="utf-8") as file:
        for (problem, kind, sample, _), completion in pairs:
            file.write(json.dumps(line_of(problem, kind, sample, "", completion)) + "\n")
    temporary = folder / "unfinished.npz"
    np.savez(temporary, states=torch.stack(list(read)).numpy().astype(np.float16))
    temporary.replace(folder / f"states-{number}.npz")


if __name__ == "__main__":
    main()
