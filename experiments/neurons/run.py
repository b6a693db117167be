"""Neurons active in right answers: python -m experiments.neurons.run [--questions 12] [overrides]

    python -m experiments.neurons.run --out runs/neurons
    python -m experiments.neurons.run --preset paper +experiment=paper_neurons --out runs/neurons

It generates completions of single questions by self-consistency, Soft Reasoning and its random control, and
reports activation rates by layer, key neurons and their rate by round, and the effect of masking them.
Figures, tables, neurons.md and neurons.json are written to --out. It uses the bundled model and its test
problems unless configured otherwise.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from experiments.neurons.activity import Sample, key_neurons, layer_rates, mean_rate, random_neurons, record
from experiments.neurons.hooks import Neurons
from experiments.neurons.report import CONTROL, MASKS, ROUND, SC, SR, write
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine, build_method
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.schedule.method import Context, Generate
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import Completion, Problem, Request, UserError, seed_for

PILOT = 20
MIXED = (0.2, 0.8)
"""A question is taken if the share of right completions in the pilot lies in this range."""


@dataclass(frozen=True)
class Watched:
    """A method that records its candidates' requests and completions, by problem id."""

    method: Any
    seen: dict[str, list[tuple[Request, Completion]]] = field(default_factory=dict)
    name: str = "watched"

    def solve(self, problem, context):
        steps, answer = self.method.solve(problem, context), None
        while True:
            try:
                effect = steps.send(answer)
            except StopIteration as stop:
                return stop.value
            answer = yield effect
            if isinstance(effect, Generate):
                pairs = zip(effect.requests, answer, strict=True)
                self.seen.setdefault(problem.id, []).extend(p for p in pairs if p[0].role == "candidate")


def collect_samples(
    problems: Sequence[Problem], method: Any, context: Context, *, copies: int = 1
) -> dict[str, list[Sample]]:
    """Every candidate of ``method`` on each problem, over ``copies`` searches with different points."""
    copied = [
        Problem(f"{p.id} #{i}" if copies > 1 else p.id, p.question, p.gold, p.answer_type)
        for p in problems
        for i in range(copies)
    ]
    watched = Watched(method)
    results = {p.id: result for p, result in drive(copied, watched, context)}
    samples: dict[str, list[Sample]] = {p.id: [] for p in problems}
    for i, copy in enumerate(copied):
        pairs = zip(results[copy.id].candidates, watched.seen[copy.id], strict=True)
        for candidate, (request, completion) in pairs:
            right, round = bool(context.grader.correct(candidate.answer, copy)), candidate.round
            if len(completion.token_ids) > 1:
                soft = request.soft, request.position
                sample = Sample(request.prompt_ids, completion.token_ids, right, *soft, round)
                samples[problems[i // copies].id].append(sample)
    return samples


def choose(pilot: Mapping[str, Sequence[Sample]], problems: Sequence[Problem], count: int) -> list[Problem]:
    """The first ``count`` problems whose completions are neither nearly all right nor nearly all wrong."""
    share = {name: sum(s.right for s in samples) / max(1, len(samples)) for name, samples in pilot.items()}
    mixed = [p for p in problems if MIXED[0] <= share[p.id] <= MIXED[1]]
    if not mixed:
        raise UserError(
            f"expected questions with right and wrong answers, found none among {len(problems)}; raise limit"
        )
    return mixed[:count]


@torch.inference_mode()
def regenerate(
    neurons: Neurons, sample: Sample, problem: Problem, context: Context, *, count: int, limit: int, seed: int
) -> float:
    """The share of ``count`` new completions of ``sample``'s prompt that is right, at temperature 0.8."""
    tokenizer, model = context.engine.tokenizer, neurons.model
    prompt = torch.tensor([sample.prompt], device=model.device).repeat(count, 1)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        tokens = model.generate(
            input_ids=prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=True,
            temperature=0.8,
            top_k=50,
            top_p=1.0,
            max_new_tokens=limit,
            eos_token_id=sorted(context.engine.eos_ids),
            pad_token_id=tokenizer.pad_token_id or tokenizer.eos_token_id,
        )
    right = 0
    for row in tokens[:, prompt.shape[1] :].tolist():
        text = tokenizer.decode(row, skip_special_tokens=True)
        for stop in context.prompts.stop:
            text = text.partition(stop)[0]
        answer = context.grader.extract(text, problem.answer_type)
        right += bool(context.grader.correct(answer, problem))
    return right / count


def analyse(
    problem: Problem,
    by_source: Mapping[str, Sequence[Sample]],
    neurons: Neurons,
    context: Context,
    args: argparse.Namespace,
    limit: int,
    skip: int,
) -> dict[str, Any]:
    """All figures of one question, as ``report.py`` reads them."""
    embed = context.engine.embed
    activity = {s: record(samples, neurons, embed, skip=skip) for s, samples in by_source.items()}
    keys, seed = key_neurons(activity[SC]), context.seed
    plain, matched = (
        random_neurons(keys, by_layer=by_layer, seed=seed, name=problem.id) for by_layer in (False, True)
    )
    accuracy = {}
    for name, mask in zip(MASKS, (torch.zeros_like(keys), keys, plain, matched), strict=True):
        with neurons.masked(mask):
            accuracy[name] = regenerate(
                neurons,
                by_source[SC][0],
                problem,
                context,
                count=args.masked,
                limit=limit,
                seed=seed_for(seed, problem.id, "masked"),
            )
    rounds: dict[str, list[dict[str, Any]]] = {SR: [], CONTROL: []}
    for source, rows in rounds.items():
        for r in sorted(set(activity[source].round.tolist())):
            part = activity[source][activity[source].round == r]
            values = (mean_rate(part, keys), mean_rate(part, matched), float(part.right.float().mean()))
            layers = layer_rates(part, keys).tolist()
            rows.append(dict(zip(ROUND, values, strict=True)) | {"layers": layers})
    return {
        "problem": problem.id,
        "keys": int(keys.sum()),
        "right": {s: float(a.right.float().mean()) for s, a in activity.items()},
        "rate": {s: mean_rate(a) for s, a in activity.items()},
        "layers": {
            s: {
                name: layer_rates(a[a.right == kind]).tolist()
                for name, kind in (("right", True), ("wrong", False))
                if bool((a.right == kind).any())
            }
            for s, a in activity.items()
        },
        "rounds": rounds,
        "masked": accuracy,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=12)
    parser.add_argument("--samples", type=int, default=200, help="completions of a question from each source")
    parser.add_argument("--masked", type=int, default=40, help="completions of a question under each mask")
    parser.add_argument("--preset", default="default", help="of Soft Reasoning: default, paper, released")
    parser.add_argument("--out", type=Path, default=Path("runs/neurons"))
    parser.add_argument("overrides", nargs="*", help="configuration, as on the command line of a run")
    args = parser.parse_args()
    try:
        run(args)
    except UserError as error:
        parser.error(str(error))


def run(args: argparse.Namespace) -> None:
    start = time.perf_counter()
    limits = [o for o in args.overrides if o.partition("=")[0] in ("limit", "+experiment")]
    base = args.overrides if limits else ["limit=100", *args.overrides]
    search = [*base, f"preset={args.preset}", "stopping=none"]
    config = compose_config([*base, "method=self_consistency", f"k={PILOT}"])
    engine, dataset = build_engine(config), build_dataset(config)
    if not isinstance(engine, HuggingFaceEngine):
        raise UserError(f"expected the engine hf, got {type(engine).__name__}; use engine=hf")
    neurons = Neurons(engine.model)  # a model without gates is refused before any work
    context = build_context(config, engine, dataset.exemplars())
    problems = dataset.problems()
    chosen = choose(collect_samples(problems, build_method(config), context), problems, args.questions)
    took = time.perf_counter() - start
    print(f"{len(chosen)} of {len(problems)} questions taken ({took:.0f} s)", flush=True)
    searched = compose_config([*search, f"method={SR}"])
    copies = math.ceil(args.samples / (searched.k * (1 + searched.rounds)))
    skip = searched.method.scope if searched.method.placement == "last" else 0
    seed = f"seed={config.seed + 1}"
    sampled = compose_config([*base, f"method={SC}", f"k={args.samples}", seed])
    # Other draws than the pilot's.
    new_context = Context(engine, context.prompts, context.grader, sampled.seed)
    control = compose_config([*search, f"method={CONTROL}", "verifier=none"])
    by_source = {
        SC: collect_samples(chosen, build_method(sampled), new_context),
        SR: collect_samples(chosen, build_method(searched), context, copies=copies),
        CONTROL: collect_samples(chosen, build_method(control), context, copies=copies),
    }
    print(f"completions written ({time.perf_counter() - start:.0f} s)", flush=True)
    rows = []
    for problem in chosen:
        samples = {source: by_problem[problem.id] for source, by_problem in by_source.items()}
        if len({s.right for s in samples[SC]}) < 2:
            print(f"{problem.id}: left out, its completions are all right or all wrong", flush=True)
            continue
        rows.append(analyse(problem, samples, neurons, context, args, config.max_new_tokens, skip))
    if not rows:
        raise UserError("expected questions with right and wrong answers, found none; raise limit")
    words = ["--questions", str(args.questions), "--samples", str(args.samples), "--masked", str(args.masked)]
    options = ["--preset", args.preset] if args.preset != "default" else []
    command = " ".join(["python -m experiments.neurons.run", *words, *options, *args.overrides])
    print(write(rows, args.out, command))
    print(f"{args.out / 'neurons.md'}  ({time.perf_counter() - start:.0f} s)")


if __name__ == "__main__":
    main()
