"""The Hugging Face engine on small random models: the contract, and agreement with transformers."""

import pytest
import torch

from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.engine.huggingface import HuggingFaceEngine, model_runner, runner_choice
from soft_reasoning.engine.huggingface import engine as engine_module
from soft_reasoning.engine.huggingface.model_runner import ModelRunner
from soft_reasoning.engine.huggingface.plain_runner import PlainRunner
from soft_reasoning.types import Request, Sampling
from tests.contracts.engine import EngineContract, HiddenStateContract
from tests.engine.models import BASE, FAMILIES, SHARING, random_ids, tiny, tiny_engine

MIXTURES = {"mixtral", "qwen2_moe", "gpt_oss", "deepseek_v3"}


def by_generate(model, prompt: tuple[int, ...], new: int, **options) -> tuple[int, ...]:
    out = model.generate(torch.tensor([prompt]), max_new_tokens=new, do_sample=False, **options)
    return tuple(out[0, len(prompt) :].tolist())


@pytest.fixture(scope="module")
def engine():
    return tiny_engine()


class TestHuggingFace(EngineContract):
    def test_prompts_that_begin_alike_are_computed_once(self, engine, prompts):
        """Full blocks, within a call and between calls; the same bits either way."""
        engine.begin_run()
        head, other = random_ids(100, 9), random_ids(7, 10)
        soft = [(engine.embed([4 + i]), other[:i]) for i in (0, 0, 3, 7)]
        asked = [Request(head + more, soft=x, max_new_tokens=6) for x, more in soft]
        first = engine.generate(asked)
        assert [completion.cached_tokens for completion in first] == [0, 96, 96, 96]
        again = engine.generate(asked)
        assert [completion.cached_tokens for completion in again] == [96, 96, 96, 96]
        assert all(self.same(a, b) for a, b in zip(first, again, strict=True))
        engine.begin_run()
        alone = [engine.generate([request])[0] for request in asked]
        assert [completion.cached_tokens for completion in alone] == [0, 96, 96, 96]
        assert all(self.same(a, b) for a, b in zip(first, alone, strict=True))

    def test_soft_tokens_are_part_of_what_is_shared(self, engine):
        """Placed first: the same soft token shares its blocks, another shares nothing."""
        engine.begin_run()
        soft = engine.embed([4, 5])
        ids = random_ids(70, 11)
        asked = [Request(ids, soft=x, position=0, max_new_tokens=4) for x in (soft, soft * 1.5)]
        for cached in ([0, 0], [64, 64]):
            assert [completion.cached_tokens for completion in engine.generate(asked)] == cached

    def test_a_batch_that_is_larger_than_the_bound_is_worked_off_in_turns(self, engine, prompts):
        small = HuggingFaceEngine.from_loaded(engine.model, engine.tokenizer, max_batch_tokens=200)
        requests = self.mixed(engine, prompts)
        expected = engine.generate(requests)
        assert all(self.same(a, b) for a, b in zip(small.generate(requests), expected, strict=True))
        assert small.peak_bytes["kv"] < 0.5 * engine.peak_bytes["kv"]
        long = Request(random_ids(400, 12), max_new_tokens=3)
        assert self.same(small.generate([long])[0], engine.generate([long])[0])

    @pytest.mark.parametrize("family", ["llama", "mamba"])
    def test_no_more_rows_run_at_once_than_allowed(self, family, prompts):
        model = tiny(family)
        requests = [Request(prompts[1], max_new_tokens=6, seed=i, sampling=Sampling(1.0)) for i in range(7)]
        expected = HuggingFaceEngine.from_loaded(model, FakeTokenizer()).generate(requests)
        engine = HuggingFaceEngine.from_loaded(model, FakeTokenizer(), max_batch_rows=3)
        tickets, running, completions = engine.add(requests), [], {}
        while len(completions) < len(requests):
            completions |= dict(engine.step())
            running.append(len(engine._running))
        assert max(running) == 3
        assert all(self.same(completions[t], e) for t, e in zip(tickets, expected, strict=True))

    def test_under_a_bound_of_rows_lower_turns_start_first(self, prompts):
        engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer(), max_batch_rows=2)
        late = engine.add([Request(prompts[1], max_new_tokens=3, seed=i, turn=1) for i in range(6)])
        engine.step()
        early = engine.add([Request(prompts[1], max_new_tokens=3, turn=0)])
        order = []
        while len(order) < 7:
            order += [ticket for ticket, _ in engine.step()]
        assert order.index(*early) == 2 and {*order} == {*late, *early}  # after the two that were running

    def test_a_large_model_on_the_cpu_has_few_rows_at_once(self, monkeypatch):
        assert tiny_engine()._runner.max_rows is None
        monkeypatch.setattr(engine_module, "LARGE", 1000)
        assert tiny_engine()._runner.max_rows == 96


class TestHiddenStates(HiddenStateContract):
    """A model with a block table, one that caps its logits, one with a cache of its own."""

    @pytest.fixture(scope="class", params=["llama", "gemma2", "mamba"])
    def engine(self, request):
        return tiny_engine(request.param)

    @pytest.fixture(scope="class")
    def prompts(self):
        return [random_ids(length, seed) for seed, length in enumerate((40, 12, 33))]

    def layer(self, engine, prompt, depth):
        """The states of all tokens at a depth, as transformers gives them."""
        with torch.inference_mode():
            states = engine.model(torch.tensor([prompt]), output_hidden_states=True).hidden_states
        first = int(engine.model.config.model_type == "mamba")  # its states begin after the first layer
        return states[-1 if depth == 1 else round(depth * (len(states) - 1)) - first][0].float()

    @pytest.mark.parametrize("length", [5, 8, 40])  # of few tokens, as many as rows of padding, and more
    @pytest.mark.parametrize("depth", [0.5, 1.0])
    def test_it_is_the_layer_s_at_its_depth(self, engine, depth, length):
        """Also for the embeddings that a prompt's tokens stand for."""
        prompt = random_ids(length, 7)
        whole = self.layer(engine, prompt, depth)[-1]
        soft = {"prompt_ids": prompt[:2] + prompt[4:], "soft": engine.embed(prompt[2:4]), "position": 2}
        for request in ({"prompt_ids": prompt}, soft):
            [look] = engine.generate([Request(**request, max_new_tokens=0, hidden_state=depth)])
            assert torch.allclose(look.hidden_state, whole, atol=1e-4)

    @pytest.mark.parametrize("tokens", [16, 2048])
    def test_an_average_is_that_of_transformers_in_one_pass_and_in_several(self, engine, tokens, monkeypatch):
        monkeypatch.setitem(model_runner.PREFILL_TOKENS, "cpu", tokens)
        prompt = random_ids(75, 8)
        layer = self.layer(engine, prompt, 0.5)
        wanted = torch.stack([layer[-1], layer[33:].mean(0)])
        soft = {"prompt_ids": prompt[:2] + prompt[4:], "soft": engine.embed(prompt[2:4]), "position": 2}
        for request in ({"prompt_ids": prompt, "average_from": 33}, {**soft, "average_from": 31}):
            [look] = engine.generate([Request(**request, max_new_tokens=0, hidden_state=0.5)])
            assert torch.allclose(look.hidden_state, wanted, atol=1e-4)


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def family(request):
    return request.param


@pytest.fixture(scope="module")
def served(family):
    return tiny_engine(family)


def test_that_prefixes_are_not_shared_is_told(caplog, monkeypatch):
    tiny_engine("bloom")
    tiny_engine()
    [message] = caplog.messages
    assert "BloomForCausalLM runs without a shared prefix cache" in message and "attention" in message
    caplog.clear()
    monkeypatch.setattr(runner_choice.ModelRunner, "decode", lambda *_: 1 / 0)
    tiny_engine()
    [message] = caplog.messages
    assert "LlamaForCausalLM" in message and "division by zero" in message


LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 8,
    "long_factor": [4.0] * 8,
    "original_max_position_embeddings": 64,
    "factor": 8.0,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}


@pytest.mark.parametrize(
    "family, rope, length",
    [
        ("phi3", LONGROPE, {"original_max_position_embeddings": 64}),
        ("llama", DYNAMIC, {"max_position_embeddings": 64}),
    ],
)
def test_rotary_embeddings_that_depend_on_the_longest_row(family, rope, length):
    """Beyond 64 positions all of a pass are turned otherwise."""

    def model():
        return tiny(family, rope_parameters=rope, **length)

    engine = HuggingFaceEngine.from_loaded(model(), FakeTokenizer())
    engine.context_length = 512
    for n in (20, 50, 100):  # transformers remembers the longest row so far: each gets a model of its own
        [got] = engine.generate([Request(random_ids(n, n), max_new_tokens=12)])
        assert got.token_ids == by_generate(model(), random_ids(n, n), 12)


class TestFamilies:
    """Each architecture gives the tokens of transformers' own loop; ``test_lengths`` has the logits."""

    def test_prefixes_are_shared_where_the_architecture_allows(self, served, family):
        assert isinstance(served._runner, ModelRunner if family in SHARING else PlainRunner)

    def test_greedy_and_sigma_zero_equal_generate(self, served, family):
        """And alone as in a batch: bitwise, but for mixtures, where an expert's rows come from neighbours."""
        prompt = random_ids(45, 6)
        expected = by_generate(served.model, prompt, 16)
        asked = [Request(prompt, max_new_tokens=16)]
        for position in (0, 3, len(prompt) - 1):
            rest = prompt[:position] + prompt[position + 1 :]
            soft = served.embed(prompt[position : position + 1])
            asked.append(Request(rest, soft=soft, position=position, max_new_tokens=16))
        together = served.generate([*asked, Request(random_ids(27, 7), max_new_tokens=9)])
        assert all(got.token_ids == expected for got in together[:-1])
        for request, got in zip(asked, together, strict=False):
            tolerance = 1e-4 if family in MIXTURES else 0
            [alone] = served.generate([request])
            assert alone.logprobs == pytest.approx(got.logprobs, rel=0, abs=tolerance)
        after = Request(prompt, soft=served.embed(expected[:1]), max_new_tokens=15)
        assert served.generate([after])[0].token_ids == expected[1:]


PROMPTS, LENGTH, NEW = 64, 40, 70
POSITION = 4 * 2 * BASE["num_hidden_layers"] * BASE["num_key_value_heads"] * 16
"""Bytes of a position's keys and values, in float32 with heads of width 16."""


def test_keys_and_values_are_those_of_all_rows_and_little_more():
    engine = tiny_engine()
    before = engine.peak_bytes["kv"]
    prompts = [random_ids(LENGTH, i) for i in range(PROMPTS)]
    engine.generate([Request(prompt, max_new_tokens=NEW, min_new_tokens=NEW) for prompt in prompts])
    needed = PROMPTS * (LENGTH + NEW - 1) * POSITION
    peak = engine.peak_bytes["kv"]
    assert before < needed <= peak < 1.3 * needed
    engine.generate([Request(prompts[0], max_new_tokens=2)])
    assert engine.peak_bytes == {"kv": peak}  # on the CPU nobody counts activations
    engine.begin_run()
    engine.generate([Request(prompts[0], max_new_tokens=2)])
    assert 0 < engine.peak_bytes["kv"] < peak


def test_what_is_cached_between_calls_is_bounded():
    engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer(), max_batch_tokens=512)
    for i in range(40):
        engine.generate([Request(tuple(3 + (i * 11 + 7 * j) % 400 for j in range(200)), max_new_tokens=2)])
    assert engine.peak_bytes["kv"] <= 2 * 512 * POSITION


def test_a_model_that_keeps_its_own_cache():
    engine = tiny_engine("bloom")
    engine.generate([Request((5,) * LENGTH, max_new_tokens=NEW, min_new_tokens=NEW)] * 8)
    width = 2 * 4 * BASE["num_hidden_layers"] * BASE["hidden_size"]
    assert engine.peak_bytes == {"kv": 8 * (LENGTH + NEW - 1) * width}
    engine.begin_run()
    assert engine.peak_bytes == {"kv": 0}
