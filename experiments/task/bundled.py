"""A task's soft tokens on the bundled model: Bayesian optimisation and its controls, at equal evaluations.

    python -m experiments.task.bundled FOLDER [--seeds 3] [--only "4 tokens"] [--table]

Each seed has its own matrix A, 64 training and 100 validation problems. A search evaluates 72 points (the
opening phrases are twenty) on the training problems; the best five are compared on the validation problems,
and the best of these answers the 500 test problems. FOLDER gets every evaluation and every answer; a repeated
command goes on. ``--table`` prints the table of what is there, or of a file of answers.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.task.gradient import gradient
from experiments.task.parts import Found, Parts, validated
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.lab.reports.statistics import paired_bootstrap
from soft_reasoning.lab.reports.tables import Table
from soft_reasoning.task import Evaluation, tune
from soft_reasoning.task.space import TaskSpace
from soft_reasoning.types import generator_for

TRAINING, VALIDATION = 64, 100
EVALUATIONS = 72
GREEDY = "greedy"
PHRASES = (
    "Step by step:",
    "Let us think step by step.",
    "First,",
    "We start with",
    "Start:",
    "At first there are",
    "Begin with",
    "The answer is",
    "Answer:",
    "Now",
    "So",
    "To solve this,",
    "1)",
    "Let us count:",
    "In total",
    "Then",
    "We know that",
    "Careful:",
    "Solution:",
    "We compute",
)


Search = Callable[[Parts, TaskSpace, Path], Found]


def bayesian(parts: Parts, space: TaskSpace, history: Path) -> Found:
    objective = parts.objective(parts.training, space)
    found = tune(
        objective,
        parts.objective(parts.validation, space),
        evaluations=EVALUATIONS,
    )
    history.write_text("".join(json.dumps(asdict(evaluation)) + "\n" for evaluation in found.evaluations))
    return objective.vectors(found.point.u), found.search.mean, found.validation.mean, EVALUATIONS


def random(parts: Parts, space: TaskSpace, history: Path) -> Found:
    objective = parts.objective(parts.training, space)
    low, high = objective.bounds
    stream = generator_for(parts.context.seed, "random", space.tokens)
    X = low + (high - low) * torch.rand(EVALUATIONS, objective.dim, dtype=torch.float64, generator=stream)
    evaluations = objective.evaluate(X)
    return validated(parts, space, [objective.vectors(e.u) for e in evaluations], evaluations)


def evolution(parts: Parts, space: TaskSpace, history: Path) -> Found:
    from cmaes import CMA

    objective = parts.objective(parts.training, space)
    bounds = objective.bounds.T.double().numpy()
    population = 12
    optimiser = CMA(
        np.zeros(objective.dim),
        sigma=0.3 * float(bounds[0, 1] - bounds[0, 0]),
        bounds=bounds,
        population_size=population,
        seed=parts.context.seed,
    )
    while len(objective.evaluations) < EVALUATIONS:
        points = [optimiser.ask() for _ in range(population)]
        results = objective.evaluate(torch.tensor(np.stack(points)))
        optimiser.tell([(u, -e.mean) for u, e in zip(points, results, strict=True)])
    evaluations = objective.evaluations
    return validated(parts, space, [objective.vectors(e.u) for e in evaluations], evaluations)


def hard_tokens(parts: Parts, space: TaskSpace, history: Path) -> Found:
    """The likeliest first tokens, by their mean probability over the training problems."""
    engine = parts.context.engine
    objective = parts.objective(parts.training, TaskSpace())
    vectors = list(engine.embed(objective.likely(EVALUATIONS)).unsqueeze(1))
    return validated(parts, space, vectors, objective.ask(vectors))


def phrases(parts: Parts, space: TaskSpace, history: Path) -> Found:
    engine = parts.context.engine
    vectors = [engine.embed(engine.tokenizer.encode(p, add_special_tokens=False)) for p in PHRASES]
    return validated(parts, space, vectors, parts.objective(parts.training, space).ask(vectors))


RUNS: dict[str, tuple[Search, TaskSpace]] = {
    "Bayesian optimisation, 4 tokens": (bayesian, TaskSpace(tokens=4)),
    "random search, 4 tokens": (random, TaskSpace(tokens=4)),
    "CMA-ES, 4 tokens": (evolution, TaskSpace(tokens=4)),
    "hard tokens": (hard_tokens, TaskSpace()),
    "opening phrases": (phrases, TaskSpace()),
    "Bayesian optimisation, 1 token": (bayesian, TaskSpace()),
    "random search, 1 token": (random, TaskSpace()),
    "gradient descent, 4 tokens": (gradient, TaskSpace(tokens=4)),
    "gradient descent, 1 token": (gradient, TaskSpace()),
}


def seeds(count: int) -> Iterator[Parts]:
    """The parts of each seed."""
    words = ["model=demo", "dataset=demo"]
    config, other = compose_config(words), compose_config([*words, "dataset.split=validation"])
    context = build_context(config, build_engine(config))
    test, rest = build_dataset(config).problems(), build_dataset(other).problems()
    for seed in range(count):
        mine = rest[seed * (TRAINING + VALIDATION) :][: TRAINING + VALIDATION]
        yield Parts(replace(context, seed=seed), mine[:TRAINING], mine[TRAINING:], test)


def stored(path: Path) -> list[dict[str, Any]]:
    """The lines of a file of answers; rewards of 0 and 1 may be one text."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [{**line, "rewards": [float(reward) for reward in line["rewards"]]} for line in lines]


def table(lines: Sequence[dict[str, Any]]) -> Table:
    """Each search's accuracy on the test problems, seed by seed, and its paired difference from others."""
    answers: dict[str, list[list[float]]] = {}
    for line in lines:
        answers.setdefault(line["run"], []).append(line["rewards"])
    mean = {run: np.mean(rewards, axis=0).tolist() for run, rewards in answers.items()}

    def minus(run: str, other: str) -> str:
        if run == other or other not in mean:
            return ""
        interval = paired_bootstrap(mean[run], mean[other])
        return f"{100 * interval.difference:+.1f} ({100 * interval.low:.1f} to {100 * interval.high:.1f})"

    rows: list[list[str]] = []
    for run in answers:
        mine = [line for line in lines if line["run"] == run]
        each = ", ".join(f"{100 * np.mean(line['rewards']):.1f}" for line in mine)
        training, validation = (
            f"{100 * np.mean([line[part] for line in mine]):.1f}" if run != GREEDY else ""
            for part in ("training", "validation")
        )
        tokens_each = re.search(r"\d tokens?", run)
        control = f"random search, {tokens_each[0]}" if tokens_each else run
        tokens = np.mean([line["tokens"] for line in mine]) / len(mean[run])
        rows.append(
            [
                run,
                str(mine[0]["evaluations"]),
                training,
                validation,
                each,
                f"{100 * np.mean(mean[run]):.1f}",
                minus(run, GREEDY),
                minus(run, control),
                f"{tokens:.0f}",
            ]
        )
    columns = ["search", "evaluations", "training %", "validation %", "test %, each seed", "test %"]
    return Table([*columns, "minus greedy", "minus random search", "tokens"], rows)


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="how the names of the runs end")
    parser.add_argument("--table", action="store_true", help="print the table of what is there")
    arguments = parser.parse_args(words)
    results = arguments.folder
    if not results.is_file():
        results /= "answers.jsonl"
    if arguments.table:
        print(table(stored(results)).markdown())
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)

    def store(run: str, seed: int, evaluation: Evaluation, **fields: Any) -> None:
        right = {"rewards": evaluation.rewards, "tokens": evaluation.tokens}
        with open(results, "a", encoding="utf-8") as file:
            file.write(json.dumps({"run": run, "seed": seed, **fields, **right}) + "\n")

    known = {(line["run"], line["seed"]) for line in stored(results)}
    every = list(seeds(arguments.seeds))
    if (GREEDY, 0) not in known:
        [greedy] = every[0].objective(every[0].test, TaskSpace()).ask([None])
        store(GREEDY, 0, greedy, evaluations=0)
    for parts in every:
        seed = parts.context.seed
        for run, (search, space) in RUNS.items():
            if (run, seed) in known or not run.endswith(arguments.only):
                continue
            history = arguments.folder / f"{run.replace(', ', '-').replace(' ', '_')}-{seed}.jsonl"
            vectors, training, validation, count = search(parts, space, history)
            [test] = parts.objective(parts.test, space).ask([vectors])
            store(run, seed, test, evaluations=count, training=training, validation=validation)
            print(f"{run}, seed {seed}: {training:.3f} {validation:.3f} {test.mean:.3f}", flush=True)


if __name__ == "__main__":
    main()
