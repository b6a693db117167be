"""Average memory: sampled while problems are solved, weighted over the starts of a run."""

import time

from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.runs.files import read_means, read_seconds
from soft_reasoning.runs.local import MemorySampler
from soft_reasoning.runs.store import Store
from soft_reasoning.types import Request
from tests.engines.models import tiny
from tests.runs.world import summarise


class Holding:
    used_bytes = peak_bytes = {"kv": 100}


def test_samples_are_taken_while_the_context_is_open_and_given_once():
    sampler = MemorySampler(Holding(), seconds=0.01)
    with sampler:
        time.sleep(0.2)
    total, count = sampler.take()["kv"]
    assert count >= 3 and total == 100 * count
    time.sleep(0.05)
    assert sampler.take() == {}


def test_an_engine_that_does_not_tell_is_not_asked():
    with MemorySampler(object(), seconds=0.001) as sampler:
        time.sleep(0.02)
    assert sampler.take() == {}


def test_means_weigh_every_sample_of_every_start(tmp_path):
    for sizes in ({"kv": [300, 3]}, {"kv": [500, 1]}, None):
        with Store(tmp_path, {"seed": 0}) as store:
            store.add_seconds({"total": 1.0}, {"kv": 500}, sizes)
    assert read_means(tmp_path) == {"kv": 200.0} and read_seconds(tmp_path) == {"total": 3.0}
    metrics = summarise([], means=read_means(tmp_path))
    assert metrics["mean_bytes"] == {"kv": 200.0, "activations": None}


def test_the_engine_says_what_it_holds():
    engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())
    before = engine.used_bytes["kv"]
    engine.generate([Request((5,) * 40, max_new_tokens=30, min_new_tokens=30)] * 4)
    assert before == 0 <= engine.used_bytes["kv"] <= engine.peak_bytes["kv"]
