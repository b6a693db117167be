"""How much soft tokens at each place change the next token: python -m experiments.paper.placement

The table shows the total variation between the next-token distributions of two random points (sigma = 8),
averaged over prompts and pairs. At 0 the place hides the soft token from the answer; at 1 each point gives
another token. The bundled model reads its own problems, and models with random weights read random tokens.
Prints the table, and writes it to placement.md.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine
from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.lab.reports.tables import Table
from soft_reasoning.prompts import PLACEMENTS
from soft_reasoning.types import Request

SIGMA, PROMPTS, POINTS = 8.0, 8, 8
FAMILIES = ("llama", "mistral", "qwen2", "gemma2", "phi3", "gpt2")
SHAPE = {
    "vocab_size": 500,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "head_dim": 16,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def variation(engine: HuggingFaceEngine, prompts: list[list[int]], place: str) -> float:
    """Mean total variation between points of the same prompt."""
    generator = torch.Generator().manual_seed(0)
    rms = engine.embed(range(64)).square().mean().sqrt()
    distances = []
    for ids in map(tuple, prompts):
        anchor, at = engine.embed(ids[-1:]), {"first": 1, "middle": len(ids) // 2, "last": None}[place]
        soft = anchor + SIGMA * rms * torch.randn(POINTS, *anchor.shape, generator=generator)
        requests = [Request(ids, x, at, max_new_tokens=0, next_logits=True) for x in soft]
        p = torch.stack([c.next_logits for c in engine.generate(requests)]).double().softmax(-1)
        distances.append((p[::2] - p[1::2]).abs().sum(-1).mean() / 2)
    return float(torch.stack(distances).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/placement"))
    out = parser.parse_args().out
    config = compose_config([f"limit={PROMPTS}"])
    bundled = build_engine(config)
    prompts = build_context(config, bundled).prompts
    engines = {"bundled": (bundled, [prompts.solve(p).ids for p in build_dataset(config).problems()])}
    for family in FAMILIES:
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **SHAPE)).eval()
        random_ids = torch.randint(3, SHAPE["vocab_size"], (PROMPTS, 60)).tolist()
        engines[f"{family}, random"] = HuggingFaceEngine.from_loaded(model, FakeTokenizer()), random_ids
    rows = [
        [name, *(f"{variation(engine, ids, place):.3f}" for place in PLACEMENTS)]
        for name, (engine, ids) in engines.items()
    ]
    out.mkdir(parents=True, exist_ok=True)
    table = Table(["model", *PLACEMENTS], rows)
    print(f"{table.text()}\n\n{out / 'placement.md'}")
    parts = [__doc__.partition("\n\n")[2].rpartition(" Prints")[0], table.markdown()]
    head = "# Placement: total variation of the next token\n\n`python -m experiments.paper.placement`\n\n"
    (out / "placement.md").write_text(head + "\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
