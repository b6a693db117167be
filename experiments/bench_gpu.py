"""A whole run at full size on a GPU: python -m experiments.bench_gpu

Soft Reasoning with its defaults (up to four rounds of five candidates, 300 new tokens each, then a verifier
that reads all five) on 200 problems, by a Llama with 8 billion random bfloat16 weights. Its texts are
meaningless, but their cost is real. Prompts have about 100 tokens, verifier prompts about 1,500. There is a
run with the paper's stopping rule, and a run with all four rounds for every problem. All problems are active
at once: the keys and values of their 1,000 candidates take 42 GB, those of their verifiers 47 GB. With less
memory the engine splits them into batches.

The bound is the time in which the memory delivers the weights and the keys and values of the rows once per
decoding step. Those of a prompt count once for its five candidates. The bandwidth is measured by copying. At
the end single steps are compared with their bare matrix products, as bench_engine.py does.
Without a GPU, --device cpu --layers 2 --width 64 --vocabulary 500 --problems 4 --new-tokens 8 shows that the
script runs.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from contextlib import redirect_stdout
from functools import partial
from typing import Any

import torch
from omegaconf import OmegaConf
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from experiments.bench_engine import steps_table
from soft_reasoning.configuration.build import build_context, build_method
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.engine.base import Engine
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.engine.running import RunningRequest
from soft_reasoning.lab.reports.tables import Table
from soft_reasoning.lab.runs.runner import LocalSolver, run
from soft_reasoning.types import Completion, Problem, Request

NEEDS = (
    "bench_gpu.py needs a GPU with at least 40 GB of memory (16 GB of bfloat16 weights, the rest keys and "
    "values), found none; --device cpu --layers 2 --width 64 --vocabulary 500 --problems 4 --new-tokens 8 "
    "shows that it runs"
)
QUESTION = 60
"""Words of a question."""
PEAKED = 8
"""Factor of a random head: without it no token is likely, and every row sorts the whole vocabulary."""
ROWS = (1, 16, 64, 256)
COPIED = 2**28
"""Bytes copied to measure the memory's bandwidth; four times as many on a GPU."""


def build_model(args: argparse.Namespace) -> LlamaForCausalLM:
    """Llama 3 8B's shape at the default ``width``, ``layers`` and ``vocabulary``."""
    head = min(128, args.width // 4)
    config = LlamaConfig(
        vocab_size=args.vocabulary,
        hidden_size=args.width,
        intermediate_size=7 * args.width // 2,
        num_hidden_layers=args.layers,
        num_attention_heads=args.width // head,
        head_dim=head,
        num_key_value_heads=max(1, args.width // head // 4),
        max_position_embeddings=8192,
        rope_theta=500_000.0,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if args.device == "cuda" else torch.float32)
    try:
        with torch.device(args.device):
            model = LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(before)
    model.lm_head.weight.data.mul_(PEAKED)
    return model


def build_tokenizer(size: int) -> PreTrainedTokenizerFast:
    """A tokenizer with a word per token, so that generated text has the same number of tokens when read."""
    words = ["<s>", "</s>", "<unk>", *(word(i) for i in range(3, size))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<unk>"
    )


def word(token: int) -> str:
    """The word of a token; every tenth is a number, so that completions have an answer to verify."""
    return f"w{token}" if token % 10 else str(token)


def random_problems(count: int, vocabulary: int) -> list[Problem]:
    rng = random.Random(0)
    words = [[word(rng.randrange(3, vocabulary)) for _ in range(QUESTION)] for _ in range(count)]
    return [Problem(str(i), " ".join(question), "1") for i, question in enumerate(words)]


class Metered(Engine):
    """Runs ``engine`` and adds up the least number of bytes that its decoding steps must read."""

    def __init__(self, engine: HuggingFaceEngine) -> None:
        super().__init__()
        self._engine, self.model, self.device = engine, engine.model, engine.device
        model, config = engine.model, engine.model.config
        lookup = model.get_input_embeddings().weight
        item = lookup.element_size()
        self.weights = sum(p.numel() * p.element_size() for p in model.parameters()) - lookup.nbytes
        self.position = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * item
        self.bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def prepare(self, request: Request, ticket: int = -1) -> RunningRequest:
        return self._engine.prepare(request, ticket)

    def advance(self) -> list[tuple[int, Completion]]:
        requests = [row.request for row in self.queued.values()]
        completions = self._engine.generate(requests)
        steps: dict[tuple[int, ...], int] = {}
        for request, completion in zip(requests, completions, strict=True):
            count = completion.generated_tokens
            steps[request.prompt_ids] = max(count, steps.get(request.prompt_ids, 0))
            self.bytes += self.position * count * (count + 1) // 2
        self.bytes += self.weights * max(steps.values())
        self.bytes += self.position * sum(len(prompt) * most for prompt, most in steps.items())
        return list(zip(self.queued, completions, strict=True))


def bandwidth(device: str) -> float:
    """Bytes per second that the memory reads and writes, by copying."""
    size = COPIED * (4 if device == "cuda" else 1)
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    best = 0.0
    for _ in range(5):
        wait(device)
        start = time.perf_counter()
        target.copy_(source)
        wait(device)
        best = max(best, 2 * size / (time.perf_counter() - start))
    return best


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--vocabulary", type=int, default=128256)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--new-tokens", type=int, default=300)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="of single steps, at the end")
    parser.add_argument("--overrides", nargs="*", default=[], help="of the configuration: max_live=64, ...")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        print(NEEDS, file=sys.stderr)
        sys.exit(2)
    speed = bandwidth(args.device)
    engine = HuggingFaceEngine.from_loaded(build_model(args), build_tokenizer(args.vocabulary))
    problems = random_problems(args.problems, args.vocabulary)
    rows = []
    for name, rule in (("as it stops", "difference"), ("all four", "none")):
        config = compose_config(
            [
                "prompt=math",
                "grader=lm_eval_flexible",  # reads cut texts, as nearly all of these are
                "verifier.shots=0",
                "rounds=3",
                f"stopping={rule}",
                f"max_new_tokens={args.new_tokens}",
                f"max_live={args.problems}",
                *args.overrides,
            ]
        )
        metered = Metered(engine)
        context = build_context(config, metered)
        begin = partial(LocalSolver, build_method(config), context, config.max_live)
        plain = OmegaConf.to_container(config, resolve=True)
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
            run(problems[:2], begin, context.grader, f"{folder}/warm-up", plain, progress=False)
            metered.bytes = 0
            wait(args.device)
            start = time.perf_counter()
            run_folder = f"{folder}/run"
            metrics = run(problems, begin, context.grader, run_folder, plain, progress=False).metrics
            seconds = time.perf_counter() - start
        total, verifier = metrics["tokens"]["total"], metrics["tokens"]["verifier"]
        rows.append(
            [
                name,
                f"{metrics['rounds']['mean']:.2f}",
                f"{verifier['prompt'] / verifier['sequences']:,.0f}",
                f"{seconds:,.1f}",
                f"{total['generated'] / seconds:,.0f}",
                f"{100 * metrics['seconds']['engine'] / seconds:.1f}",
                f"{100 * metered.bytes / speed / seconds:.1f}",
            ]
        )
    columns = ("rounds", "rounds run", "verifier prompt", "seconds", "tokens/s", "engine %", "of the bound %")
    print(Table(columns, rows).markdown())
    where = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    billions = sum(p.numel() for p in engine.model.parameters()) / 1e9
    print(
        f"\n{args.problems} problems, {billions:.3g} billion parameters ({engine.model.dtype}) on {where}, "
        f"copying {speed / 1e9:,.0f} GB/s, torch {torch.__version__}"
    )
    runner = engine._runner
    most = f"batches of at most {engine.max_batch_tokens:,} tokens"
    print(f"run by {type(runner).__name__}, {most}\n")
    steps_table(engine, args.rows)


if __name__ == "__main__":
    main()
