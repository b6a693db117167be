"""Where a soft token should stand: at the first place, at an early or late fork, or anywhere.

    python -m experiments.real_models.forks OUT.jsonl model=qwen25_coder_0_5b dataset=gsm8k dataset.path=FILE
    python -m experiments.real_models.forks --table OUT.jsonl

One greedy text per question is written with the entropy of each next token. A fork is the place of the
highest entropy: ``fork`` among the places of the first two sentences, ``late`` among those of the second
half. ``random`` is drawn from the places of the first two sentences, ``first`` is before the text. At each
place the text before it becomes part of the prompt, and ``--candidates`` random mixtures of the likely next
tokens take the next place (the package's default subspace); the rest is decoded greedily. ``sampled`` is the
control without soft tokens: as many texts sampled after the fork. A repeated command continues.
Only answers and token counts are stored.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.real_models.record import stored
from experiments.real_models.rules import minus
from soft_reasoning.configuration.build import build_context, build_dataset, build_engine
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.reports.tables import Table
from soft_reasoning.rewards.combine import Reward
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.method import Steps
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.scheduling.solutions import read_candidate, solution_request
from soft_reasoning.search.embedding import TokenSimplexEmbedding
from soft_reasoning.search.optimiser import normal
from soft_reasoning.space import SearchSpace, SpaceSettings
from soft_reasoning.types import (
    Candidate,
    Completion,
    Generate,
    GivenPrompt,
    Problem,
    Result,
    Sampling,
    generator_for,
    seed_for,
)

LIKELY = 50  # tokens of which the entropy is read
SENTENCE_END = re.compile(r"[.!?\n](\s|$)")


def entropies(completion: Completion) -> list[float]:
    """The entropy of each next token in nats, over its likeliest tokens."""
    values: list[float] = []
    for top in completion.top_logprobs:
        logprobs = np.array(top.logprobs)
        values.append(float(-(np.exp(logprobs) * logprobs).sum()))
    return values


def places(completion: Completion, decode: Any, rng: np.random.Generator) -> dict[str, int]:
    """The number of tokens of a greedy text before each place; at least one token follows the late one."""
    values, ids = entropies(completion), completion.token_ids
    early = len(ids) // 2
    for end in range(1, len(ids) // 2):
        if len(SENTENCE_END.findall(decode(ids[:end]))) >= 2:
            early = end
            break
    early, half = max(early, 2), max(len(ids) // 2, 1)
    last = max(int(0.9 * len(ids)), half + 1)  # the answer itself stands at the end
    return {
        "first": 0,
        "fork": 1 + int(np.argmax(values[1:early])),
        "random": int(rng.integers(1, early)),
        "late": half + int(np.argmax(values[half:last])),
    }


@dataclass(frozen=True)
class Forks:
    """The method: one greedy text, and candidates after soft tokens at each place."""

    candidates: int
    max_new_tokens: int
    temperature: float
    name: str = "forks"

    def solve(self, problem: Problem, context: Context) -> Steps[Result]:
        request = solution_request(problem, context, self.max_new_tokens, top_logprobs=LIKELY)
        [greedy] = yield Generate([request])
        rng = np.random.default_rng(seed_for(context.seed, problem.id, "place"))
        decode = context.engine.tokenizer.decode
        first = read_candidate(greedy, problem, context)
        arms: dict[str, list[Candidate]] = {"greedy": [first]}
        position_of = places(greedy, decode, rng)
        for name, place in position_of.items():
            ids, left = greedy.token_ids[:place], self.max_new_tokens - place
            given = GivenPrompt(request.prompt_ids + ids, request.stop, left)
            at = replace(problem, given=given)
            settings = SpaceSettings(embedding=TokenSimplexEmbedding(), max_new_tokens=left)
            space = yield from SearchSpace.open(at, context, settings, Reward())
            stream = generator_for(context.seed, problem.id, "initial")
            points = normal(self.candidates, space.dim, stream)
            arms[name] = yield from space.complete(points)
            if name == "fork":
                sampling = Sampling(self.temperature)
                requests = [
                    solution_request(at, context, left, index=i, sampling=sampling)
                    for i in range(self.candidates)
                ]
                completions = yield Generate(requests)
                arms["sampled"] = [read_candidate(c, at, context) for c in completions]
        stored_arms = {
            name: [[c.answer, c.generated_tokens, context.grader.correct(c.answer, problem)] for c in arm]
            for name, arm in arms.items()
        }
        places_of = {"greedy": 0, "sampled": position_of["fork"]} | position_of
        return Result(first.answer, (first,), ({"places": places_of, "arms": stored_arms},))


def table(path: Path) -> Table:
    """Accuracy, coverage, different answers and tokens of each place."""
    lines = stored(path)
    rows: list[list[str]] = []
    reference = [float(any(right for *_, right in line["arms"]["random"])) for line in lines]
    for name in lines[0]["arms"]:
        arms = [line["arms"][name] for line in lines]
        covered = [float(any(right for *_, right in arm)) for arm in arms]
        tokens = [sum(tokens for _, tokens, _ in arm) for arm in arms]
        rows.append(
            [
                name,
                f"{np.mean([line['places'][name] for line in lines]):.0f}",
                f"{100 * np.mean([right for arm in arms for *_, right in arm]):.1f}",
                f"{np.mean([len({answer for answer, *_ in arm}) for arm in arms]):.1f}",
                f"{100 * np.mean(covered):.1f}",
                minus(covered, reference),
                f"{np.mean(tokens):.0f}",
            ]
        )
    columns = ["place", "tokens before", "a candidate right %", "different answers", "coverage %"]
    columns += ["coverage minus random", "tokens"]
    return Table(columns, rows)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--candidates", type=int, default=5)
    parser.add_argument("--max-new-tokens", type=int, default=400)
    parser.add_argument("--temperature", type=float, default=0.7)
    arguments = parser.parse_args(words)
    if arguments.table:
        print(f"{len(stored(arguments.path))} questions\n\n{table(arguments.path).markdown()}")
        return
    config = compose_config(arguments.overrides)
    known = {line["id"] for line in stored(arguments.path)}
    engine, dataset = build_engine(config), build_dataset(config)
    context = build_context(config, engine, dataset.exemplars())
    problems = [problem for problem in dataset.problems() if problem.id not in known]
    method = Forks(arguments.candidates, arguments.max_new_tokens, arguments.temperature)
    with open(arguments.path, "a", encoding="utf-8") as file:
        for problem, result in drive(problems, method, context, max_live=10):
            file.write(json.dumps({"id": problem.id} | dict(result.trace[0])) + "\n")
            file.flush()


if __name__ == "__main__":
    main()
