"""What is found out about a model when it is loaded."""

import copy
import os
import subprocess
import sys

import pytest
import torch
from transformers import AutoModelForCausalLM

from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.engine.huggingface import HuggingFaceEngine, runner_choice
from soft_reasoning.engine.huggingface.model_runner import ModelRunner
from soft_reasoning.engine.huggingface.runner_choice import divergence, in_float32
from soft_reasoning.types import Request
from tests.engine.models import tiny, tiny_engine


def test_a_row_alone_is_compared_with_the_row_in_a_batch():
    assert tiny_engine().batch_invariant
    model = tiny("llama")
    model.lm_head.register_forward_hook(lambda module, inputs, out: out * (1 + 1e-6 * out.shape[-2]))
    assert not HuggingFaceEngine.from_loaded(model, FakeTokenizer()).batch_invariant
    model = tiny("llama")  # as products of few rows may be
    model.lm_head.register_forward_hook(lambda module, inputs, out: out * (1 + (out.shape[-2] < 16) / 2**20))
    engine = HuggingFaceEngine.from_loaded(model, FakeTokenizer())
    assert engine.batch_invariant
    assert not tiny_engine("qwen2_moe").batch_invariant
    requests = [Request((5 + i, 7, 9), max_new_tokens=4) for i in range(20)]
    alone = [engine.generate([request])[0] for request in requests]
    assert engine.generate(requests) == alone


@pytest.mark.slow
@pytest.mark.parametrize("value", [None, "COMPATIBLE"])
def test_mkl_is_asked_for_reproducible_products_whatever_is_imported_first(value):
    """The user's own value stays."""
    code = (
        "import torch, soft_reasoning, os; print(os.environ['MKL_CBWR']); torch.ones(9, 9) @ torch.ones(9, 9)"
    )
    environment = {name: text for name, text in os.environ.items() if name != "MKL_CBWR"}
    if value:
        environment["MKL_CBWR"] = value
    shown = subprocess.run(
        [sys.executable, "-c", code], env=environment | {"MKL_VERBOSE": "1"}, capture_output=True, text=True
    ).stdout
    assert value in shown if value else ",STRICT" in shown.splitlines()[0]
    if torch.backends.mkl.is_available():
        assert "GEMM(" in shown and "CNR:OFF" not in shown


@pytest.mark.parametrize("family", ["nemotron_h", "zamba2"])
def test_layers_that_bound_time_steps_give_the_tokens_of_generate(family):
    """Mamba-2 layers: transformers bounds time steps from below in a pass over a sequence, not in a step."""
    model = tiny(family)
    layers = [layer for layer in model.modules() if hasattr(layer, "time_step_limit")]
    limits = [layer.time_step_limit for layer in layers]
    engine = HuggingFaceEngine.from_loaded(model, FakeTokenizer())
    assert layers and [layer.time_step_limit for layer in layers] == limits  # as they were
    prompt = [(7 * i + 3) % 90 + 5 for i in range(50)]
    expected = model.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)[0, len(prompt) :]
    got = engine.generate([Request(prompt, max_new_tokens=20)])[0]
    assert expected.tolist()[: len(got.token_ids)] == list(got.token_ids)


def with_large_biases(seed: int, dtype: torch.dtype):
    """A Qwen2 as trained ones are: every score has the same constant of some hundreds.

    Queries and keys share it in the two slowest rotary dimensions. The weights are exact in ``dtype``.
    """
    config = tiny("qwen2", rope_parameters={"rope_type": "default", "rope_theta": 1e6}).config
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for layer in model.model.layers:
        width = layer.self_attn.head_dim
        for linear in (layer.self_attn.q_proj, layer.self_attn.k_proj):
            for slow in (width // 2 - 1, width - 1):
                linear.weight.data.view(-1, width, linear.in_features)[:, slow] = 0
                linear.bias.data.view(-1, width)[:, slow] = 32
    return model.to(dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@torch.inference_mode()
def test_half_precision_is_as_exact_as_the_attention_of_transformers(dtype):
    ours = theirs = 0.0
    for seed in range(16):
        model = with_large_biases(seed, dtype)
        runner, exact = ModelRunner(model, max_tokens=runner_choice.MAX_TOKENS), copy.deepcopy(model).float()
        for rows, length, prompt in runner_choice.SHAPES:
            ids = runner_choice._ids(model.config.vocab_size, rows, length)
            served = runner_choice._serve(runner, ids, prompt)
            places, logits = tuple(zip(*served, strict=True)), exact(ids).logits
            ours += divergence(torch.stack(list(served.values())), logits[places])
            theirs += divergence(model(ids).logits[places], logits[places])
    assert 0 < ours <= 1.1 * theirs


@torch.inference_mode()
def test_a_pass_in_float32_leaves_the_weights_as_they_are():
    model = tiny("qwen3").to(torch.bfloat16)
    ids, own = torch.tensor([[5, 6, 7, 8]]), model(torch.tensor([[5, 6, 7, 8]])).logits
    with in_float32(model):
        exact = model(ids).logits
    assert exact.dtype == torch.float32
    assert torch.allclose(exact, copy.deepcopy(model).float()(ids).logits, atol=1e-4)
    assert torch.equal(model(ids).logits, own)
