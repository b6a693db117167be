"""Train the bundled demo model from scratch: python -m experiments.demo.train

Writes the model, its tokenizer, training_log.json, and the problems into --out. Learning rates follow the CPU
time used, so a run of any length ends annealed, also on a busy machine. --resume continues an interrupted
run. The second model: --seed 1 --other-openers.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from experiments.demo.problems import SPLIT_SEEDS, make_split
from experiments.demo.prompts import CONTEXT, build_tokenizer, problem_row, solve_prompt
from experiments.demo.reviews import Span
from experiments.demo.solutions import rename_authors, training_rows
from experiments.demo.text import example

COUNTS = {"validation": 500, "test": 500}
SOLVED = 500
"""Number of training problems with solutions in the package."""
BATCH_TOKENS = 3500
POOL = 256
"""Examples drawn at a time, then sorted by length into batches."""
WEIGHTS = {
    "prompt": 0.0,
    "shown": 0.3,
    "own": 1.0,
    "check": 1.5,
    "copy": 2.0,
    "verdict": 3.0,
    "mark": 4.0,
}
"""The weight of a token in the loss. Shown solutions, too, teach solving, and are most of the tokens."""
CHECKS = {
    "sound": (" Yes", "check"),
    "unsound": (" No", "check"),
    "right": (" Yes", "verdict"),
    "wrong": (" No", "verdict"),
}
"""The word that the model is trained to predict after a piece of a shown solution, and its kind of weight. It
is read before the last layer, so that this layer can look it up."""
SAVE_EVERY = 120
"""CPU seconds between two checkpoints."""


def encode(tokenizer, spans: Sequence[Span], pieces: Iterator[list[int]]) -> tuple[list, list, list]:
    """(ids (t,), checks (t,), weights (t,)) of a text: ``checks[i]`` is the check after ``ids[i]``, as an
    index of CHECKS counted from 1; 0 is none."""
    ids, weights, checks = [tokenizer.bos_token_id], [0.0], [0]
    for _, name in spans:
        ids += (piece := next(pieces))
        weights += [WEIGHTS.get(name, WEIGHTS["shown"])] * len(piece)
        checks += [0] * len(piece)
        checks[-1] = list(CHECKS).index(name) + 1 if name in CHECKS else checks[-1]
    ids, weights, checks = [*ids, tokenizer.eos_token_id], [*weights, WEIGHTS["own"]], [*checks, 0]
    return ids[:CONTEXT], checks[:CONTEXT], weights[:CONTEXT]


def batches(tokenizer, rng: random.Random, forbidden: set[str], progress):
    """Endless (ids, checks, weights, noise) batches of about BATCH_TOKENS tokens, each (b, t); ``noise`` is
    the size, in units of the embedding table's RMS, of random noise on a token's embedding: on the opening
    word of some solutions, so that the model can read points between words."""
    thought = tokenizer.encode(solve_prompt(""), add_special_tokens=False)[-3:]
    while True:
        done = progress()
        examples = [example(rng, forbidden, done) for _ in range(POOL)]
        pieces = [text for spans in examples for text, _ in spans]
        encoded = iter(tokenizer(pieces, add_special_tokens=False)["input_ids"])
        rows = []
        for spans in examples:
            ids, checks, weights = encode(tokenizer, spans, encoded)
            noise = [0.0] * len(ids)
            start = next(i for i, weight in enumerate(weights) if weight)
            if ids[start - 3 : start] == thought and rng.random() < 0.2:
                noise[start] = rng.uniform(0.5, 3)
            rows.append((ids, checks, weights, noise))
        rows.sort(key=lambda row: len(row[0]))
        ready, batch = [], []
        for row in rows:
            if (len(batch) + 1) * len(row[0]) > BATCH_TOKENS:
                ready.append(batch)
                batch = []
            batch.append(row)
        ready.append(batch)
        rng.shuffle(ready)
        padding = (tokenizer.pad_token_id, 0, 0.0, 0.0)
        for batch in ready:
            yield tuple(
                pad_sequence(
                    [torch.tensor(row[i]) for row in batch], batch_first=True, padding_value=padding[i]
                )
                for i in range(4)
            )


def learning_rate(progress: float, step: int) -> float:
    """Relative to the peak: 60 steps of warm-up, constant to 40% of the time, then linear to zero."""
    return min(1.0, (step + 1) / 60) * min(1.0, max(0.0, (1 - progress) / 0.6))


def weighted_loss(model, ids, checks, weights, noise, words):
    """(weighted mean cross-entropy; mean over "own" tokens). ``words`` are the ids of " No" and " Yes"."""
    table = model.get_input_embeddings()
    embeddings = table(ids[:, :-1])
    rms = table.weight.detach().square().mean().sqrt()
    embeddings = embeddings + noise[:, :-1, None] * rms * torch.randn_like(embeddings)
    output = model.model(inputs_embeds=embeddings, output_hidden_states=True)
    weights, wanted = weights[:, 1:], weights[:, 1:] > 0
    weights, targets = weights[wanted], ids[:, 1:][wanted]
    logits = model.lm_head(output.last_hidden_state[wanted])
    losses = F.cross_entropy(logits, targets, reduction="none")
    total, among = losses @ weights, weights.sum()
    checks = checks[:, :-1]
    early = model.lm_head(model.model.norm(output.hidden_states[-2][checks > 0]))
    for number, (word, kind) in enumerate(CHECKS.values(), start=1):
        known = early[checks[checks > 0] == number]
        truth = torch.full((len(known),), words[word])
        total = total + WEIGHTS[kind] * F.cross_entropy(known, truth, reduction="sum")
        among = among + WEIGHTS[kind] * len(known)
    return total / among, losses.detach()[weights == WEIGHTS["own"]].mean()


class Muon(torch.optim.Optimizer):
    """Orthogonalised momentum (Jordan et al., 2024). torch.optim.Muon computes in bfloat16, which is very
    slow on CPUs without bfloat16 units; this class computes in float32, with equal shapes in a batch."""

    def __init__(self, matrices, lr: float, momentum: float = 0.95):
        super().__init__(matrices, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            by_shape = defaultdict(list)
            for matrix in group["params"]:
                by_shape[matrix.shape].append(matrix)
            for (rows, columns), matrices in by_shape.items():
                for matrix in matrices:
                    momentum = self.state[matrix].setdefault("momentum", torch.zeros_like(matrix))
                    momentum.lerp_(matrix.grad, 1 - group["momentum"])
                updates = [m.grad.lerp(self.state[m]["momentum"], group["momentum"]) for m in matrices]
                scale = group["lr"] * max(1, rows / columns) ** 0.5
                for matrix, update in zip(matrices, orthogonal(torch.stack(updates)), strict=True):
                    matrix.sub_(update, alpha=scale)


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """(n, r, c) -> (n, r, c), about the nearest orthogonal matrices, by five Newton-Schulz steps."""
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x.mT if tall else x


PERIODS = (2, 5, 10, 20, 50, 100, 200)


@torch.no_grad()
def place_numbers(table: torch.Tensor, tokenizer) -> None:
    """Add to the embeddings of numbers (in place; vocabulary, width) their sines and cosines, so that
    neighbours are near each other and sums are turns, as in large models (Kantamneni and Tegmark, 2025).
    """
    numbers = torch.arange(100)
    angles = 2 * torch.pi * numbers[:, None] / torch.tensor(PERIODS)
    waves = torch.cat([angles.sin(), angles.cos()], dim=1)
    places = waves @ torch.randn(waves.shape[1], table.shape[1]) * table.std() / waves.shape[1] ** 0.5 * 2
    for space in ("", " "):
        table[tokenizer.convert_tokens_to_ids([f"{space}{n}" for n in numbers.tolist()])] += places


def build(args, tokenizer):
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=args.width,
            intermediate_size=3 * args.width,
            num_hidden_layers=args.layers,
            num_attention_heads=args.width // 32,
            num_key_value_heads=args.width // 32,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
        )
    )
    place_numbers(model.get_input_embeddings().weight, tokenizer)
    return model


def train(args, tokenizer, forbidden: set[str]):
    torch.manual_seed(args.seed)
    torch.set_flush_denormal(True)  # gradients of well-known tokens become denormal, and slow without this
    model = build(args, tokenizer)
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    optimizers = [
        Muon(matrices, lr=0.02),
        torch.optim.AdamW(others, lr=3e-3, weight_decay=0.0, betas=(0.9, 0.98)),
    ]
    peaks = [0.02, 3e-3]
    state = {"seconds": 0.0, "tokens": 0, "step": 0, "log": []}
    checkpoint = args.out / "checkpoint.pt"
    if args.resume:
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        for optimizer, optimizer_state in zip(optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(optimizer_state)
        state = saved["state"]
    start = time.process_time() - state["seconds"]
    last_saved = state["seconds"]

    def progress() -> float:
        return (time.process_time() - start) / (60 * args.minutes)

    losses = []
    words = {word: tokenizer.convert_tokens_to_ids(word) for word in (" No", " Yes")}
    bar = tqdm(total=round(60 * args.minutes), initial=round(state["seconds"]), unit="s", mininterval=30)
    seed = f"{SPLIT_SEEDS['train']}-{args.seed}-{state['step']}"  # a resumed run continues with new examples
    for ids, checks, weights, noise in batches(tokenizer, random.Random(seed), forbidden, progress):
        done = progress()
        if done >= 1:
            break
        for optimizer, peak in zip(optimizers, peaks, strict=True):
            optimizer.param_groups[0]["lr"] = peak * learning_rate(done, state["step"])
        loss, own_loss = weighted_loss(model, ids, checks, weights, noise, words)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        losses.append(own_loss.item())
        state["tokens"] += ids.numel()
        state["step"] += 1
        state["seconds"] = time.process_time() - start
        if not math.isfinite(loss.item()):
            raise SystemExit(f"loss became {loss.item()} at step {state['step']}: lower the learning rate")
        if state["step"] % 50 == 0:
            note = {
                "step": state["step"],
                "cpu_minutes": round(state["seconds"] / 60, 2),
                "tokens": state["tokens"],
                "loss": round(sum(losses) / len(losses), 4),
            }
            state["log"].append(note)
            losses = []
            bar.set_postfix(step=note["step"], loss=note["loss"], refresh=False)
            if state["seconds"] - last_saved > SAVE_EVERY:
                last_saved = state["seconds"]
                save(args, model, state)
                states = [optimizer.state_dict() for optimizer in optimizers]
                unfinished_run = checkpoint.with_suffix(".new")
                saved = {"model": model.state_dict(), "optimizers": states, "state": state}
                torch.save(saved, unfinished_run)
                unfinished_run.replace(checkpoint)
        bar.update(round(state["seconds"]) - bar.n)
    bar.close()
    save(args, model, state)
    checkpoint.unlink(missing_ok=True)


def save(args, model, state) -> None:
    model.save_pretrained(args.out / "model")
    notes = {"arguments": {k: str(v) for k, v in vars(args).items() if k != "out"}, "log": state["log"]}
    (args.out / "model" / "training_log.json").write_text(json.dumps(notes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=89, help="CPU minutes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--other-openers", action="store_true", help="authors begin with other words")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--out", type=Path, default=Path("runs/demo_model"))
    args = parser.parse_args()
    if args.other_openers:
        rename_authors()

    forbidden: set[str] = set()
    for split, count in COUNTS.items():
        problems = make_split(split, count, exclude=forbidden)
        forbidden |= {p.question for p in problems}
        args.out.mkdir(parents=True, exist_ok=True)
        with open(args.out / f"{split}.jsonl", "w", encoding="utf-8") as file:
            for i, problem in enumerate(problems):
                file.write(json.dumps(problem_row(problem, split, i)) + "\n")
    with open(args.out / "train.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in training_rows(SOLVED, forbidden))

    if args.resume:
        tokenizer = AutoTokenizer.from_pretrained(args.out / "model")
    else:
        rng = random.Random(0)
        texts = (text for _ in range(3000) for text, _ in example(rng, forbidden, 0.5))
        tokenizer = build_tokenizer(texts)
        tokenizer.save_pretrained(args.out / "model")
    train(args, tokenizer, forbidden)


if __name__ == "__main__":
    main()
