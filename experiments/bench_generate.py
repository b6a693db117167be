"""CPU time of the Hugging Face engine against ``model.generate``, tokens compared. One command:

    python experiments/bench_generate.py [--hidden-size 128] [--problems 64] [--candidates 5] [--threads 1]
        [--times 3] [--shared 0 150 300]

A random Llama of the bundled model's size (256: 2.8 million parameters); each problem has a prefix of its
own, but for its first ``--shared`` tokens, which are common to all problems, as exemplars are; candidates
differ in one soft token.
``generate`` gets left-padded chunks of 64 rows, the usual way. Workloads: every completion as long as the
others, and ragged lengths, which end-of-sequence tokens give ``generate`` too (its rows wait for the longest
of their chunk). The two take turns, and of each the least of ``--times`` counts: what else the memory serves
moves both.
"""

from __future__ import annotations

import argparse
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.generation import LogitsProcessor, LogitsProcessorList

from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.types import Request

EOS, CHUNK, PREFIX = 1, 64, 300


class EndAt(LogitsProcessor):
    """Forces the end-of-sequence token at each row's own step."""

    def __init__(self, steps: list[int]) -> None:
        self.steps, self.step = torch.tensor(steps), 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.step += 1
        scores[:, EOS] = torch.where(self.steps <= self.step, torch.inf, -torch.inf)
        return scores


def build_model(hidden_size: int = 128) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=FakeTokenizer().vocab_size, hidden_size=hidden_size, intermediate_size=2 * hidden_size,
        num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=2048,
        initializer_range=0.2, bos_token_id=0, eos_token_id=EOS, pad_token_id=2,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def requests_of(model: LlamaForCausalLM, problems: int, candidates: int, lengths: list[int], shared: int):
    """One request a candidate; the number of new tokens is exact."""
    generator = torch.Generator().manual_seed(1)
    table = model.get_input_embeddings().weight.detach()
    common = torch.randint(3, len(table), (shared,), generator=generator).tolist()
    requests = []
    for p in range(problems):
        own = torch.randint(3, len(table), (PREFIX - shared,), generator=generator).tolist()
        for c in range(candidates):
            soft = table[torch.randint(3, len(table), (1,), generator=generator)]
            soft = soft + table.std() * torch.randn(soft.shape, generator=generator)
            n = lengths[p * candidates + c]
            requests.append(Request(tuple(common + own), soft=soft, max_new_tokens=n, min_new_tokens=n))
    return requests


@torch.inference_mode()
def by_generate(model: LlamaForCausalLM, requests: list[Request]) -> list[list[int]]:
    out = []
    lookup = model.get_input_embeddings()
    for at in range(0, len(requests), CHUNK):
        chunk = requests[at : at + CHUNK]
        embeds = torch.stack([torch.cat([lookup(torch.tensor(r.prompt_ids)), r.soft]) for r in chunk])
        # Behind the last wanted token comes the end, so that each row stops where its request does.
        steps = [r.max_new_tokens + 1 for r in chunk]
        tokens = model.generate(
            inputs_embeds=embeds, attention_mask=torch.ones(embeds.shape[:2], dtype=torch.long),
            max_new_tokens=max(steps) - 1, do_sample=False,
            logits_processor=LogitsProcessorList([EndAt(steps)]),
        )  # fmt: skip
        out += [row[: r.max_new_tokens] for row, r in zip(tokens.tolist(), chunk, strict=True)]
    return out


def seconds(work) -> tuple[float, list]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--problems", type=int, default=64)
    parser.add_argument("--candidates", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--shared", type=int, nargs="+", default=[0, PREFIX // 2, PREFIX])
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    model = build_model(args.hidden_size)
    engine = HuggingFaceEngine.from_loaded(model, FakeTokenizer())
    rows = args.problems * args.candidates
    ragged = torch.randint(20, 201, (rows,), generator=torch.Generator().manual_seed(2)).tolist()
    print(f"{model.num_parameters() / 1e6:.1f} million parameters, {args.problems} problems x "
          f"{args.candidates} candidates, {PREFIX}-token prefix, CPU seconds, {args.threads} thread(s), "
          f"torch {torch.__version__}")  # fmt: skip
    print(f"{'new tokens':<28}{'generate':>10}{'engine':>10}{'ratio':>8}  same tokens")
    even = [64] * rows
    cases = [
        (f"{name}, {shared} common", lengths, shared)
        for shared in args.shared
        for name, lengths in (("64", even), ("20 to 200", ragged))
    ]
    for name, lengths, shared in cases:
        requests = requests_of(model, args.problems, args.candidates, lengths, shared)
        slow, fast = [], []
        for _ in range(args.times):
            one, expected = seconds(lambda requests=requests: by_generate(model, requests))
            engine.begin_run()  # which forgets the prompts
            other, got = seconds(lambda requests=requests: engine.generate(requests))
            slow.append(one)
            fast.append(other)
        slow, fast = min(slow), min(fast)
        same = sum(list(c.token_ids) == tokens for c, tokens in zip(got, expected, strict=True))
        print(f"{name:<28}{slow:>10.1f}{fast:>10.1f}{slow / fast:>7.1f}x  {same}/{rows}")


if __name__ == "__main__":
    main()
