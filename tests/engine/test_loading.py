"""Models that cannot be loaded or served are rejected in one line; memory that runs out is lived with."""

import math
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest
import torch
from transformers import (
    AutoConfig,
    BitsAndBytesConfig,
    LlamaForSequenceClassification,
    LlamaModel,
    PretrainedConfig,
    T5Config,
)

from soft_reasoning.cli.compose import compose_config, plain
from soft_reasoning.configuration.parts import make
from soft_reasoning.engine import loading
from soft_reasoning.engine.devices import is_out_of_memory
from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.engine.huggingface.attention import KeyValuePool
from soft_reasoning.engine.huggingface.model_runner import ModelRunner
from soft_reasoning.engine.loading import eos_ids
from soft_reasoning.engine.paths import weights_fingerprint
from soft_reasoning.types import Request, Sampling, UserError
from tests.chat_templates import tokenizer_of
from tests.engine.models import BASE, refusal, tiny, tiny_engine


@pytest.fixture(scope="module")
def engine():
    return tiny_engine()


@pytest.mark.parametrize("fault", ["no weights", "cut off", "another size", "quantization"])
def test_a_folder_that_cannot_be_loaded_is_named_with_the_reason(tmp_path, engine, read_as_fake, fault):
    options = {}
    engine.model.save_pretrained(tmp_path)
    weights, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    if fault == "no weights":
        weights.unlink()
    elif fault == "cut off":
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif fault == "another size":
        config.write_text(config.read_text().replace('"intermediate_size": 96', '"intermediate_size": 80'))
    else:
        options["quantization"] = {"bits": object()}
    message = refusal(HuggingFaceEngine, str(tmp_path), device="cpu", **options)
    reasons = (f"got {tmp_path}", f"model in {tmp_path}", "pip install accelerate")
    assert any(reason in message for reason in reasons)


@pytest.mark.parametrize("settings", [{}, {"dtype": "bfloat16"}, {"attn_implementation": "eager"}], ids=str)
def test_a_model_that_loads_as_asked_warns_of_nothing(caplog, settings):
    with caplog.at_level("INFO"):
        HuggingFaceEngine("demo", device="cpu", **settings).close()
    assert [record.message for record in caplog.records if record.levelname != "INFO"] == []


def test_an_encoder_decoder_is_refused():
    with pytest.raises(UserError, match="decoder-only.*t5"):
        loading.check_kind(T5Config())


def test_every_end_token_of_the_generation_config_ends_a_completion(engine):
    plain = engine.generate([Request(tuple(range(5, 30)), max_new_tokens=12)])[0]
    engine.model.generation_config.eos_token_id = [1, plain.token_ids[3]]
    try:
        again = HuggingFaceEngine.from_loaded(engine.model, engine.tokenizer)
        assert eos_ids(engine.model, engine.tokenizer) == {1, plain.token_ids[3]}
        run = again.generate([Request(tuple(range(5, 30)), max_new_tokens=12)])[0]
        end = plain.token_ids.index(plain.token_ids[3])
        assert run.token_ids == plain.token_ids[: end + 1] and run.finish_reason == "eos"
    finally:
        engine.model.generation_config.eos_token_id = 1


def test_auto_is_float32_on_the_cpu():
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert loading.choose_dtype("auto", cpu) == loading.choose_dtype("float32", gpu) == torch.float32
    assert loading.choose_dtype("auto", gpu) == "auto"
    assert loading.choose_dtype("auto", gpu, gguf=True) == torch.bfloat16


@pytest.mark.parametrize(
    ("family", "end"), [("llama3.2", "<|eot_id|>"), ("qwen3", "<|im_end|>"), ("mistral", "</s>")]
)
def test_what_ends_a_turn_in_the_chat_template_ends_an_answer(family, end):
    """Also where generation config and tokenizer name other tokens."""
    tokenizer = tokenizer_of(family)
    tokenizer.eos_token = "</s>" if family == "mistral" else "a"  # Mistral's template names it
    turn = tokenizer.convert_tokens_to_ids(end)
    model = SimpleNamespace(generation_config=SimpleNamespace(eos_token_id=3))
    assert eos_ids(model, tokenizer) == {3, tokenizer.eos_token_id, turn}


@pytest.mark.parametrize(
    "template", ["{{ messages[1].content }}\n\nUser:", "{{ messages[0].content }}", "{{ fails() }}", None]
)
def test_a_template_without_a_special_token_behind_a_message_adds_no_end(template):
    tokenizer = tokenizer_of("llama3.2")
    tokenizer.chat_template = template
    model = SimpleNamespace(generation_config=None, config=PretrainedConfig(eos_token_id=[1, 3]))
    assert eos_ids(model, tokenizer) == {1, 3}
    tokenizer.encode = lambda *_, **__: []  # a tokenizer for which the text behind a message is no token
    assert eos_ids(model, tokenizer) == {1, 3}


def requests() -> list[Request]:
    return [Request(tuple(range(5, 20 + i % 4)), max_new_tokens=4 + i) for i in range(12)]


def scarce(monkeypatch, most: int, owner: type = ModelRunner, name: str = "decode") -> list[int]:
    """Memory runs out in steps of more than ``most`` rows; returns how many rows each attempt had."""
    real, sizes = getattr(owner, name), []

    def step(self, sequences, *more):
        sizes.append(len(sequences))
        if len(sequences) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, sequences, *more)

    monkeypatch.setattr(owner, name, step)
    return sizes


@pytest.mark.slow
@pytest.mark.parametrize("place", [(ModelRunner, "decode"), (HuggingFaceEngine, "extend")])
def test_out_of_memory_halves_the_bound_and_remembers(engine, monkeypatch, place):
    expected = engine.generate(requests())
    fresh = HuggingFaceEngine.from_loaded(engine.model, engine.tokenizer)
    bound, sizes = fresh.max_batch_tokens, scarce(monkeypatch, 3, *place)
    for _ in range(2):
        got = fresh.generate(requests())
        assert [(r.token_ids, r.logprobs) for r in got] == [(r.token_ids, r.logprobs) for r in expected]
    failed = [i for i, size in enumerate(sizes) if size > 3]
    assert sizes[0] == 12 and 1 < len(failed) < 4, "halved until it fits"
    assert failed[-1] < len(sizes) // 4 and fresh.max_batch_tokens < bound, "the second starts there"


def test_a_single_request_beyond_memory_is_the_users_to_mend(engine, monkeypatch):
    fresh = HuggingFaceEngine.from_loaded(engine.model, engine.tokenizer)
    scarce(monkeypatch, 0)
    with pytest.raises(UserError, match="memory for a prompt of 15 tokens"):
        fresh.generate([Request(tuple(range(5, 20)), max_new_tokens=4)])


def test_a_prompt_beyond_the_bound_runs_where_two_pools_do_not_fit(engine, monkeypatch):
    resized = KeyValuePool.resized

    def scarce_pool(self, blocks):
        if blocks and self.blocks:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return resized(self, blocks)

    monkeypatch.setattr(KeyValuePool, "resized", scarce_pool)
    fresh = HuggingFaceEngine.from_loaded(engine.model, engine.tokenizer, max_batch_tokens=200)
    asked = [Request(tuple(range(5, 45)) * count, max_new_tokens=4) for count in (1, 10, 1)]
    texts = [[done.token_ids for done in each.generate(asked)] for each in (fresh, engine)]
    assert texts[0] == texts[1] and fresh.max_batch_tokens == 200


def loaded(folder, model):
    """An engine of ``model``, from a folder."""
    model.save_pretrained(folder)
    return HuggingFaceEngine(str(folder), device="cpu")


@pytest.mark.parametrize("kind", [LlamaModel, LlamaForSequenceClassification])
def test_a_model_without_its_head_is_refused_where_transformers_draws_one(tmp_path, read_as_fake, kind):
    message = refusal(loaded, tmp_path, kind(AutoConfig.for_model("llama", **BASE)))
    assert "1 are missing or of another shape, such as lm_head.weight" in message


@pytest.mark.parametrize("tied", [False, True])  # a tied head is not missing
def test_a_folder_gives_the_same_as_the_loaded_model(tmp_path, read_as_fake, tied):
    engine = loaded(tmp_path, tiny("llama", tie_word_embeddings=tied))
    assert engine.generate(requests()) == tiny_engine(tie_word_embeddings=tied).generate(requests())
    assert engine.model.dtype == torch.float32


class TestNumbersThatAreNotFinite:
    @pytest.fixture
    def model(self):
        return tiny("llama")

    def test_in_an_embedding(self, model):
        model.get_input_embeddings().weight.data[17, 3] = math.inf
        message = refusal(HuggingFaceEngine.from_loaded, model, FakeTokenizer())
        assert "embeddings, got NaN or infinity in that of token 17" in message

    @pytest.mark.parametrize("dtype, advice", [(torch.float32, "other weights"), (torch.float16, "bfloat16")])
    def test_in_all_logits(self, model, dtype, advice):
        model.model.norm.weight.data[0] = math.nan
        message = refusal(HuggingFaceEngine.from_loaded, model.to(dtype), FakeTokenizer())
        assert "finite logits" in message and advice in message

    @pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8)])
    def test_after_some_prompts_only(self, model, sampling):
        model.get_input_embeddings().weight.data[18] = 1e30
        engine = HuggingFaceEngine.from_loaded(model, FakeTokenizer())
        model.model.layers[1].register_forward_hook(
            lambda module, inputs, out: out * math.nan if bool((inputs[0].abs() > 1e29).any()) else out
        )
        fine, bad = Request((5, 6), max_new_tokens=3), Request((5, 18), max_new_tokens=3, sampling=sampling)
        again = HuggingFaceEngine.from_loaded(model, FakeTokenizer())
        for request in (bad, replace(bad, max_new_tokens=0, next_logits=True)):
            with pytest.raises(UserError, match="expected finite logits, got NaN"):
                again.generate([fine, request])
        assert again.generate([fine])[0].logprobs == engine.generate([fine])[0].logprobs


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_memory_that_runs_out_is_recognised(engine, monkeypatch, read_as_fake, error):
    """In a batch, while a model is loaded, and while it is tried out."""
    on_the_way_out = RuntimeError("the buffer could not be freed")
    on_the_way_out.__context__ = error
    assert is_out_of_memory(error) and is_out_of_memory(on_the_way_out)
    assert not is_out_of_memory(ValueError(str(error)))
    model = tiny("llama")

    def fail(*_, **__):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(model, "forward", fail)
        message = refusal(HuggingFaceEngine.from_loaded, model, engine.tokenizer)
    assert "Out of memory while loading the model LlamaForCausalLM" in message
    assert "model.dtype" in message and "decoder-only" not in message
    monkeypatch.setattr(loading.AutoConfig, "from_pretrained", lambda *_, **__: model.config)
    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", fail)
    with pytest.raises(UserError, match="Out of memory while loading the model x/y"):
        HuggingFaceEngine("x/y")


def test_other_weights_have_another_mark(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"one")
    mark = weights_fingerprint(str(tmp_path), None)
    assert mark == weights_fingerprint(str(tmp_path), "main")
    (tmp_path / "model.safetensors").write_bytes(b"two")
    marks = {mark, weights_fingerprint(str(tmp_path), None)}
    for place in (0, 2**22, 2**23 - 1):
        weights = bytearray(2**23)
        weights[place : place + 2**18] = bytes([1]) * len(weights[place : place + 2**18])
        (tmp_path / "model.safetensors").write_bytes(weights)
        marks.add(weights_fingerprint(str(tmp_path), None))
    assert len(marks) == 5
    assert [weights_fingerprint("o/n", r) for r in (None, "v2")] == ["o/n@main", "o/n@v2"]


@pytest.fixture
def asked(monkeypatch):
    """Loads the engine under overrides; returns the calls for its config, tokenizer and model."""
    model = tiny("llama")
    names = "AutoConfig", "AutoTokenizer", "AutoModelForCausalLM"
    mocks = [Mock(return_value=result) for result in (model.config, FakeTokenizer(), (model, {}))]
    for name, mock in zip(names, mocks, strict=True):
        monkeypatch.setattr(getattr(loading, name), "from_pretrained", mock)

    def load(*overrides):
        make(plain(compose_config(["engine.device=cpu", *overrides]))["engine"]).close()
        return [mock.call_args for mock in mocks]

    return load


def test_every_option_of_a_model_reaches_transformers(asked):
    config, tokenizer, model = asked(
        "model=someone/model",
        "model.revision=abc123",
        "model.dtype=bfloat16",
        "model.device_map=auto",
        "model.attn_implementation=sdpa",
        "model.quantization=4bit",
        "model.trust_remote_code=true",
    )
    common = {"revision": "abc123", "trust_remote_code": True}
    assert config == tokenizer == call("someone/model", **common)
    quantised = model.kwargs.pop("quantization_config")
    named = {"dtype": torch.bfloat16, "device_map": "auto", "attn_implementation": "sdpa"}
    assert model == call("someone/model", output_loading_info=True, **common, **named)
    assert isinstance(quantised, BitsAndBytesConfig) and quantised.load_in_4bit


def test_quantisation_in_full_and_a_map_of_devices(asked):
    _, _, model = asked(
        "model.quantization={load_in_4bit: true, bnb_4bit_quant_type: nf4}", "+model.device_map.model=cpu"
    )
    assert model.kwargs["quantization_config"].bnb_4bit_quant_type == "nf4"
    assert dict(model.kwargs["device_map"]) == {"model": "cpu"}
    assert asked("model.quantization=8bit")[2].kwargs["device_map"] == {"": "cpu"}


def test_the_end_tokens_of_a_composed_model_stand_in_its_text_part():
    config = AutoConfig.for_model("gemma3", text_config={"eos_token_id": [1, 7]}, eos_token_id=None)
    assert config.eos_token_id is None
    model = type("model", (), {"config": config, "generation_config": None})
    assert eos_ids(model, FakeTokenizer()) == {1, 7}
