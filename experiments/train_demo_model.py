"""Train the bundled demo model from nothing: python experiments/train_demo_model.py --minutes 45

Writes the model, its tokenizer, training_log.json, and the validation and test problems into --out (by
default the package's own soft_reasoning/demo). Learning rates follow elapsed time, so a run of any length
ends annealed. The model card says how the shipped weights were made.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from tqdm import tqdm
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from soft_reasoning.demo.problems import LEVELS, SPLIT_SEEDS, draw, make_split
from soft_reasoning.demo.prompts import (
    build_tokenizer,
    problem_row,
    review_prompt,
    solve_prompt,
    steps_prompt,
    verdict,
)  # fmt: skip
from soft_reasoning.demo.solutions import (
    AUTHORS,
    Solution,
    decompose,
    draw_author,
    equations,
    review,
    solve,
    write,
)

COUNTS = {"validation": 500, "test": 500}
BATCH_TOKENS = 3500
POOL = 256
"""Examples drawn at a time, then sorted by length into batches."""
SHOWN_WEIGHT = 0.3
"""What a token of a shown solution counts in the loss: they are solutions too, and most of the tokens."""
OPENER = re.compile(r"^[A-Za-z]+ ?")
SOLUTIONS_LINE = "\nSolutions:\n"


def drill(rng: random.Random) -> str:
    """A line of correct equations, to practise arithmetic."""
    lines = []
    for _ in range(8):
        sign = rng.choice("+++---xx/")
        if sign == "+":
            a, b = rng.randint(1, 99), rng.randint(1, 24)
            result = a + b
        elif sign == "-":
            a, b = rng.randint(1, 99), rng.randint(1, 24)
            a, b = max(a, b), min(a, b)
            result = a - b
        else:
            a, b = rng.choice(
                (
                    (rng.randint(2, 4), rng.randint(2, 6)),
                    (rng.randint(1, 33), rng.randint(2, 3)),
                    (rng.randint(1, 24), 4),
                )
            )
            result = a * b
            if sign == "/":
                a, result = result, a
        lines.append(f"{a} {sign} {b} = {result}.")
    return " ".join(lines)


def seen_solutions(problem, rng: random.Random, count: int) -> tuple[list[str], list[Solution]]:
    """What a reviewer reads: solutions by few or many authors, mostly without their opening word, as
    candidates appear when a soft token stands in for it."""
    pool = rng.sample(AUTHORS, rng.choice((1, 2, 3, 5, len(AUTHORS))))
    solutions = [solve(problem, rng, rng.choice(pool)) for _ in range(count)]
    bare = rng.random() < 0.8
    return [OPENER.sub("", s.body) if bare else s.body for s in solutions], solutions


def example(rng: random.Random, forbidden: set[str], progress: float) -> tuple[str, str, str]:
    """(prompt, shown solutions, completion) of the training mix: first more arithmetic, easier problems
    and fewer, shorter reviews; then the full mix."""
    early = progress < 0.4
    if rng.random() < (0.1 if early else 0.04):
        return "", "", drill(rng)
    levels = list(LEVELS)[:2] if progress < 0.12 else list(LEVELS)
    problem = draw(rng, rng.choice(levels))
    while problem.question in forbidden:
        problem = draw(rng, rng.choice(levels))
    kind = rng.random()
    if kind < (0.58 if early else 0.48):
        return solve_prompt(problem.question), "", solve(problem, rng).body + "\n"
    if kind < (0.66 if early else 0.54):
        return chain(problem, rng)
    if kind < (0.69 if early else 0.57):
        return unfinished(problem, rng)
    count = rng.choice((0, 1, 2, 3) if early else (0, 1, 2, 3, 3, 4, 5, 5, 5, 5, 5, 5, 10))
    judge = kind > 0.93
    if kind > 0.96:
        count = 1
    shown, solutions = seen_solutions(problem, rng, count)
    written = review(problem, solutions, rng)
    completion = f"{written.body}\n"
    if judge:
        agreeing = [i for i, s in enumerate(solutions, start=1) if s.answer == written.answer]
        completion += f"{verdict(agreeing)}\n"
    prompt = review_prompt(problem.question, shown, "Judge:\n" if judge else "Analysis:\n")
    cut = prompt.index(SOLUTIONS_LINE) + len(SOLUTIONS_LINE)
    return prompt[:cut], prompt[cut:], completion


def chain(problem, rng: random.Random) -> tuple[str, str, str]:
    """The problem taken apart; every third time up to a sub-question, and whether that is useful."""
    marked = decompose(problem, rng, draw_author(rng))
    start = steps_prompt(problem.question, [])
    if rng.random() < 0.67:
        return start, "", steps_prompt(problem.question, marked.steps)[len(start) :]
    last = rng.randrange(len(marked.steps))
    useless = [i for i, useful in enumerate(marked.useful) if not useful]
    if useless and rng.random() < 0.7:
        last = rng.choice(useless)
    before = steps_prompt(problem.question, marked.steps[:last])
    asked = f"{before}Q: {marked.steps[last][0]}\nUseful:"
    return asked, "", f" {'Yes' if marked.useful[last] else 'No'}\n"


def unfinished(problem, rng: random.Random) -> tuple[str, str, str]:
    """The beginning of a solution, and whether it is right so far."""
    author = rng.choice(AUTHORS)
    wrong = frozenset(h for h in sorted(author.habits) if rng.random() < 0.5)
    right, marked = equations(problem, frozenset()), equations(problem, wrong)
    until = rng.randint(1, len(marked))
    body = write(marked[:until], author.layout, rng.choice(author.openers), problem.objects).body
    shown = body.split("\n")[0]
    if rng.random() < 0.5:
        shown = shown.split(" ", 1)[1]
    good = marked[:until] == right[:until]
    prompt = review_prompt(problem.question, [shown], "Right so far:")
    return prompt, "", f" {'Yes' if good else 'No'}\n"


def batches(tokenizer, rng: random.Random, forbidden: set[str], progress):
    """Endless (ids (b, t), weights (b, t), noise (b, t)) batches of about BATCH_TOKENS tokens; ``weights``
    is what each token counts in the loss: completions 1, solutions shown to a reviewer SHOWN_WEIGHT, the
    rest 0; ``noise`` is the size, in units of the embedding table's RMS, of what is added to a token's
    embedding: to the opening word of some solutions, so that what lies between words can be read too."""
    thought = tokenizer.encode(solve_prompt(""), add_special_tokens=False)[-3:]
    while True:
        now = progress()
        examples = [example(rng, forbidden, now) for _ in range(POOL)]
        prompts = tokenizer([e[0] for e in examples])["input_ids"]
        shown = tokenizer([e[1] for e in examples], add_special_tokens=False)["input_ids"]
        completions = tokenizer([e[2] for e in examples], add_special_tokens=False)["input_ids"]
        rows = []
        for p, s, c in zip(prompts, shown, completions, strict=True):
            c = c + [tokenizer.eos_token_id]
            weight = [0.0] * len(p) + [SHOWN_WEIGHT] * len(s) + [1.0] * len(c)
            size = rng.uniform(0.5, 3) if p[-3:] == thought and rng.random() < 0.2 else 0.0
            rows.append((p + s + c, weight, [0.0] * len(p) + [size] + [0.0] * (len(s) + len(c) - 1)))
        rows.sort(key=lambda row: len(row[0]))
        ready, batch = [], []
        for row in rows:
            if (len(batch) + 1) * len(row[0]) > BATCH_TOKENS:
                ready.append(batch)
                batch = []
            batch.append(row)
        ready.append(batch)
        rng.shuffle(ready)
        for batch in ready:
            width = max(len(row) for row, *_ in batch)
            ids = torch.full((len(batch), width), tokenizer.pad_token_id)
            weights, noise = torch.zeros(2, len(batch), width)
            for i, (row, weight, sizes) in enumerate(batch):
                ids[i, : len(row)] = torch.tensor(row)
                weights[i, : len(row)] = torch.tensor(weight)
                noise[i, : len(row)] = torch.tensor(sizes)
            yield ids, weights, noise


def learning_rate(progress: float, step: int) -> float:
    """Relative: 60 steps of warm-up, constant to 35% of the time, then linear to zero."""
    return min(1.0, (step + 1) / 60) * min(1.0, max(0.0, (1 - progress) / 0.65))


def weighted_loss(model, ids, weights, noise):
    """(weighted mean cross-entropy, the completions' own mean)."""
    table = model.get_input_embeddings()
    embeddings = table(ids[:, :-1])
    rms = table.weight.detach().square().mean().sqrt()
    embeddings = embeddings + noise[:, :-1, None] * rms * torch.randn_like(embeddings)
    hidden = model.model(inputs_embeds=embeddings).last_hidden_state
    weights, wanted = weights[:, 1:], weights[:, 1:] > 0
    weights = weights[wanted]
    losses = F.cross_entropy(model.lm_head(hidden[wanted]), ids[:, 1:][wanted], reduction="none")
    return losses @ weights / weights.sum(), losses.detach()[weights == 1].mean()


def train(args, tokenizer, forbidden: set[str]):
    torch.manual_seed(args.seed)
    torch.set_flush_denormal(True)  # gradients of well-known tokens become denormal, and slow without this
    model = LlamaForCausalLM.from_pretrained(args.start) if args.start else LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=args.width, intermediate_size=3 * args.width,
            num_hidden_layers=args.layers, num_attention_heads=args.width // 32,
            num_key_value_heads=args.width // 32, max_position_embeddings=1024,
            tie_word_embeddings=True, pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        )
    )  # fmt: skip
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embed" not in n]
    others = [p for n, p in model.named_parameters() if p.ndim != 2 or "embed" in n]
    optimizers = [
        torch.optim.Muon(matrices, lr=0.02, weight_decay=0.0, momentum=0.95),
        torch.optim.AdamW(others, lr=3e-3, weight_decay=0.0, betas=(0.9, 0.98)),
    ]
    peaks = [0.02, 3e-3]
    if args.compile:
        model.model.compile(dynamic=True)
    start = time.monotonic()

    def progress() -> float:
        done = (time.monotonic() - start) / (60 * args.minutes)
        return 0.5 + 0.5 * done if args.start else done

    log, losses, tokens, step = [], [], 0, 0
    bar = tqdm(total=round(60 * args.minutes), unit="s")
    stream = batches(tokenizer, random.Random(SPLIT_SEEDS["train"] * 1000 + args.seed), forbidden, progress)
    for ids, weights, noise in stream:
        now = progress()
        if now >= 1:
            break
        for optimizer, peak in zip(optimizers, peaks, strict=True):
            optimizer.param_groups[0]["lr"] = peak * learning_rate(now, step)
        loss, completion_loss = weighted_loss(model, ids, weights, noise)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        losses.append(completion_loss.item())
        tokens += ids.numel()
        step += 1
        if not math.isfinite(losses[-1]):
            raise SystemExit(f"loss became {losses[-1]} at step {step}: lower the learning rate")
        if step % 50 == 0:
            elapsed = time.monotonic() - start
            log.append({"step": step, "minutes": round(elapsed / 60, 2), "tokens": tokens,
                        "loss": round(sum(losses[-50:]) / 50, 4)})  # fmt: skip
            bar.set_postfix(step=step, loss=log[-1]["loss"], tokens_per_s=round(tokens / elapsed))
            if step % 300 == 0:
                model.save_pretrained(args.out / "model")
        bar.update(round(time.monotonic() - start) - bar.n)
    bar.close()
    return model, log


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--start", type=Path, help="go on from the model in this folder, in the second half of the schedule"
    )
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--compile", action="store_true", help="compile; one long run slowed down tenfold")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "soft_reasoning" / "demo")
    args = parser.parse_args()

    forbidden: set[str] = set()
    for split, count in COUNTS.items():
        problems = make_split(split, count, exclude=forbidden)
        forbidden |= {p.question for p in problems}
        args.out.mkdir(parents=True, exist_ok=True)
        with open(args.out / f"{split}.jsonl", "w", encoding="utf-8") as file:
            for i, problem in enumerate(problems):
                file.write(json.dumps(problem_row(problem, split, i)) + "\n")

    rng = random.Random(0)
    if args.start:
        tokenizer = AutoTokenizer.from_pretrained(args.start)
    else:
        tokenizer = build_tokenizer("".join(example(rng, forbidden, 0.5)) for _ in range(5000))
    tokenizer.save_pretrained(args.out / "model")
    model, log = train(args, tokenizer, forbidden)
    model.save_pretrained(args.out / "model")
    log_file = args.out / "model" / "training_log.json"
    log_file.write_text(json.dumps({"arguments": {k: str(v) for k, v in vars(args).items()}, "log": log}))


if __name__ == "__main__":
    main()
