"""Tiny random models and the tokenizer that reads their output."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.types import UserError

VOCABULARY = FakeTokenizer().vocab_size
BASE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
    "initializer_range": 0.3,
}
HEADS = ("num_attention_heads", "num_key_value_heads")
NO_HEADS = dict.fromkeys(HEADS)
LINEAR = ["linear_attention", "full_attention"]
WINDOW = {"head_dim": 16, "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"]}
DELTA = {  # gated delta layers
    "layer_types": LINEAR,
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
}
MAMBA = {
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 8,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 16,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MOE = EXPERTS | {
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "moe_k": 2,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "head_dim": 16,
}
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
INDEXED = MOE | LATENT | {"index_n_heads": 2, "index_head_dim": 16, "index_topk": 512}
GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}
FAMILIES = {
    "llama": {},
    "mistral": {"sliding_window": 16, "head_dim": 16},
    "qwen2": {"use_sliding_window": False},
    "qwen3": {"head_dim": 16},
    "gemma2": WINDOW | {"query_pre_attn_scalar": 16},
    "gemma3_text": WINDOW,
    "phi3": {},
    "gpt2": GPT2,
    "gpt_neox": {},
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 32},
    "mixtral": {"num_local_experts": 4},
    "olmo2": {},
    "granite": {"embedding_multiplier": 3.0, "logits_scaling": 2.0, "attention_multiplier": 0.3},
    "smollm3": {},
    "cohere2": WINDOW,
    "qwen2_moe": EXPERTS | WINDOW | {"use_sliding_window": True, "shared_expert_intermediate_size": 48},
    "gpt_oss": WINDOW | {"num_local_experts": 4},
    "afmoe": EXPERTS | WINDOW,
    "deepseek_v3": EXPERTS
    | LATENT
    | {  # keys of another width than values
        "v_head_dim": 12,
        "n_routed_experts": 4,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
    },
    "gemma4_text": WINDOW
    | {  # heads of another width in each kind of layer
        "global_head_dim": 32,
        "hidden_size_per_layer_input": 0,
        "num_kv_shared_layers": 0,
    },
    "llama4_text": {
        "head_dim": 16,
        "attention_chunk_size": 64,
        "num_local_experts": 2,
        "intermediate_size_mlp": 96,
        "layer_types": ["chunked_attention", "full_attention"],
    },
    "falcon": {"alibi": True, "new_decoder_architecture": False, "multi_query": False},
    "bloom": {"n_layer": 2, "n_head": 4},
    "gptj": {**GPT2, "rotary_dim": 8},
    "mamba": {"state_size": 8, **NO_HEADS},
}
HYBRIDS = {
    "qwen3_next": DELTA | EXPERTS | {"shared_expert_intermediate_size": 48},
    "qwen3_5_text": DELTA,
    "ministral3": {"head_dim": 16},  # Mistral Small is a Mistral, this its successor
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "granitemoehybrid": MAMBA
    | {  # Granite 4
        "layer_types": ["mamba", "attention"],
        "num_local_experts": 0,
        "shared_intermediate_size": 64,
    },
    "nemotron_h": {
        "layers_block_type": ["mamba", "attention"],
        "num_hidden_layers": None,
        "ssm_state_size": 8,
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "head_dim": 16,
        "n_groups": 1,
        "chunk_size": 16,
    },
    "zamba2": {
        "layers_block_type": ["mamba", "hybrid"],
        "mamba_d_state": 8,
        "chunk_size": 16,
        "n_mamba_heads": 4,
        "num_mem_blocks": 1,
    },
}
"""Current families and layers with state; ``test_lengths`` alone runs them."""
PLAIN = (
    "apertus arcee aria_text biogpt bitnet cohere cohere2_moe ctrl cwm diffllama doge ernie4_5 exaone4 "
    "falcon_mamba flex_olmo flint fuyu gemma gemma4_unified_text glm glm4 gpt-sw3 gpt_bigcode "
    "gpt_neox_japanese granite_swa granitemoe granitemoe_swa granitemoeshared hyperclovax internlm3 "
    "iquestcoder jais2 jetmoe modernbert-decoder mpt nanochat nemotron olmo olmo3 olmo_hybrid olmoe "
    "persimmon phi phimoe seed_oss stablelm starcoder2 vaultgemma xglm"
).split()
OTHERS = dict.fromkeys(PLAIN, {}) | {
    "axk2": INDEXED,
    "bailing_hybrid": MOE | LATENT | {"layer_types": LINEAR},
    "bamba": MAMBA | {"attn_layer_indices": [1]},
    "codegen": {"n_embd": 64, "n_head": 4, "n_layer": 2, "rotary_dim": 8},
    "deepseek_v2": MOE | LATENT,
    "deepseek_v32": INDEXED,
    "dots1": MOE,
    "dots3_note_text": MOE | LATENT,
    "ernie4_5_moe": MOE | {"moe_layer_start_index": 1},
    "exaone_moe": MOE,
    "glm4_moe": MOE,
    "glm4_moe_lite": MOE | LATENT,
    "glm_moe_dsa": INDEXED,
    "falcon_h1": MAMBA | {"mamba_d_ssm": 128},
    "gpt_neo": NO_HEADS
    | {
        "num_layers": 2,
        "attention_types": [[["global", "local"], 1]],
        "num_heads": 4,
        "window_size": 16,
        "num_hidden_layers": None,
    },
    "helium": {"head_dim": 16},
    "hunyuan_v1_dense": {"head_dim": 16},
    "hunyuan_v1_moe": MOE,
    "hy_v3": MOE,
    "jamba": {
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "num_experts": 4,
        "mamba_d_state": 8,
        "mamba_dt_rank": 8,
        "use_mamba_kernels": False,
    },
    "kimi_linear": MOE | LATENT | DELTA | {"linear_num_heads": 2, "linear_head_dim": 16},
    "kolibri1": MOE,
    "laguna": MOE,
    "lfm2_moe": MOE | {"layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "lfm3": {"layer_types": ["conv", "full_attention"]},
    "mamba2": NO_HEADS | {"num_heads": 8, "head_dim": 16, "n_groups": 1, "state_size": 8, "chunk_size": 16},
    "mellum": MOE,
    "mimo_v2_flash": MOE
    | {
        "layer_types": WINDOW["layer_types"],
        "sliding_window": 16,
        "v_head_dim": 16,
        "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 2,
        "swa_head_dim": 16,
        "swa_v_head_dim": 16,
    },
    "minicpm3": LATENT,
    "minimax_m2": MOE,
    "minimax_m3_vl_text": MOE,
    "ministral": {"head_dim": 16},
    "qwen3_5_moe_text": MOE | DELTA,
    "qwen3_moe": MOE,
    "solar_open": MOE,
    "youtu": LATENT,
}
"""The rest of what transformers has; the slow matrix of ``test_lengths`` alone runs them."""
SHARING = set(FAMILIES) - {"llama4_text", "falcon", "bloom", "gptj", "mamba"}
"""Families that attend over the block table; the others run with the model's own cache."""


def tiny(family: str, **others):
    """A random float32 model of ``family`` whose greedy completions vary."""
    torch.manual_seed(0)
    options = BASE | (FAMILIES | HYBRIDS | OTHERS).get(family, {}) | others
    options = {key: value for key, value in options.items() if value is not None}
    config = AutoConfig.for_model(family, **options)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("sinks"):  # as large as scores are, so that they take weight
            torch.nn.init.normal_(parameter, 10, 3)
    return model


def random_ids(count: int, seed: int) -> tuple[int, ...]:
    """Token ids of a random prompt."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(3, VOCABULARY, (count,), generator=generator).tolist())


def tiny_engine(family: str = "llama", **others) -> HuggingFaceEngine:
    return HuggingFaceEngine.from_loaded(tiny(family, **others), FakeTokenizer())


def logprobs_of(model, prompt, ids) -> list[float]:
    """Log-probabilities of ``ids`` after ``prompt`` in one plain pass of ``model``."""
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(ids)[:, None]).squeeze(-1).tolist()


def refusal(call, *arguments, **options) -> str:
    """The one line with which ``call`` refuses its arguments."""
    with pytest.raises(UserError) as error:
        call(*arguments, **options)
    assert "\n" not in str(error.value)
    return str(error.value)
