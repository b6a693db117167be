"""Models that cannot be had or served are refused in one clear line; memory that runs out is lived with."""

import pytest
import torch
from transformers import AutoModelForCausalLM, T5Config

from soft_reasoning.engines import huggingface, loading
from soft_reasoning.engines.allocation import is_out_of_memory
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine, eos_ids
from soft_reasoning.engines.planning import batches, job_of
from soft_reasoning.types import Request, UserError
from tests.engines.models import tiny


@pytest.fixture(scope="module")
def engine():
    return HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())


def one_line(error) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_a_missing_folder_is_named():
    with pytest.raises(UserError) as error:
        HuggingFaceEngine("/nowhere/model")
    assert "/nowhere/model" in one_line(error) and "model.path=" in one_line(error)


def test_an_empty_folder_is_named(tmp_path):
    with pytest.raises(UserError) as error:
        HuggingFaceEngine(str(tmp_path))
    assert str(tmp_path) in one_line(error) and "model.path=" in one_line(error)


@pytest.mark.parametrize(
    "said, expected",
    [
        ("You are trying to access a gated repo.\nMake sure to have access", "log in"),
        ("We couldn't connect to 'https://huggingface.co' to load the files", "HF_HOME"),
        ("x/y is not a local folder and is not a valid model identifier listed on", "none called 'x/y'"),
        ("some other fault", "some other fault"),
    ],
)
def test_what_the_hub_says_becomes_one_line(monkeypatch, said, expected):
    def fail(*_, **__):
        raise OSError(said)

    monkeypatch.setattr(loading.AutoConfig, "from_pretrained", fail)
    with pytest.raises(UserError) as error:
        HuggingFaceEngine("x/y")
    assert expected in one_line(error) and "model.path=" in one_line(error)


def test_an_encoder_decoder_is_refused():
    with pytest.raises(UserError, match="decoder-only.*t5"):
        loading.refuse(T5Config())


@pytest.mark.parametrize("options", [{"dtype": "float8"}, {"quantization": "3bit"}])
def test_unknown_options_list_the_known(tmp_path, options):
    with pytest.raises(UserError, match="expected model"):
        HuggingFaceEngine(str(tmp_path), **options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"compile": "x"}, "auto, true or false"),
        ({"max_batch_tokens": 0}, ">= 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, said):
    with pytest.raises(UserError) as error:
        HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer(), **options)
    assert said in one_line(error)


def test_a_folder_gives_the_same_as_the_loaded_model(tmp_path, engine, monkeypatch):
    engine.model.save_pretrained(tmp_path)
    monkeypatch.setattr(loading.AutoTokenizer, "from_pretrained", lambda *_, **__: FakeTokenizer())
    loaded = HuggingFaceEngine(str(tmp_path), device="cpu")
    request = Request(tuple(range(5, 30)), max_new_tokens=8)
    assert loaded.generate([request]) == engine.generate([request])
    assert loaded.model.dtype == torch.float32
    assert isinstance(loaded.model, type(AutoModelForCausalLM.from_config(engine.model.config)))
    loaded.close()


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


def test_the_context_bounds_new_tokens(engine):
    prompt = (7,) * (engine.context_length - 3)
    assert len(engine.generate([Request(prompt, max_new_tokens=50, min_new_tokens=50)])[0].token_ids) == 3


def requests() -> list[Request]:
    return [Request(tuple(range(5, 20 + i % 4)), max_new_tokens=4 + i) for i in range(12)]


def test_batches_hold_every_job_once_within_the_bound():
    jobs = [job_of(i, r, hidden_size=8, context_length=512) for i, r in enumerate(requests())]
    made = list(batches(jobs, 60))
    assert sorted(job.index for batch in made for job in batch) == list(range(12)) and len(made) > 2
    for batch in made:
        prefixes = {job.prefix for job in batch}
        cost = sum(map(len, prefixes)) + sum(job.own + job.max_new_tokens for job in batch)
        assert cost <= 60 or len(batch) == 1


def test_rows_of_one_prompt_hold_it_each_where_it_is_not_shared():
    prompt = Request(tuple(range(5, 25)), max_new_tokens=4)
    jobs = [job_of(i, prompt, hidden_size=8, context_length=512) for i in range(6)]
    assert [len(batch) for batch in batches(jobs, 50)] == [6]
    assert [len(batch) for batch in batches(jobs, 50, shared=False)] == [2, 2, 2]


def test_the_models_own_cache_stays_within_the_bound(monkeypatch):
    real, sizes = huggingface.decode_batch, []

    def count(runner, batch, **options):
        sizes.append(len(batch))
        return real(runner, batch, **options)

    monkeypatch.setattr(huggingface, "decode_batch", count)
    plain = HuggingFaceEngine.from_loaded(tiny("bloom"), FakeTokenizer(), max_batch_tokens=50)
    plain.generate([Request(tuple(range(5, 25)), max_new_tokens=4)] * 6)
    assert sizes == [2, 2, 2]


def test_out_of_memory_halves_the_bound_and_remembers(engine, monkeypatch):
    expected, real, sizes = engine.generate(requests()), huggingface.decode_batch, []

    def scarce(runner, batch, **options):
        sizes.append(len(batch))
        if len(batch) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(runner, batch, **options)

    monkeypatch.setattr(huggingface, "decode_batch", scarce)
    fresh = HuggingFaceEngine.from_loaded(engine.model, engine.tokenizer)
    for _ in range(2):
        got = fresh.generate(requests())
        assert [(r.token_ids, r.logprobs) for r in got] == [(r.token_ids, r.logprobs) for r in expected]
    first = sizes.index(12)
    assert max(sizes[first + 1 :]) < 12, "the second call starts from the bound the first one found"


def test_after_out_of_memory_the_other_batches_are_planned_anew(engine, monkeypatch):
    """Each of four batches is a third beyond memory: the bound is halved once, not once a batch."""
    asked = [Request((5 + i, *range(6, 20)), max_new_tokens=5) for i in range(16)]
    expected, real, failed = engine.generate(asked), huggingface.decode_batch, []

    def scarce(runner, batch, **options):
        if len(batch) > 3:
            failed.append(len(batch))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(runner, batch, **options)

    monkeypatch.setattr(huggingface, "decode_batch", scarce)
    fresh = HuggingFaceEngine.from_loaded(engine.model, engine.tokenizer, max_batch_tokens=80)
    got = fresh.generate(asked)
    assert [(r.token_ids, r.logprobs) for r in got] == [(r.token_ids, r.logprobs) for r in expected]
    assert failed == [4] and fresh.max_batch_tokens == 40


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_memory_that_runs_out_is_recognised(engine, monkeypatch, error):
    """In a batch, while a model is loaded, and while it is tried out."""
    assert is_out_of_memory(error) and not is_out_of_memory(ValueError(str(error)))
    model = tiny("llama")

    def fail(*_, **__):
        raise error

    with monkeypatch.context() as patch, pytest.raises(UserError) as caught:
        patch.setattr(model, "forward", fail)
        HuggingFaceEngine.from_loaded(model, engine.tokenizer)
    assert "memory for the model LlamaForCausalLM" in one_line(caught)
    assert "model.dtype" in one_line(caught) and "decoder-only" not in one_line(caught)
    monkeypatch.setattr(loading.AutoConfig, "from_pretrained", lambda *_, **__: model.config)
    monkeypatch.setattr(loading.AutoTokenizer, "from_pretrained", lambda *_, **__: engine.tokenizer)
    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", fail)
    with pytest.raises(UserError, match="memory for the model x/y"):
        HuggingFaceEngine("x/y")


def test_other_faults_are_not_taken_for_memory():
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))


def test_an_error_on_the_way_out_does_not_hide_that_memory_ran_out():
    try:
        try:
            raise torch.OutOfMemoryError("CUDA out of memory")
        finally:
            raise RuntimeError("the capture was invalidated")
    except RuntimeError as error:
        assert is_out_of_memory(error)


def test_a_single_request_beyond_memory_is_the_users_to_mend(engine, monkeypatch):
    def never(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(huggingface, "decode_batch", never)
    fresh = HuggingFaceEngine.from_loaded(engine.model, engine.tokenizer)
    with pytest.raises(UserError, match="memory for a prompt of 15 tokens"):
        fresh.generate([Request(tuple(range(5, 20)), max_new_tokens=4)])
