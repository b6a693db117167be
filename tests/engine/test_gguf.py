"""GGUF files: found, read and refused. The tests on a real model are in test_smollm2.py."""

import logging

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoConfig

from soft_reasoning.engine import paths
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.engine.served import llamacpp, opening
from soft_reasoning.lab.runs.manifest import describe_engine
from soft_reasoning.types import Request
from tests.engine.models import refusal

WORDS = ["<unk>", "<s>", "</s>", *"abcdefgh", "Ġ", "ab", *(f"w{i}" for i in range(20))]
HIDDEN, HEADS, INNER = 64, 2, 96


def write(path, architecture="llama", eot=None):
    """A random model of ``architecture`` with a tokenizer and a chat template, in Q8_0 but for its norms."""
    rng = np.random.default_rng(0)
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(1)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(WORDS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(WORDS)
    writer.add_token_types([3, 3, 3] + [1] * (len(WORDS) - 3))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    if eot is not None:
        writer.add_eot_token_id(eot)
    writer.add_unk_token_id(0)
    writer.add_chat_template("{{ messages[0]['content'] }}")
    square = (HIDDEN, HIDDEN)
    shapes = {
        "token_embd": (len(WORDS), HIDDEN),
        "output": (len(WORDS), HIDDEN),
        "blk.0.attn_q": square,
        "blk.0.attn_k": square,
        "blk.0.attn_v": square,
        "blk.0.attn_output": square,
        "blk.0.ffn_gate": (INNER, HIDDEN),
        "blk.0.ffn_up": (INNER, HIDDEN),
        "blk.0.ffn_down": (HIDDEN, INNER),
    }
    stored = {}
    for name, shape in shapes.items():
        blocks = gguf.quantize(rng.normal(size=shape).astype(np.float32), gguf.GGMLQuantizationType.Q8_0)
        stored[name] = gguf.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0)
        writer.add_tensor(f"{name}.weight", blocks, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(HIDDEN, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


@pytest.mark.parametrize(
    "dtype, memory", [("auto", "torch.float32: 0.2 MB"), ("bfloat16", "torch.bfloat16: 0.1 MB")]
)
def test_a_file_is_dequantised_and_its_memory_told(tmp_path, caplog, dtype, memory):
    stored = write(tmp_path / "tiny.gguf")
    with caplog.at_level(logging.INFO):
        engine = HuggingFaceEngine(str(tmp_path / "tiny.gguf"), dtype=dtype, device="cpu")
    expected = torch.from_numpy(stored["token_embd"][[5]]).to(engine.model.dtype).float()
    assert torch.equal(engine.embed([5]), expected)
    assert f"tiny.gguf is dequantised to {memory}" in caplog.text
    assert engine.eos_ids == {2} and engine.context_length == 128
    assert engine.tokenizer.chat_template == "{{ messages[0]['content'] }}"
    assert engine.generate([Request((5, 6, 7), max_new_tokens=4)])[0].token_ids


def test_a_file_is_known_by_itself_not_by_its_folder(tmp_path):
    write(tmp_path / "tiny.gguf")
    before = describe_engine(HuggingFaceEngine(str(tmp_path / "tiny.gguf")))["model"]
    assert before["path"] == str(tmp_path / "tiny.gguf")
    write(tmp_path / "other.gguf", eot=3)
    engine = HuggingFaceEngine(str(tmp_path / "tiny.gguf"))
    assert describe_engine(engine)["model"] == before
    assert "tiny.gguf: 0 M parameters in float32 on cpu, " in describe_engine(engine)["loaded"]
    other = describe_engine(HuggingFaceEngine(str(tmp_path / "other.gguf")))["model"]
    assert other["weights"] != before["weights"]


def test_the_end_of_turn_of_a_file_ends_an_answer(tmp_path):
    write(tmp_path / "tiny.gguf")
    plain = HuggingFaceEngine(str(tmp_path / "tiny.gguf")).generate([Request((5, 6, 7), max_new_tokens=6)])[0]
    write(tmp_path / "tiny.gguf", eot=plain.token_ids[2])
    engine = HuggingFaceEngine(str(tmp_path / "tiny.gguf"))
    assert engine.eos_ids == {2, plain.token_ids[2]}
    ended = engine.generate([Request((5, 6, 7), max_new_tokens=6)])[0]
    assert ended.token_ids == plain.token_ids[: plain.token_ids.index(plain.token_ids[2]) + 1]
    assert ended.finish_reason == "eos"


def test_another_architecture_is_refused(tmp_path):
    write(tmp_path / "tiny.gguf", "rwkv7")
    assert "that transformers can load" in refusal(HuggingFaceEngine, str(tmp_path / "tiny.gguf"))


def test_a_part_is_refused_by_its_name_before_it_is_looked_for():
    name = "owner/models/a.b-00002-of-00002.GGUF"
    assert f"got {name}, one of the 2 parts" in refusal(HuggingFaceEngine, name)


@pytest.mark.parametrize("content", [b"GGUF", b"not a GGUF file"])
def test_a_broken_file_is_refused(tmp_path, content):
    (tmp_path / "tiny.gguf").write_bytes(content)
    assert "tiny.gguf" in refusal(HuggingFaceEngine, str(tmp_path / "tiny.gguf"))


@pytest.mark.parametrize("engine", [HuggingFaceEngine, llamacpp])
def test_a_cut_file_is_refused_from_its_header(tmp_path, monkeypatch, engine):
    monkeypatch.setattr(AutoConfig, "from_pretrained", None)  # nothing is loaded or started
    monkeypatch.setattr(opening, "StartedServer", None)
    write(tmp_path / "tiny.gguf")
    content = (tmp_path / "tiny.gguf").read_bytes()
    for share in (0.001, 0.01, 0.1, 0.5, 0.9999):
        cut = tmp_path / f"{share}.gguf"
        cut.write_bytes(content[: int(share * len(content))])
        message = refusal(engine, str(cut))
        assert f"path: expected a whole GGUF file, got {cut}, cut off at " in message


@pytest.mark.parametrize("path", ["tiny.gguf", "~/nowhere/tiny.gguf"])
def test_a_missing_file_is_named(path):
    message = refusal(HuggingFaceEngine, path)
    assert path in message and "OWNER/REPOSITORY/FILE.gguf" in message


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(paths, "PACKAGE", "no-such-package")
    assert "expected the package no-such-package" in refusal(HuggingFaceEngine, "smollm2_135m")
