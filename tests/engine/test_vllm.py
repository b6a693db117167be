"""The vLLM engine on small random models: the contract, and agreement with the Hugging Face engine."""

from importlib.util import find_spec

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_engine
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.engine.paths import DEMO_FOLDER
from soft_reasoning.engine.vllm.engine import VLLMEngine
from soft_reasoning.engine.vllm.setup import import_vllm
from soft_reasoning.types import Request, Sampling, UserError
from tests.contracts.engine import EngineContract, logits_after
from tests.engine.models import BASE, FAMILIES, random_ids

HERE = find_spec("vllm") is not None


def vllm(test):
    """Marks a test that runs in vLLM's own environment only."""
    skip = pytest.mark.skipif(not HERE, reason="vLLM is not installed; ./sr test-vllm runs these tests")
    return pytest.mark.vllm(skip(test))


def saved(folder, family):
    """A random model of ``family`` with heads of a width that vLLM knows, and the bundled tokenizer."""
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(DEMO_FOLDER)
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 128, "head_dim": 32}
    config = AutoConfig.for_model(family, **(BASE | FAMILIES[family] | sizes))
    if family == "gemma2":
        config.attn_logit_softcapping = None  # vLLM's kernel for the CPU only approximates it
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@vllm
class TestVLLM(EngineContract):
    rounding = 1e-4  # vLLM's sums depend on the batch, in the last bits

    @pytest.fixture(scope="class")
    def engine(self, tmp_path_factory):
        engine = VLLMEngine(saved(tmp_path_factory.mktemp("model"), "llama"))
        yield engine
        engine.close()

    def test_candidates_share_their_prompt(self, engine):
        """All of them, with the reading of the prompt before them and with each other."""
        prompt = random_ids(100, 10)
        logits_after(engine, [prompt])
        requests = [Request(prompt, soft=engine.embed([i]) * 1.1, max_new_tokens=3) for i in range(5)]
        for done in engine.generate(requests) + engine.generate(requests):
            assert 64 <= done.cached_tokens < done.prompt_tokens == 101

    def test_a_soft_token_of_zeros_is_no_token_to_the_cache(self, engine):
        """Ids and rows of the two prompts are the same; the engine distinguishes them all the same."""
        before, after = random_ids(10, 11), random_ids(60, 12)
        tokens = engine._mixed(engine.prepare(Request((*before, 0, *after))))
        zeros = Request(before + after, soft=torch.zeros(1, engine.hidden_size), position=10)
        fresh = engine.generate([zeros])[0]
        engine._engine.reset_prefix_cache()
        completions = []
        engine._add(tokens, engine._params(max_tokens=1, logprobs=0, temperature=0.0), 0, completions.append)
        while not completions:
            engine.advance()
        again = engine.generate([zeros])[0]
        assert self.same(fresh, again) and again.cached_tokens == 0

    def test_a_read_of_more_ids_than_vllm_takes_by_name(self, engine, prompts):
        every, named = logits_after(engine, prompts), list(range(200))
        assert torch.isfinite(every).all()
        assert self.close(logits_after(engine, prompts, named), every[:, named])


@vllm
class TestAgreement:
    """The same tokens as the Hugging Face engine, in float32."""

    @pytest.fixture(scope="class", params=["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text"])
    def pair(self, request, tmp_path_factory):
        path = saved(tmp_path_factory.mktemp("model"), request.param)
        engine = VLLMEngine(path)
        yield engine, HuggingFaceEngine(path)
        engine.close()

    def test_completions(self, pair):
        ours, theirs = pair
        generator = torch.Generator().manual_seed(1)
        requests = []
        for i in range(30):
            prompt, count = random_ids(30 + 9 * (i % 6), i % 7), (0, 1, 5)[i % 3]
            soft = ours.embed(random_ids(count, i)) if count else None
            if count:
                soft = soft + 0.5 * ours.embedding_rms * torch.randn(soft.shape, generator=generator)
            position = (None, 1, len(prompt) // 2)[i // 3 % 3] if count else None
            requests.append(
                Request(
                    prompt,
                    soft=soft,
                    position=position,
                    max_new_tokens=20,
                    min_new_tokens=i % 4,
                    stop=("e", " the")[: i % 3],
                    seed=i,
                    sampling=Sampling(first_temperature=30.0, first_top_k=20) if i % 5 == 0 else Sampling(),
                )
            )
        for reply, other in zip(ours.generate(requests), theirs.generate(requests), strict=True):
            assert (reply.token_ids, reply.text) == (other.token_ids, other.text)
            assert (reply.finish_reason, reply.prompt_tokens) == (other.finish_reason, other.prompt_tokens)
            assert reply.logprobs == pytest.approx(other.logprobs, abs=1e-3)


def build(*overrides):
    return build_engine(compose_config(["engine=vllm", *overrides]))


@vllm
@pytest.mark.parametrize(
    "change",
    [
        "engine.max_model_len=99999",
        "engine.gpu_memory_utilization=5",
    ],
)
def test_an_option_that_vllm_refuses_is_shown_with_its_reason(change):
    name = change.partition("=")[0].rpartition(".")[2]
    with pytest.raises(UserError, match=f"^engine=vllm: expected a model and options .*{name}=") as error:
        build(change)
    assert "\n" not in str(error.value) and "complete model" not in str(error.value)


@vllm
def test_refusals():
    with pytest.raises(UserError, match="engine=vllm: expected a model and options .*warp=9"):
        VLLMEngine("demo", warp=9)
    with pytest.raises(UserError, match="model.path="):
        VLLMEngine("/nowhere/model")
    with pytest.raises(UserError, match="expected an engine that loads adapters"):
        build("model.adapter=/nowhere")


@pytest.mark.skipif(HERE, reason="vLLM is installed")
def test_without_vllm_what_to_install_is_said():
    with pytest.raises(UserError, match=r"expected vLLM 0.21 or newer.*pip install 'soft-reasoning\[vllm\]'"):
        import_vllm(on_cpu=True)
