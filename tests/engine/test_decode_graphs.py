"""Decode steps over fixed buffers: the tokens of the other steps, and what a GPU needs to capture them."""

from contextlib import contextmanager
from functools import partial

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.engine.huggingface import HuggingFaceEngine, decode_graphs, model_runner, probe
from soft_reasoning.engine.huggingface.model_runner import ModelRunner
from soft_reasoning.engine.huggingface.sequence import Sequence
from soft_reasoning.types import Request, Sampling
from tests.engine.capturing import Capturing
from tests.engine.models import FAMILIES, HYBRIDS, OTHERS, VOCABULARY, random_ids, tiny

SERVED = "llama qwen2 qwen3 mistral gemma2 gemma3_text gpt_oss phi3 qwen2_moe".split()
"""With windows, soft caps, sinks and experts."""
WAITING = {"jetmoe": "Cannot copy out of meta tensor; no data!", "phimoe": "to mixes host and device"}
"""Families that bring data to the host or from it in a step: it runs over the buffers, but not as a graph."""


@pytest.fixture
def graphs(monkeypatch):
    """Engines decode with graphs' buffers on the CPU, too."""
    monkeypatch.setattr(probe, "CAPTURES", {"cpu"})


def requests(engine: HuggingFaceEngine) -> list[Request]:
    """Uneven ones with shared prompts, soft tokens and stop strings, greedy and sampled."""
    head, texts = random_ids(90, 0), []
    for i in range(10):
        soft = engine.embed([6 + i]) if i % 2 else None
        sampling = Sampling(0.8 if i % 3 else 0.0, top_p=0.9 if i % 4 == 1 else 1.0)
        least = 0 if i % 3 == 2 else 5 + 9 * i
        texts.append(
            Request(
                (*head[: 20 + 7 * i], 5 + i),
                soft=soft,
                max_new_tokens=5 + 9 * i,
                min_new_tokens=least,
                stop=("e",) if i % 3 == 2 else (),
                sampling=sampling,
                seed=i,
            )
        )
    return texts


def serve(engine: HuggingFaceEngine) -> dict:
    """Completions of :func:`requests`, of which one is cancelled; another joins late."""
    tickets, completions = engine.add(requests(engine)), {}
    for step in range(300):
        if step == 6:
            engine.cancel(tickets[3:4])
        if step == 9:
            late = Request(random_ids(64, 0), max_new_tokens=12, sampling=Sampling(0.5), seed=77)
            tickets += engine.add([late])
        completions |= dict(engine.step())
    assert not engine.queued and len(completions) == 10
    return completions


def check_same(got: dict, expected: dict) -> None:
    for ticket, completion in expected.items():
        assert got[ticket].token_ids == completion.token_ids and got[ticket].text == completion.text
        assert got[ticket].logprobs == pytest.approx(completion.logprobs, abs=1e-4)


@pytest.mark.parametrize("family", SERVED)
def test_the_tokens_are_those_of_other_steps(family, graphs):
    engine = HuggingFaceEngine.from_loaded(tiny(family), FakeTokenizer())
    assert engine._runner._graphs is not None
    check_same(serve(engine), serve_without_graphs(family))


def serve_without_graphs(family: str) -> dict:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "CAPTURES", set())
        engine = HuggingFaceEngine.from_loaded(tiny(family), FakeTokenizer())
    assert engine._runner._graphs is None
    return serve(engine)


def test_steps_that_the_buffers_do_not_hold_run_without_them(graphs, monkeypatch):
    monkeypatch.setattr(decode_graphs, "SIZES", (1, 2, 4))  # of rows
    for bound, most in ((None, 4), (16, 16)):  # by default no step has more rows than a graph
        engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer(), max_batch_rows=bound)
        assert engine._runner.max_rows == most
        check_same(serve(engine), serve_without_graphs("llama"))
    monkeypatch.setattr(decode_graphs, "MOST_BLOCKS", 2 * decode_graphs.PART)
    check_same(
        serve(HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())), serve_without_graphs("llama")
    )


def sequences_of(lengths: list[int]) -> list[Sequence]:
    limits = {"hidden_size": 64, "context_length": 2**31, "vocabulary": VOCABULARY}
    return [
        Sequence(i, Request(random_ids(length, i), max_new_tokens=40), **limits)
        for i, length in enumerate(lengths)
    ]


@torch.inference_mode()
def decoding(runner: ModelRunner, lengths: list[int]) -> list[Sequence]:
    """Sequences with a first token, whose blocks are allocated and whose prompts are computed."""
    rows = sequences_of(lengths)
    for row in rows:
        row.cached_tokens = runner.blocks.allocate(row)
    runner.prefill(rows)
    for row in rows:
        row.ids.append(7)
    return rows


@torch.inference_mode()
def test_rows_that_fill_a_step_up_write_to_the_spare_block_alone():
    runner = ModelRunner(tiny("llama"), max_tokens=2048, graphs=True)
    rows = decoding(runner, [5, 40, 70])
    runner._prepare_pool()
    before = {layer: [x.clone() for x in pair] for layer, pair in runner._pool._layers.items()}
    assert runner.decode(rows).shape[0] == 3 and runner._graphs.shape(rows)[0] == 4
    for layer, pair in runner._pool._layers.items():
        for x, old in zip(pair, before[layer], strict=True):
            changed = (x != old).flatten(1).any(-1).nonzero().flatten().tolist()
            assert changed == sorted({row.block_table[-1] for row in rows} | {runner.blocks.total})


@torch.inference_mode()
def test_rows_that_look_alike_do_not_get_the_blocks_of_earlier_ones():
    """Other sequences, in other blocks, with the tickets and the numbers of blocks of those before."""
    runner, other = (ModelRunner(tiny("llama"), max_tokens=2048, graphs=g) for g in (True, False))
    held = decoding(runner, [40, 40])
    runner.decode(held)
    rows, expected = decoding(runner, [40, 40]), decoding(other, [40, 40])
    assert rows[0].block_table != held[0].block_table
    assert torch.allclose(runner.decode(rows), other.decode(expected), atol=1e-4)


class Graph:
    """Stands for a CUDA graph: a replay writes into the memory that the captured step returned."""

    def replay(self) -> None:
        self.logits.copy_(self.run())


@pytest.fixture
def capturing(monkeypatch):
    """DecodeGraphs capture on the CPU; captures are counted, and fail with an error that is set."""
    seen, made = {"count": 0, "error": None}, decode_graphs.DecodeGraphs.__init__
    step = decode_graphs.DecodeGraphs._run

    def run(self, *shape):
        seen["step"] = partial(step, self, *shape)
        seen["logits"] = seen["step"]()
        return seen["logits"]

    @contextmanager
    def graph(captured, **_):
        seen["count"] += 1
        if seen["error"]:
            raise seen["error"]
        yield
        captured.run, captured.logits = seen["step"], seen["logits"]

    def captures(self, forward, device):
        made(self, forward, device)
        self._captures = True

    monkeypatch.setattr(decode_graphs.DecodeGraphs, "__init__", captures)
    monkeypatch.setattr(decode_graphs.DecodeGraphs, "_run", run)
    for name, value in {
        "CUDAGraph": Graph,
        "graph": graph,
        "graph_pool_handle": lambda: None,
        "current_stream": lambda: None,
        "Stream": lambda _: None,
        "set_stream": lambda _: None,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    return seen


@torch.inference_mode()
def test_one_graph_serves_all_batches_of_a_shape(capturing):
    runner = ModelRunner(tiny("llama"), max_tokens=4096, graphs=True)
    rows = decoding(runner, [5, 40, 70, 20, 9, 9, 300])
    for batch, count in (
        (rows[:3], 1),
        (rows[1:5], 1),
        (rows[:6], 2),
        (rows[2:6] + rows[:2], 2),
        (rows[4:], 3),
    ):
        runner.decode(batch)  # the last has a long row
        assert capturing["count"] == count
    runner.resize(2048)  # the pool is another
    runner.decode(decoding(runner, [5, 40, 70]))
    assert capturing["count"] == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_captured_step_passes_the_probe_and_gives_the_same_tokens(capturing, graphs, caplog, dtype):
    engine = HuggingFaceEngine.from_loaded(tiny("llama").to(dtype), FakeTokenizer())
    assert engine._runner._graphs is not None and not caplog.messages
    probed, got = capturing["count"], serve(engine)
    assert 0 < probed < capturing["count"]
    if dtype == torch.float32:
        check_same(got, serve_without_graphs("llama"))


def test_where_a_step_cannot_be_captured_it_runs_all_the_same(capturing, graphs, caplog):
    capturing["error"] = RuntimeError("operation not permitted\nwhen stream is capturing")
    engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())
    check_same(serve(engine), serve_without_graphs("llama"))
    [message] = caplog.messages
    assert message == (
        "decode steps run without CUDA graphs, which takes longer: operation not permitted when stream is "
        "capturing"
    )
    assert capturing["count"] == 1


@torch.inference_mode()
def test_a_size_that_does_not_fit_ends_no_other(capturing):
    runner = ModelRunner(tiny("llama"), max_tokens=4096, graphs=True)
    rows = decoding(runner, [5, 40, 70, 20, 9])
    capturing["error"] = torch.OutOfMemoryError("CUDA out of memory")
    with pytest.raises(torch.OutOfMemoryError):
        runner.decode(rows)
    capturing["error"] = None
    runner.decode(rows[:2])
    assert capturing["count"] == 2 and len(runner._graphs._steps) == 1


def test_where_memory_runs_out_while_capturing_batches_are_halved(graphs, monkeypatch):
    engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer(), max_batch_tokens=8000)

    def capture(self, run):
        if len(engine._running) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return run

    monkeypatch.setattr(decode_graphs.DecodeGraphs, "_capture", capture)
    check_same(serve(engine), serve_without_graphs("llama"))
    assert engine.max_batch_tokens < 1000


def test_a_wrong_kernel_is_noticed_when_the_model_is_loaded(graphs, monkeypatch, caplog):
    attend = decode_graphs.attend_blocks
    monkeypatch.setattr(
        decode_graphs, "attend_blocks", lambda *a, scale, **o: attend(*a, scale=2 * scale, **o)
    )
    engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())
    assert isinstance(engine._runner, ModelRunner) and engine._runner._graphs is None
    [message] = caplog.messages
    assert message.startswith("LlamaForCausalLM decodes without CUDA graphs, which takes longer: its logits")


def step_on_meta(model, monkeypatch, rows: int = 8) -> Capturing:
    """One step of ``model``, with nothing in the place of the attention's two kernels."""
    monkeypatch.setattr(model_runner, "fuse_norms", lambda _: 0)
    monkeypatch.setattr(
        decode_graphs,
        "attend_blocks",
        lambda q, _, values, *__, **___: q.new_empty(*q.shape[:2], values.shape[3]),
    )
    model = model.to("meta", torch.bfloat16)
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                setattr(module, name, value.to("meta"))
    with torch.inference_mode():
        runner = ModelRunner(model, max_tokens=512, graphs=True)
        runner._prepare_pool()
        runner._graphs._run(rows, 8)  # allocates the pool
        with Capturing() as seen:
            runner._graphs._run(rows, 8)
    return seen


@pytest.mark.parametrize(
    "family",
    [
        pytest.param(family, marks=() if family in FAMILIES else pytest.mark.slow)
        for family in sorted(FAMILIES | HYBRIDS | OTHERS)
    ],
)
def test_steps_can_be_captured(family, monkeypatch):
    model = tiny(family)
    if reason := probe._no_block_table(model):
        pytest.skip(reason)
    try:
        problem = " ".join(sorted({*step_on_meta(model, monkeypatch).broken}))
    except NotImplementedError as error:
        problem = str(error)
    if "custom attention mask" in problem:
        pytest.skip(problem)
    assert problem == WAITING.get(family, "")


LLAMA_8B = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}


@pytest.mark.slow
def test_few_kernels_beside_the_products_of_a_model_of_full_size(monkeypatch):
    """Of 8 billion parameters, which take no memory on the meta device."""
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**LLAMA_8B)).eval()
    seen = step_on_meta(model, monkeypatch, rows=64)
    assert not seen.broken
    products = seen.kernels.count("linear")
    assert products == 7 * 32 + 1 and len(seen.kernels) < 6 * products
