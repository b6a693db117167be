"""Models that cannot be had or served are refused in one clear line; memory that runs out is lived with."""

from itertools import pairwise

import pytest
import torch
from transformers import AutoModelForCausalLM, T5Config

from soft_reasoning.engines import huggingface, loading
from soft_reasoning.engines.allocation import is_out_of_memory
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine, eos_ids
from soft_reasoning.engines.planning import Job, Layout, batches, job_of, positions
from soft_reasoning.types import Request, UserError
from tests.engines.models import VOCABULARY, needs_compiler, tiny


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


@pytest.mark.parametrize("folder", ["model-404", "gated-mlp"])
@pytest.mark.parametrize(
    "fault", ["no weights", "a pointer", "cut off", "another size", "another type", "quantization"]
)
def test_a_folder_that_cannot_be_loaded_is_named_with_the_reason(
    tmp_path, engine, monkeypatch, folder, fault
):
    place, options = tmp_path / folder, {}
    engine.model.save_pretrained(place)
    monkeypatch.setattr(loading.AutoTokenizer, "from_pretrained", lambda *_, **__: FakeTokenizer())
    weights, config = place / "model.safetensors", place / "config.json"
    if fault == "no weights":
        weights.unlink()
    elif fault == "a pointer":
        weights.write_text("version https://git-lfs.github.com/spec/v1\n")
    elif fault == "cut off":
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif fault == "another size":
        config.write_text(config.read_text().replace('"intermediate_size": 96', '"intermediate_size": 80'))
    elif fault == "another type":
        config.write_text(config.read_text().replace('"intermediate_size": 96', '"intermediate_size": "96"'))
    else:
        options["quantization"] = {"bits": object()}
    with pytest.raises(UserError) as error:
        HuggingFaceEngine(str(place), device="cpu", **options)
    assert f"a complete model in {place}" in one_line(error) or "soft-reasoning[large]" in one_line(error)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
@pytest.mark.parametrize("device", ["gpu", "cuda", "cuda:1", 3])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(UserError) as error:
        HuggingFaceEngine("demo", device=device)
    assert f"a device of this machine, such as cpu, got {device!r}" in one_line(error)


@pytest.mark.parametrize("wrong", [-1, VOCABULARY])
def test_ids_beyond_the_vocabulary_are_refused(engine, wrong):
    with pytest.raises(ValueError, match=f"expected prompt ids in 0..{VOCABULARY - 1}, got {wrong}"):
        engine.generate([Request((5, wrong, 7))])


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
        ({"max_batch_tokens": 0}, "engine.max_batch_tokens: expected a whole number of at least 1"),
        ({"max_batch_tokens": "many"}, "engine.max_batch_tokens"),
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


def jobs_of(asked: list[Request]) -> list[Job]:
    return [job_of(i, request, hidden_size=64, context_length=512) for i, request in enumerate(asked)]


def ids(count: int, seed: int) -> tuple[int, ...]:
    return tuple(3 + (7 * i + 11 * seed) % 90 for i in range(count))


def uneven() -> list[Request]:
    """Zero-shot prompts of 40 tokens and one of 400, and five candidates each of problems with a head."""
    soft = torch.ones(1, 64)
    prompts = [ids(40, seed) for seed in range(30)] + [ids(400, 50)]
    zero = [Request(prompt, max_new_tokens=9, min_new_tokens=9) for prompt in prompts]
    few = [ids(120, 60) + ids(45 + seed, seed) for seed in range(12)]
    return zero + [
        Request(prompt, soft=soft * i, shared=120, common=len(prompt), max_new_tokens=21, min_new_tokens=21)
        for prompt in few
        for i in range(5)
    ]


@pytest.mark.parametrize("layout", [Layout(a, b) for a in (True, False) for b in (True, False)])
@pytest.mark.parametrize("bound", [100, 2000, 10**6])
def test_batches_hold_every_job_once_within_the_bound(layout, bound):
    made = list(batches(jobs_of(uneven()), bound, layout))
    assert sorted(job.index for batch in made for job in batch) == list(range(len(uneven())))
    assert all(positions(batch, layout) <= bound or len(batch) == 1 for batch in made)
    assert all(  # none has room for the next one's first
        positions([*batch, after[0]], layout) > bound for batch, after in pairwise(made)
    )


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=needs_compiler)])
def test_what_batches_are_planned_to_hold_they_hold(compile):
    engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer(), compile=compile)
    engine._runner._kept.most = 0
    position = 4 * 2 * 2 * 2 * 16  # float32; keys and values; layers; heads; width
    layout = engine._runner.layout
    assert layout == Layout(shared=True, padded=not compile)
    for batch in batches(jobs_of(uneven()), 3000, layout):
        engine.begin_run()
        engine.generate([job.request for job in batch])
        filled = batch + batch[-1:] * (engine._runner.batch_size(len(batch)) - len(batch))
        held = engine.peak_bytes["kv"] / position
        assert 0.7 * positions(batch, layout) <= held <= positions(filled, layout)


def test_rows_of_one_prompt_hold_it_each_where_it_is_not_shared():
    jobs = jobs_of([Request(tuple(range(5, 25)), max_new_tokens=4)] * 6)
    shared, plain = Layout(shared=True, padded=True), Layout(shared=False, padded=True)
    assert [len(batch) for batch in batches(jobs, 7 * 32, shared)] == [6]
    assert [len(batch) for batch in batches(jobs, 50, plain)] == [2, 2, 2]


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
    assert sizes[:2] == [12, 12], "tried once more without what earlier batches left"
    assert max(sizes[2:]) < 12, "the second call starts from the bound the first one found"


def test_after_out_of_memory_the_other_batches_are_planned_anew(engine, monkeypatch):
    """Each of four batches is a third beyond memory: the bound is halved once, not once a batch. (A row of
    a prompt of its own holds two pages.)"""
    asked = [Request((5 + i, *range(6, 20)), max_new_tokens=5) for i in range(16)]
    expected, real, failed = engine.generate(asked), huggingface.decode_batch, []

    def scarce(runner, batch, **options):
        if len(batch) > 3:
            failed.append(len(batch))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(runner, batch, **options)

    monkeypatch.setattr(huggingface, "decode_batch", scarce)
    fresh = HuggingFaceEngine.from_loaded(engine.model, engine.tokenizer, max_batch_tokens=4 * 64)
    got = fresh.generate(asked)
    assert [(r.token_ids, r.logprobs) for r in got] == [(r.token_ids, r.logprobs) for r in expected]
    assert failed == [4, 4] and fresh.max_batch_tokens == 2 * 64


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=needs_compiler)])
def test_what_is_kept_between_batches_gives_way_when_memory_runs_out(engine, monkeypatch, compile):
    """The bound stays: no batch was too large."""
    asked = [
        [Request(ids(200, seed), soft=torch.ones(1, 64) * i, common=200, max_new_tokens=5) for i in range(5)]
        for seed in range(12)
    ]
    expected, real = [engine.generate(some) for some in asked], huggingface.decode_batch
    fresh = HuggingFaceEngine.from_loaded(engine.model, engine.tokenizer, compile=compile)
    kept, bound, failed = fresh._runner._kept, fresh.max_batch_tokens, []

    def scarce(runner, batch, **options):
        if kept.held > 1000:
            failed.append(kept.held)
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(runner, batch, **options)

    monkeypatch.setattr(huggingface, "decode_batch", scarce)
    most = kept.most
    got = [fresh.generate(some) for some in asked]
    assert [[r.token_ids for r in some] for some in got] == [[r.token_ids for r in some] for some in expected]
    assert fresh.max_batch_tokens == bound and len(failed) == 2 and kept.most == most // 4


@needs_compiler
def test_the_peak_outlives_memory_that_was_given_back(engine):
    fresh = HuggingFaceEngine.from_loaded(engine.model, engine.tokenizer)
    fresh.generate([Request(ids(200, seed), max_new_tokens=4) for seed in range(8)])
    peak = fresh.peak_bytes
    fresh._forget()
    fresh.generate([Request(ids(20, 0), max_new_tokens=4)])
    assert fresh.peak_bytes == peak
    fresh.begin_run()
    assert fresh.peak_bytes["kv"] < peak["kv"]


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
