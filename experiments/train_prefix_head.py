"""Train the prefix scorer's head: python experiments/train_prefix_head.py --out runs/head.safetensors

    python experiments/train_prefix_head.py --out runs/head.safetensors model=llama3_8b dataset=gsm8k
    python -m soft_reasoning.run method=prefix_scorer method.head=runs/head.safetensors

Samples solutions of training problems, labels every prefix with the reward of its end, and fits the head by
least squares (FUDGE). It prints the head's quality on a held-out tenth of the problems.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from soft_reasoning.configuration.build import build_context, build_dataset, build_engine
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.rewards.prefix_value import centred, head_values
from soft_reasoning.scheduling.context import Context
from soft_reasoning.types import Problem, Request, Sampling, generator_for

TEMPERATURE = 0.8
CHUNK = 512
"""Prefixes read at a time, so that what the engine keeps of them stays small."""


def rollouts(problems: list[Problem], count: int, context: Context, max_new_tokens: int):
    """(problem's number, prompt ids, solution ids, reward) of ``count`` sampled solutions a problem."""
    requests = []
    for problem in problems:
        prompt = context.prompts.solve(problem)
        requests += [
            Request(
                prompt.ids, sampling=Sampling(TEMPERATURE), stop=context.prompts.stop,
                max_new_tokens=max_new_tokens, seed=context.stream(problem.id, "rollout", i),
            )
            for i in range(count)
        ]  # fmt: skip
    for i, (request, done) in enumerate(zip(requests, context.engine.generate(requests), strict=True)):
        problem = problems[i // count]
        ids = done.token_ids[:-1] if done.finish_reason == "eos" else done.token_ids
        reward = context.grader.correct(context.grader.extract(done.text, problem.answer_type), problem)
        yield i // count, request.prompt_ids, ids, float(reward)


def auc(values: Tensor, rewards: Tensor) -> float:
    """How often a prefix of a right solution is worth more than one of a wrong solution."""
    right, wrong = values[rewards > 0.5], values[rewards < 0.5]
    above = (right[:, None] > wrong).double() + 0.5 * (right[:, None] == wrong)
    return above.mean().item()


def fit_head(logits: Tensor, rewards: Tensor, *, ridge: float = 1e-3) -> tuple[Tensor, Tensor]:
    """Fit weights (F,) and bias () from centred ``logits`` (n, F) to ``rewards`` (n,) by least squares.

    Each prefix of a rollout is a row with the rollout's final reward (FUDGE). ``ridge`` is the penalty in
    units of a feature's mean variance.
    """
    X, y = centred(logits), rewards.double()
    centre, mean = X.mean(0), y.mean()
    X = X - centre
    gram = X.T @ X / len(X)
    penalty = ridge * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    weight = torch.linalg.solve(gram + penalty, X.T @ (y - mean) / len(X))
    return weight, mean - centre @ weight


def save_head(file: Path, ids: Sequence[int], weight: Tensor, bias: Tensor) -> None:
    """Write a head for ``method.head``: ``weight`` (F,) and ``bias`` () for the logits of ``ids``."""
    save_file({"ids": torch.tensor(list(ids)), "weight": weight.clone(), "bias": bias.clone()}, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the head's file")
    parser.add_argument("--problems", type=int, default=500, help="training problems")
    parser.add_argument("--rollouts", type=int, default=4, help="solutions a problem")
    parser.add_argument("--stride", type=int, default=8, help="tokens between two prefixes")
    parser.add_argument("overrides", nargs="*", help="of the configuration, such as model=qwen2_7b")
    args = parser.parse_args()
    config = compose_config(["method=prefix_scorer", *args.overrides])
    dataset, engine = build_dataset(config), build_engine(config)
    context = build_context(config, engine, dataset.exemplars())
    kind = dataset.answer_type
    rows = dataset.training(args.problems)
    problems = [Problem(row.question, row.question, row.answer, kind) for row in rows]

    prefixes, owners, rewards = [], [], []
    for number, prompt, ids, reward in rollouts(problems, args.rollouts, context, config.max_new_tokens):
        for end in sorted({*range(args.stride, len(ids), args.stride), len(ids)} - {0}):
            prefixes.append(prompt + ids[:end])
            owners.append(number)
            rewards.append(reward)
    # Twice as many tokens as dimensions: their logits determine the hidden state.
    order = torch.randperm(len(engine.tokenizer), generator=generator_for(0, "prefix head"))
    ids = sorted(order[: 2 * engine.hidden_size].tolist())
    looks = [Request(prefix, max_new_tokens=0, next_logits=tuple(ids)) for prefix in prefixes]
    logits = torch.stack([look.next_logits for look in engine.generate(looks)])
    owner, reward = torch.tensor(owners), torch.tensor(rewards)
    held_out = owner % 10 == 0
    weight, bias = fit_head(logits[~held_out], reward[~held_out])
    values, true = head_values(logits[held_out], weight, bias), reward[held_out].double()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    save_head(args.out, ids, weight, bias)
    guess = reward[~held_out].double().mean()
    print(
        f"{len(prefixes)} prefixes of {len(problems) * args.rollouts} solutions, {true.mean():.1%} of the "
        f"held-out ones right; held out: squared error {(values - true).square().mean():.4f} (a constant: "
        f"{(guess - true).square().mean():.4f}), AUC {auc(values, true):.3f}; {args.out}"
    )


if __name__ == "__main__":
    main()
