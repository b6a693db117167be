"""The Hugging Face engine on small random models: the contract, and agreement with transformers."""

from types import SimpleNamespace

import pytest
import torch

from soft_reasoning.engines import probe
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.engines.runners import PlainRunner, TreeRunner
from soft_reasoning.types import Request
from tests.contracts.engine import EngineContract
from tests.engines.models import FAMILIES, SHARING, VOCABULARY, needs_compiler, tiny

MIXTURES = {"mixtral", "gpt_oss"}


def random_ids(count: int, seed: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(3, VOCABULARY, (count,), generator=generator).tolist())


def by_generate(model, prompt: tuple[int, ...], new: int, **options) -> tuple[int, ...]:
    out = model.generate(torch.tensor([prompt]), max_new_tokens=new, do_sample=False, **options)
    return tuple(out[0, len(prompt) :].tolist())


@pytest.fixture(scope="module")
def engine():
    return HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())


@pytest.fixture(scope="module")
def prompts():
    head = random_ids(150, 0)
    # One beyond a block of keys, one alone, two that share a long head.
    return [head + random_ids(9, 1), random_ids(12, 2), head + random_ids(40, 3), random_ids(33, 4)]


class TestHuggingFace(EngineContract):
    def test_what_requests_have_in_common_is_kept_between_batches(self, prompts):
        """And gives the same bits as computed anew; what is beyond the bound is dropped."""

        def made(most):
            engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())
            engine._runner._kept.most = most
            return engine, [
                engine.generate([Request(p, soft=x, common=len(p), max_new_tokens=6) for x in soft])
                for soft in (engine.embed([4, 5]).unsqueeze(1), engine.embed([6, 7]).unsqueeze(1))
                for p in prompts
            ]

        (engine, kept), (small, anew) = made(10**6), made(60)
        count = len(prompts)
        for before, after, again, prompt in zip(kept, kept[count:], anew[count:], prompts, strict=False):
            assert [c.cached_tokens for c in before] == [0, len(prompt)]
            assert [c.cached_tokens for c in after] == [len(prompt) if len(prompt) > 32 else 0, len(prompt)]
            assert [c.cached_tokens for c in again] == [0, len(prompt)]
            assert all(self.same(a, b) for a, b in zip(after, again, strict=True))
        assert engine.peak_bytes["kv"] > small.peak_bytes["kv"]
        engine.begin_run()
        [done] = engine.generate([Request(prompts[0], common=len(prompts[0]), max_new_tokens=2)])
        assert done.cached_tokens == 0


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def family(request):
    return request.param


@pytest.fixture(scope="module", params=[False, pytest.param(True, marks=needs_compiler)])
def served(family, request):
    """Attention of decode steps by torch, and compiled."""
    return HuggingFaceEngine.from_loaded(tiny(family), FakeTokenizer(), compile=request.param)


def test_that_prefixes_are_not_shared_is_told_once(caplog, monkeypatch):
    probe._tell_unshared.cache_clear()
    for _ in range(2):
        HuggingFaceEngine.from_loaded(tiny("bloom"), FakeTokenizer())
    HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())
    [told] = caplog.messages
    assert "BloomForCausalLM runs without shared prefixes" in told and "attention" in told
    caplog.clear()
    monkeypatch.setattr(probe.TreeRunner, "step", lambda *_: 1 / 0)
    HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())
    [told] = caplog.messages
    assert "LlamaForCausalLM" in told and "division by zero" in told


def test_a_model_without_attention_has_no_heads():
    assert not hasattr(tiny("mamba").config, "num_attention_heads")


def test_a_model_on_several_devices_keeps_its_own_cache():
    """What a pass says of its tokens lies on one."""
    model = tiny("llama")
    assert not probe._unshared(model)
    places = [SimpleNamespace(device=torch.device("cuda", i)) for i in range(2)]
    model.parameters = lambda: iter(places)
    assert "several devices" in probe._unshared(model)


LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8,
    "original_max_position_embeddings": 64, "factor": 8.0,
}  # fmt: skip
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
    model = tiny(family, rope_parameters=rope, **length)
    engine = HuggingFaceEngine.from_loaded(model, FakeTokenizer())
    engine.context_length = 512
    prompts = [random_ids(n, n) for n in (100, 20, 50)]
    got = engine.generate([Request(p, common=50, max_new_tokens=12) for p in prompts])
    assert [one.token_ids for one in got] == [by_generate(model, p, 12) for p in prompts]


class TestFamilies:
    """Each architecture: same tokens and log-probabilities as transformers' own loop and forward pass."""

    def test_prefixes_are_shared_where_the_architecture_allows(self, served, family):
        assert isinstance(served._runner, TreeRunner if family in SHARING else PlainRunner)

    def test_greedy_and_sigma_zero_equal_generate(self, served):
        for prompt, shared in ((random_ids(70, 5), 0), (random_ids(45, 6), 40), (random_ids(9, 7), 0)):
            expected = by_generate(served.model, prompt, 24)
            got = served.generate([Request(prompt, max_new_tokens=24, shared=shared)])[0]
            assert got.token_ids == expected
            soft = served.embed(expected[:1])
            again = served.generate([Request(prompt, soft=soft, max_new_tokens=23, shared=shared)])[0]
            assert again.token_ids == expected[1:]
            for position in (0, 3, len(prompt) - 1):
                soft = served.embed(prompt[position : position + 1])
                rest = prompt[:position] + prompt[position + 1 :]
                request = Request(rest, soft=soft, position=position, max_new_tokens=24, shared=shared)
                assert served.generate([request])[0].token_ids == expected

    def test_log_probabilities_equal_a_plain_forward_pass(self, served):
        prompt = random_ids(50, 8)
        got = served.generate([Request(prompt, max_new_tokens=20, shared=35)])[0]
        with torch.no_grad():
            logits = served.model(torch.tensor([prompt + got.token_ids])).logits[0, len(prompt) - 1 : -1]
        expected = logits.float().log_softmax(-1).gather(-1, torch.tensor(got.token_ids).unsqueeze(-1))
        assert torch.allclose(torch.tensor(got.logprobs), expected.squeeze(-1), atol=1e-3)

    def test_alone_equals_batched(self, served, family):
        """Bitwise, but for mixtures of experts: how many rows an expert gets depends on the neighbours."""
        prompts = [random_ids(20 + 7 * (i % 3), i % 3) for i in range(12)]
        soft = [served.embed([5 + i]) * 1.5 for i in range(12)]
        requests = [
            Request(p, soft=s if i % 4 else None, position=None if i % 3 else 4, max_new_tokens=6 + i)
            for i, (p, s) in enumerate(zip(prompts, soft, strict=True))
        ]
        for request, together in zip(requests, served.generate(requests), strict=True):
            alone = served.generate([request])[0]
            assert alone.token_ids == together.token_ids
            if family in MIXTURES:
                assert alone.logprobs == pytest.approx(together.logprobs, abs=1e-4)
            else:
                assert alone.logprobs == together.logprobs
