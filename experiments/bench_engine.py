"""How close the Hugging Face engine comes to the machine's speed: a step against its bare matrix products.

    python experiments/bench_engine.py demo [--dtype bfloat16] [--rows 8 40 240] [--steps 12]

A decode step of R rows (sampling included) and a prefill of 2,048 tokens (or what the context holds) are
compared with calling every linear layer of the model once on as many rows, in the same dtype and with the
same threads. Both are measured in turn, and the fastest of each counts, so other work matters little. The
rows of a decode step share a prompt of about 200 tokens.

In half precision it first prints how far the engine's logits and the model's own are from a float32 pass.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from time import perf_counter

import torch
from torch.nn import Linear

from soft_reasoning.engine.huggingface import HuggingFaceEngine, runner_choice
from soft_reasoning.engine.huggingface.model_runner import ModelRunner
from soft_reasoning.types import Request, Sampling

TEXT = "Tom counts the apples in the baskets. " * 24 + "Then he says:"
PREFILL, HEAD_ROWS = 2048, 8
ROWS = (8, 40, 240)


def linear_layers(model) -> list[Linear]:
    """The linear layers, the head last."""
    head = model.get_output_embeddings()
    return [x for x in model.modules() if isinstance(x, Linear) and x is not head] + [head]


@torch.inference_mode()
def products(model, rows: int, head_rows: int) -> float:
    """Seconds of all linear layers on ``rows`` rows, the head on ``head_rows``."""
    *layers, head = linear_layers(model)
    inputs = {x.in_features: torch.randn(rows, x.in_features).to(x.weight) for x in (*layers, head)}
    start = perf_counter()
    for layer in layers:
        layer(inputs[layer.in_features])
    head(inputs[head.in_features][:head_rows])
    synchronise(model)
    return perf_counter() - start


def synchronise(model) -> None:
    if model.device.type == "cuda":
        torch.cuda.synchronize()


def ids(count: int, seed: int, vocabulary: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(vocabulary, (count,), generator=generator).tolist())


def decode(engine: HuggingFaceEngine, rows: int, steps: int) -> tuple[float, float]:
    """Seconds of the fastest of ``steps`` decode steps of ``rows`` rows, and of its bare products."""
    head = engine.tokenizer.encode(TEXT)
    requests = [
        Request(
            (*head, i), max_new_tokens=steps + 9, min_new_tokens=steps + 9, sampling=Sampling(0.8), seed=i
        )
        for i in range(rows)
    ]
    tickets = engine.add(requests)
    while len(engine._running) < rows:  # noqa: SLF001
        engine.step()
    times, bare = [], []
    for _ in range(steps):
        start = perf_counter()
        engine.step()
        synchronise(engine.model)
        times.append(perf_counter() - start)
        bare.append(products(engine.model, rows, rows))
    engine.cancel(tickets)
    return min(times), min(bare)


def prefilled(engine: HuggingFaceEngine) -> int:
    """Tokens of a prefill: 2,048, or fewer in a shorter context."""
    return min(PREFILL, engine.context_length - 8)


def prefill(engine: HuggingFaceEngine, repeats: int) -> tuple[float, float]:
    """Seconds of the fastest prefill of one prompt, and of its bare products."""
    times, bare, count = [], [], prefilled(engine)
    for i in range(repeats):
        request = Request(ids(count, i + 1, engine.vocabulary), max_new_tokens=1)
        start = perf_counter()
        engine.generate([request])
        synchronise(engine.model)
        times.append(perf_counter() - start)
        bare.append(products(engine.model, count, HEAD_ROWS))
    return min(times), min(bare)


def exactness(engine: HuggingFaceEngine) -> None:
    """Print mean KL divergences (nats) from a float32 pass, and the largest relative difference."""
    print("| texts | engine | model's own passes | largest difference |\n| --- | ---: | ---: | ---: |")
    runner = ModelRunner(engine.model, max_tokens=runner_choice.MAX_TOKENS)
    for shape in runner_choice.SHAPES:
        with torch.inference_mode():
            text = runner_choice._Text(engine.model, *shape)  # noqa: SLF001
            served = runner_choice._serve(runner, text.ids, text.prompt)  # noqa: SLF001
            places, logits = tuple(zip(*served, strict=True)), torch.stack(list(served.values())).float()
            own, exact = text.own[places], text.exact[places]
            ours, theirs = (runner_choice.divergence(rows, exact) for rows in (logits, own))
        error = float((logits - own).abs().max() / own.abs().max())
        print(f"| {shape[0]} of {shape[1]} tokens | {ours:.2g} | {theirs:.2g} | {error:.2g} |")


def steps_table(engine: HuggingFaceEngine, rows: Sequence[int] = ROWS, steps: int = 12) -> None:
    """Print seconds of decode steps of so many rows, and of a prefill, beside their bare products."""
    print(
        "| step | seconds | bare products | ratio | tokens per second |\n| --- | ---: | ---: | ---: | ---: |"
    )
    for count in rows:
        step, bare = decode(engine, count, steps)
        print(
            f"| decode, {count} rows | {step:.4f} | {bare:.4f} | {step / bare:.2f} | {count / step:.0f} |",
            flush=True,
        )
    count = prefilled(engine)
    step, bare = prefill(engine, max(2, steps // 4))
    print(f"| prefill, {count} tokens | {step:.3f} | {bare:.3f} | {step / bare:.2f} | {count / step:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS)
    parser.add_argument("--steps", type=int, default=12)
    arguments = parser.parse_args()
    engine = HuggingFaceEngine(arguments.model, dtype=arguments.dtype, max_batch_rows=max(arguments.rows))
    kind, threads = str(engine.model.dtype).removeprefix("torch."), torch.get_num_threads()
    print(f"{arguments.model}: {kind}, {engine.model.device}, {threads} threads")
    if engine.model.dtype != torch.float32:
        exactness(engine)
    steps_table(engine, arguments.rows, arguments.steps)


if __name__ == "__main__":
    main()
