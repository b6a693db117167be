"""What the configuration says about a model reaches transformers as it is."""

import pytest
import torch
from hydra.utils import instantiate
from transformers import BitsAndBytesConfig

from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.engines import loading
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from tests.engines.models import tiny


@pytest.fixture
def asked(monkeypatch):
    """Loads the engine under overrides; returns what config, tokenizer and model were asked for with."""
    model, calls = tiny("llama"), {}

    def record(part, result):
        def from_pretrained(name, **options):
            calls[part] = {"name": name, **options}
            return result

        return from_pretrained

    monkeypatch.setattr(loading.AutoConfig, "from_pretrained", record("config", model.config))
    monkeypatch.setattr(loading.AutoTokenizer, "from_pretrained", record("tokenizer", FakeTokenizer()))
    monkeypatch.setattr(loading.AutoModelForCausalLM, "from_pretrained", record("model", (model, {})))

    def load(*overrides):
        instantiate(compose_config(["engine.device=cpu", *overrides]).engine).close()
        return calls

    return load


def test_every_option(asked):
    calls = asked(
        "model.path=someone/model", "model.revision=abc123", "model.dtype=bfloat16", "model.device_map=auto",
        "model.attn_implementation=sdpa", "model.quantization=4bit", "model.trust_remote_code=true",
    )  # fmt: skip
    common = {"name": "someone/model", "revision": "abc123", "trust_remote_code": True}
    assert calls["model"].pop("output_loading_info") is True
    assert calls["config"] == calls["tokenizer"] == common
    options = dict(calls["model"])
    quantised = options.pop("quantization_config")
    assert options == common | {
        "dtype": torch.bfloat16, "device_map": "auto", "attn_implementation": "sdpa",
    }  # fmt: skip
    assert isinstance(quantised, BitsAndBytesConfig) and quantised.load_in_4bit


def test_quantisation_in_full_and_a_map_of_devices(asked):
    options = asked(
        "model.quantization={load_in_4bit: true, bnb_4bit_quant_type: nf4}", "+model.device_map.model=cpu"
    )["model"]
    assert options["quantization_config"].bnb_4bit_quant_type == "nf4"
    assert dict(options["device_map"]) == {"model": "cpu"}
    assert asked("model.quantization=8bit")["model"]["device_map"] == {"": "cpu"}
