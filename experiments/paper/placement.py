"""How much soft tokens at each place change the next token: python -m experiments.paper.placement

Total variation between the next-token distributions of pairs of random points (sigma = 8), mean over prompts
and pairs: 0 where the place hides the soft token from the answer, 1 where each point gives another token. The
bundled model is asked its problems; models of random weights read random tokens. Writes placement.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from soft_reasoning.configuration.build import build_context, build_dataset, build_engine
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.prompts import PLACEMENTS
from soft_reasoning.reports.tables import Table
from soft_reasoning.types import Request

SIGMA, PROMPTS, POINTS = 8.0, 8, 8
FAMILIES = ("llama", "mistral", "qwen2", "gemma2", "phi3", "gpt2")
SHAPE = {
    "vocab_size": 500, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4, "head_dim": 16,
    "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def variation(engine: HuggingFaceEngine, prompts: list[tuple[int, ...]], place: str) -> float:
    """Mean total variation between points of the same prompt."""
    generator = torch.Generator().manual_seed(0)
    rms = float(engine.embed(range(64)).square().mean().sqrt())
    found = []
    for ids in prompts:
        at = {"first": 1, "middle": len(ids) // 2, "last": None}[place]
        noise = torch.randn(POINTS, 1, engine.embed([0]).shape[1], generator=generator)
        requests = [
            Request(ids, engine.embed(ids[-1:]) + SIGMA * rms * one, at, max_new_tokens=0, next_logits=True)
            for one in noise
        ]
        probabilities = torch.stack([c.next_logits for c in engine.generate(requests)]).double().softmax(-1)
        found.append((probabilities[::2] - probabilities[1::2]).abs().sum(-1).mean() / 2)
    return float(torch.stack(found).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/placement"))
    args = parser.parse_args()
    config = compose_config([f"limit={PROMPTS}"])
    bundled = build_engine(config)
    context = build_context(config, bundled)
    asked = [context.prompts.solve(problem).ids for problem in build_dataset(config).problems()]
    engines = {"bundled": (bundled, asked)}
    for family in FAMILIES:
        torch.manual_seed(0)
        settings = AutoConfig.for_model(family, **SHAPE)
        model = AutoModelForCausalLM.from_config(settings).eval()
        drawn = torch.randint(3, SHAPE["vocab_size"], (PROMPTS, 60)).tolist()
        engines[f"{family}, random"] = (
            HuggingFaceEngine.from_loaded(model, FakeTokenizer()),
            [tuple(ids) for ids in drawn],
        )
    rows = [
        [name, *(f"{variation(engine, prompts, place):.3f}" for place in PLACEMENTS)]
        for name, (engine, prompts) in engines.items()
    ]
    table = Table(["model", *PLACEMENTS], rows).markdown()
    parts = [
        "# Placement: total variation of the next token",
        "`python -m experiments.paper.placement`",
        table,
    ]
    parts.append(
        f"{PROMPTS} prompts, {POINTS // 2} pairs of points, sigma = {SIGMA:g} (in rms of the table)."
    )
    text = "\n\n".join(parts) + "\n"
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "placement.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
