"""Decode steps and prompts on a GPU beside their bare matrix products: python -m experiments.bench_gpu_steps

Models have the shapes of Llama-3.1-8B and Qwen2-7B and random bfloat16 weights, so that nothing is loaded.
For 1, 16, 64 and 256 rows after 250 positions (200 shared) it prints the milliseconds of a step by tiles,
over the graphs' buffers without a graph, as a graph, and as a graph whose layers are compiled; their ratios
to the bare products of the same rows, measured in the same run; and the largest difference of the logits
from those of the tiles, relative to their size. Then the attention kernel alone, whole steps of the engine
with sampling, prompts by tiles and by sequence, and a profile of three steps.

Each line is printed as soon as it is known, and no part begins after its share of ``--seconds`` (420), so
that the whole takes less than eight minutes. --small shows on the CPU that the script runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from experiments.bench_engine import linear_layers
from experiments.bench_gpu import PEAKED
from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.engine.huggingface import HuggingFaceEngine, attention, model_runner
from soft_reasoning.engine.huggingface.decode_graphs import DecodeGraphs
from soft_reasoning.engine.huggingface.model_runner import ModelRunner
from soft_reasoning.engine.huggingface.paged_attention import attend_blocks
from soft_reasoning.engine.huggingface.sequence import Sequence
from soft_reasoning.types import Request, Sampling

SHAPES = {
    "Llama-3.1-8B": (LlamaConfig, LlamaForCausalLM, (128256, 4096, 14336, 32, 32, 8)),
    "Qwen2-7B": (Qwen2Config, Qwen2ForCausalLM, (152064, 3584, 18944, 28, 28, 4)),
}
SMALL = (300, 64, 96, 2, 4, 2)
NAMES = "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads"
SHARED, OWN = 200, 50
"""Positions before a step."""


class Tokenizer(FakeTokenizer):
    """Spares the time of turning random ids into text."""

    def decode(self, ids, **options) -> str:
        return ""


class Bench:
    def __init__(self, seconds: float, small: bool) -> None:
        self.begin, self.seconds, self.small = time.monotonic(), seconds, small
        self.device = torch.device("cpu" if small else "cuda")
        self.dtype = torch.float32 if small else torch.bfloat16
        self.rows = (1, 4) if small else (1, 16, 64, 256)

    def say(self, *words: object) -> None:
        print(f"[{time.monotonic() - self.begin:4.0f} s]", *words, flush=True)

    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.begin)

    def wait(self) -> None:
        if not self.small:
            torch.cuda.synchronize()

    def median(self, run: Callable[[], object], budget: float = 2.0, most: int = 30) -> float:
        """Median milliseconds of ``run``, after three calls that do not count."""
        for _ in range(3):
            run()
        times: list[float] = []
        begin = time.monotonic()
        while len(times) < 3 or (len(times) < most and time.monotonic() - begin < budget):
            self.wait()
            start = time.perf_counter()
            run()
            self.wait()
            times.append(time.perf_counter() - start)
        return 1e3 * sorted(times)[len(times) // 2]

    def model(self, name: str):
        config, kind, sizes = SHAPES[name]
        options = dict(zip(NAMES.split(), SMALL if self.small else sizes, strict=True))
        ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
        torch.manual_seed(0)
        torch.set_default_dtype(self.dtype)
        try:
            with torch.device(self.device):
                model = kind(config(**options, **ends, max_position_embeddings=8192)).eval()
        finally:
            torch.set_default_dtype(torch.float32)
        model.lm_head.weight.data.mul_(PEAKED)
        return model

    def products(self, model, rows: int) -> float:
        layers = linear_layers(model)
        inputs = {x.in_features: torch.randn(rows, x.in_features, device=self.device) for x in layers}
        inputs = {width: x.to(self.dtype) for width, x in inputs.items()}
        return self.median(lambda: [layer(inputs[layer.in_features]) for layer in layers], 1.0)

    def sequences(self, runner: ModelRunner, rows: int) -> list[Sequence]:
        """Rows after a prompt of shared and own positions, whose keys are what the pool holds."""
        vocabulary, made = len(runner.lookup.weight), []
        limits = {"hidden_size": 9, "context_length": 9999, "vocabulary": vocabulary}
        for row in range(rows):
            own = [(7 * j + row) % (vocabulary - 9) + 5 for j in range(OWN - 1)]
            sequence = Sequence(row, Request((*range(5, 5 + SHARED), *own), max_new_tokens=99), **limits)
            sequence.ids = [5 + row % 90]
            runner.blocks.allocate(sequence)
            runner.blocks.grow(sequence)
            made.append(sequence)
        runner._prepare_pool()
        return made

    @torch.inference_mode()
    def steps(self, name: str, model, kinds: tuple[str, ...]) -> None:
        runner = ModelRunner(model, max_tokens=4000 if self.small else 100_000, graphs=True)
        self.wait()
        bare = {rows: self.products(model, rows) for rows in self.rows}
        self.say(name, "bare products, ms:", {rows: round(value, 2) for rows, value in bare.items()})
        warm = self.sequences(runner, 1)
        runner.prefill(warm)  # allocates the pool
        runner.blocks.release(warm[0])
        for layer in runner._pool._layers.values():
            for x in layer:
                x.normal_()
        for kind in kinds:
            if kind == "compiled":
                compile_layers(runner, "aot_eager" if self.small else "inductor")
            line, begin = [], time.monotonic()
            graphs = DecodeGraphs(runner._forward_ids, self.device)
            graphs.use(runner._pool)
            graphs._captures &= kind != "buffers"
            for rows in self.rows:
                if self.left() < 40:
                    break
                sequences = self.sequences(runner, rows)
                tiles, embeddings = runner._decode_pass(sequences), runner.embed_newest(sequences)

                def by_tiles(tiles=tiles, embeddings=embeddings, rows=rows) -> Tensor:
                    return runner._forward(tiles, embeddings, None)[:rows]

                run = by_tiles
                if kind != "tiles":

                    def run(graphs=graphs, sequences=sequences) -> Tensor:
                        return graphs.step(sequences, graphs.shape(sequences))

                try:
                    text = ""
                    if kind != "tiles":
                        got, expected = run().float().clone(), by_tiles().float()
                        text = f", error {float((got - expected).abs().max() / expected.abs().max()):.1g}"
                    value = self.median(run)
                    line.append(f"{rows}: {value:.2f} ms, {value / bare[rows]:.2f}x{text}")
                except Exception as error:  # the other rows still tell something
                    line.append(f"{rows}: {type(error).__name__}: {str(error)[:300]}")
                for sequence in sequences:
                    runner.blocks.release(sequence)
            captured = "" if kind == "tiles" or graphs._captures or self.small else " (no graph)"
            self.say(name, kind + captured, "|", " | ".join(line), f"| {time.monotonic() - begin:.0f} s")

    @torch.inference_mode()
    def kernel(self, heads: int, repeat: int) -> None:
        """The attention of a layer beside its bytes."""
        for rows, length in ((1, 4), (4, 40)) if self.small else ((64, 250), (256, 250), (16, 2000)):
            width, d = -(-length // 32), 128
            blocks = rows * width
            keys = torch.randn(blocks, heads, d, 32, device=self.device).to(self.dtype)
            values = torch.randn(blocks, heads, 32, d, device=self.device).to(self.dtype)
            table = torch.arange(blocks, device=self.device, dtype=torch.int32).view(rows, width)
            positions = torch.full((rows,), length - 1, device=self.device)
            q = torch.randn(rows, heads * repeat, d, device=self.device).to(self.dtype)
            run = partial(attend_blocks, q, keys, values, table, positions, scale=d**-0.5)
            value = self.median(run, 1.0)
            speed = 2 * rows * length * heads * d * q.element_size() / value / 1e6
            self.say(f"kernel, {rows} rows of {length}: {value:.3f} ms with its launch, {speed:.0f} GB/s")

    def engine(self, model, name: str) -> None:
        engine = HuggingFaceEngine.from_loaded(
            model, Tokenizer(), max_batch_tokens=4000 if self.small else 100_000
        )
        runner = engine._runner
        self.say(
            name,
            "engine:",
            type(runner).__name__,
            "with graphs" if getattr(runner, "_graphs", None) else "WITHOUT GRAPHS",
        )
        for rows in self.rows:
            for temperature in (0.8, 0.0):
                if self.left() < 30:
                    return
                tickets = self.start(engine, rows, temperature)
                value, bare = self.median(engine.step, 1.0, 12), self.products(model, rows)
                self.say(
                    f"engine step, {rows} rows, temperature {temperature}: {value:.2f} ms, "
                    f"{value / bare:.2f}x"
                )
                engine.cancel(tickets)
        count = 128 if self.small else 2048
        bare = self.products(model, count)
        for kind, least in (("tiles", 10**9), ("by sequence", 64)) * 2:
            model_runner.LEAST_SPAN[self.device.type] = least

            def read() -> None:
                ids = torch.randint(5, engine.vocabulary, (count,)).tolist()
                engine.generate([Request(tuple(ids), max_new_tokens=1)])

            value = self.median(read, 3.0, 10)
            self.say(
                f"prompt of {count} tokens {kind}: {value:.1f} ms, {value / bare:.2f}x (its head on all rows)"
            )
        if not self.small:
            from torch.profiler import ProfilerActivity, profile

            tickets = self.start(engine, 64, 0.8)
            with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
                for _ in range(3):
                    engine.step()
            print(
                seen.key_averages().table(
                    sort_by="self_cuda_time_total", row_limit=25, max_name_column_width=60
                )
            )
            engine.cancel(tickets)

    def start(self, engine: HuggingFaceEngine, rows: int, temperature: float) -> list[int]:
        """Begin ``rows`` requests and take some steps, in which graphs are captured."""
        options = {"max_new_tokens": 80, "min_new_tokens": 80, "sampling": Sampling(temperature)}
        head = range(5, 5 + SHARED)
        tickets = engine.add([Request((*head, 5 + i), seed=i, **options) for i in range(rows)])
        while len(engine._running) < rows:
            engine.step()
        for _ in range(3):
            engine.step()
        return tickets


def compile_layers(runner: ModelRunner, backend: str) -> None:
    """Let torch.compile join the small kernels of each layer; attention stays as it is."""
    torch._dynamo.config.recompile_limit = 64
    whole = torch.compiler.disable(attention.block_attention)
    attention.AttentionInterface.register(attention.NAME, whole)
    for layer in runner.model.model.layers:
        layer.compile(dynamic=True, backend=backend)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    bench = Bench(arguments.seconds, arguments.small)
    where = "CPU" if arguments.small else torch.cuda.get_device_name()
    bench.say(where, "torch", torch.__version__)
    llama = bench.model("Llama-3.1-8B")
    bench.steps("Llama-3.1-8B", llama, ("tiles", "buffers", "graph"))
    bench.kernel(8, 4)
    bench.engine(llama, "Llama-3.1-8B")
    if bench.left() > 60:
        bench.steps("Qwen2-7B", bench.model("Qwen2-7B"), ("graph",))
    if bench.left() > 90:  # last, since compiling cannot be interrupted
        bench.steps("Llama-3.1-8B", llama, ("compiled",))
    bench.say("done")


if __name__ == "__main__":
    main()
