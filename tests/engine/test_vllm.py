"""vLLM's server on small random models: the contract, and agreement with the Hugging Face engine."""

import os

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.engine.paths import DEMO_FOLDER
from soft_reasoning.engine.served import served, vllm
from soft_reasoning.engine.served.starting import StartedServer
from soft_reasoning.types import Request, Sampling, UserError
from tests.contracts.engine import EngineContract, logits_after
from tests.engine.models import BASE, FAMILIES, random_ids

ENVIRONMENT = os.environ.get("SOFT_REASONING_VLLM_VENV")
# Blocks of 128, the default on a CPU, would cache little; chunks of prompts fail there together with a seed.
ON_THE_CPU = {"enforce_eager": True, "block_size": 32, "enable_chunked_prefill": False}


def needs_vllm(test):
    """Marks a test that needs vLLM, which has an environment of its own."""
    skip = pytest.mark.skipif(ENVIRONMENT is None, reason="./sr test-vllm installs vLLM and runs these tests")
    return pytest.mark.vllm(skip(test))


@pytest.fixture(autouse=True, scope="module")
def little_memory():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
        patch.setenv("TORCHDYNAMO_DISABLE", "1")
        yield


def start(path, **flags):
    return vllm(path, environment=ENVIRONMENT, dtype="float32", **ON_THE_CPU, **flags)


def saved(folder, family, tokenizer=None):
    """A random model of ``family``, whose heads have a width that vLLM knows; with a tokenizer."""
    torch.manual_seed(0)
    tokenizer = tokenizer or AutoTokenizer.from_pretrained(DEMO_FOLDER)
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 128, "head_dim": 32}
    config = AutoConfig.for_model(family, **(BASE | FAMILIES[family] | sizes))
    if family == "gemma2":
        config.attn_logit_softcapping = None  # vLLM's kernel for the CPU only approximates it
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@needs_vllm
class TestVLLM(EngineContract):
    rounding = 1e-4  # vLLM's sums depend on the batch, in the last bits

    @pytest.fixture(scope="class")
    def engine(self, tmp_path_factory):
        engine = start(saved(tmp_path_factory.mktemp("model"), "llama"))
        yield engine
        engine.close()

    def test_candidates_share_their_prompt(self, engine):
        """All of them, with the reading of the prompt before them and with each other."""
        prompt = random_ids(100, 10)
        logits_after(engine, [prompt])
        requests = [Request(prompt, soft=engine.embed([i]) * 1.1, max_new_tokens=3) for i in range(5)]
        for done in engine.generate(requests) + engine.generate(requests):
            assert 64 <= done.cached_tokens < done.prompt_tokens == 101

    def test_candidates_share_a_prompt_of_text(self, engine):
        prompt = engine.tokenizer.encode("Question: A box holds 3 red and 4 blue balls.\n" * 9 + "Answer:")
        logits_after(engine, [prompt])
        requests = [Request(prompt, soft=engine.embed([i]) * 1.1, max_new_tokens=3) for i in range(5)]
        for done in engine.generate(requests):
            assert 64 <= done.cached_tokens < done.prompt_tokens

    def test_a_read_of_more_ids_than_vllm_takes_by_name(self, engine, prompts):
        every, named = logits_after(engine, prompts), list(range(200))
        assert torch.isfinite(every).all()
        assert self.close(logits_after(engine, prompts, named), every[:, named])


@needs_vllm
class TestWithoutRows(EngineContract):
    """A server that somebody started without our flags."""

    rounding = 1e-4

    @pytest.fixture(scope="class")
    def engine(self, tmp_path_factory):
        path = saved(tmp_path_factory.mktemp("model"), "llama")
        command = [f"{ENVIRONMENT}/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", path]
        command += ["--port", "{port}", "--dtype", "float32", "--enforce-eager", "--block-size", "32"]
        server = StartedServer("vllm", [*command, "--no-enable-chunked-prefill"])
        engine = served(server.url)  # its tokenizer is in the folder that the server names
        yield engine
        engine.close()
        server.close()

    def test_it_offers_no_rows(self, engine):
        assert engine.offers == {"ids", "logprobs"}


@needs_vllm
class TestAgreement:
    """The same tokens as the Hugging Face engine, in float32."""

    @pytest.fixture(scope="class", params=["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text"])
    def pair(self, request, tmp_path_factory):
        path = saved(tmp_path_factory.mktemp("model"), request.param)
        engine = start(path)
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

    def test_soft_tokens_in_a_text_are_all_that_is_sent_of_embeddings(self, pair, monkeypatch):
        ours, theirs = pair
        sent, submit = [], ours.server.submit

        def spy(path, body, seconds=None):
            sent.append((path, len(str(body))))
            return submit(path, body, seconds)

        monkeypatch.setattr(ours.server, "submit", spy)
        ids = ours.tokenizer.encode("Question: A box holds 3 red and 4 blue balls.\n" * 4 + "Answer:")
        generator, requests = torch.Generator().manual_seed(1), []
        for i in range(8):
            soft = ours.embed(ids[: 1 + i % 2])
            soft = soft + 0.5 * ours.embedding_rms * torch.randn(soft.shape, generator=generator)
            requests.append(
                Request(
                    ids,
                    soft=soft,
                    position=(None, 30)[i // 2 % 2],
                    max_new_tokens=12,
                    top_logprobs=3,
                    sampling=Sampling(first_temperature=30.0, first_top_k=20) if i > 5 else Sampling(),
                )
            )
        for reply, other in zip(ours.generate(requests), theirs.generate(requests), strict=True):
            assert (reply.token_ids, reply.prompt_tokens) == (other.token_ids, other.prompt_tokens)
            assert [top.ids for top in reply.top_logprobs] == [top.ids for top in other.top_logprobs]
        assert len(sent) >= len(requests)
        assert "splices" in ours.offers and [path for path, _ in sent[:6]] == ["/chat/completions"] * 6
        assert max(size for _, size in sent[:6]) < len(ids) * ours.hidden_size * 4


@needs_vllm
def test_a_text_with_the_mark_of_soft_tokens_goes_in_rows(tmp_path):
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(models.BPE({letter: i for i, letter in enumerate(letters)}, []))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    path = saved(tmp_path / "model", "llama", PreTrainedTokenizerFast(tokenizer_object=bytewise))
    ours = start(path)
    try:
        assert "splices" in ours.offers
        ids = ours.tokenizer.encode("What does <prompt_embeds> stand for?")
        request = Request(ids, soft=ours.embed([7]) * 1.1, max_new_tokens=12)
        [reply], [other] = ours.generate([request]), HuggingFaceEngine(path).generate([request])
        assert reply.token_ids == other.token_ids and reply.generated_tokens
    finally:
        ours.close()


@needs_vllm
def test_a_flag_that_vllm_refuses_is_shown_with_its_last_lines():
    with pytest.raises(UserError, match="engine=vllm: expected a server that starts.*warp") as error:
        start("demo", warp=9)
    assert "\n" not in str(error.value)


def test_without_vllm_its_last_lines_are_shown(tmp_path):
    with pytest.raises(UserError, match="engine=vllm: expected a server that starts.*vllm"):
        vllm("demo")
