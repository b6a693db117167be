"""Neurons of a hand-made two-layer model whose key neurons are known."""

import json
import sys

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from experiments.neurons import run as script
from experiments.neurons.activity import TOKENS, Sample, key_neurons, random_neurons, record
from experiments.neurons.hooks import Neurons
from experiments.neurons.report import CONTROL, MASKS, ROUND, SC, SR, TITLES

RIGHT, WRONG, ALWAYS = 5, 6, 7
"""Tokens of the hand-made model: its right answers hold the first, its wrong ones the second."""
KEY, ANTI, BIASED = (1, 3), (1, 4), (0, 2)
"""(layer, neuron): active on RIGHT alone, on WRONG alone, on both."""
WIDTH = 40


def hand_made():
    """Two layers of 40 gated neurons; attention adds nothing. Embeddings are one-hot, and a gate reads RIGHT
    or WRONG; all other neurons are off."""
    config = LlamaConfig(
        vocab_size=16,
        hidden_size=16,
        intermediate_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(16))
        model.lm_head.weight.copy_(torch.eye(16))
        for layer in model.model.layers:
            layer.input_layernorm.weight.fill_(1)
            layer.post_attention_layernorm.weight.fill_(1)
            layer.mlp.gate_proj.weight.fill_(-0.01)  # no neuron is active by itself
        model.model.norm.weight.fill_(1)
        gates = [layer.mlp.gate_proj.weight for layer in model.model.layers]
        gates[KEY[0]][KEY[1], RIGHT] = 2.0
        gates[ANTI[0]][ANTI[1], WRONG] = 2.0
        gates[BIASED[0]][BIASED[1], RIGHT] = gates[BIASED[0]][BIASED[1], WRONG] = 2.0
        # The key neuron writes token 9 where it is active, over what the embedding says.
        model.model.layers[KEY[0]].mlp.up_proj.weight[KEY[1], RIGHT] = 1.0
        model.model.layers[KEY[0]].mlp.down_proj.weight[9, KEY[1]] = 10.0
    return model


@pytest.fixture(scope="module")
def neurons():
    return Neurons(hand_made())


def embedded(ids):
    """One-hot, as the hand-made model's lookup."""
    return torch.eye(16)[list(ids)]


def samples(count=8):
    """Right and wrong answers of several lengths behind prompts of several lengths."""
    return [
        Sample((ALWAYS,) * (1 + i % 3), (RIGHT if i % 2 else WRONG,) * (2 + i), bool(i % 2), round=i % 3)
        for i in range(count)
    ]


def test_the_known_key_neuron_is_found(neurons):
    activity = record(samples(), neurons, embedded)
    keys = key_neurons(activity)
    assert keys.nonzero().tolist() == [list(KEY)]
    assert activity.rate[:, BIASED[0], BIASED[1]].tolist() == [1.0] * 8
    assert activity.rate[:, ANTI[0], ANTI[1]].tolist() == [1.0, 0.0] * 4


def test_sources_are_compared_at_the_same_answer_positions(neurons):
    """A searched answer begins with its soft token: what it wrote begins at its second."""
    sampled = Sample((ALWAYS,) * 3, (WRONG, *(RIGHT,) * 4, *(WRONG,) * 3), right=True)
    searched = Sample((ALWAYS,) * 3, ((RIGHT,) * 4 + (WRONG,) * 4), right=True, soft=embedded([WRONG]))
    rate = record([sampled, searched], neurons, embedded, skip=1).rate
    assert rate[0][KEY] == rate[1][KEY] == 1.0 and rate[0][ANTI] == rate[1][ANTI] == 0.0
    assert record([sampled], neurons, embedded).rate[0][ANTI] == pytest.approx(1 / TOKENS)
    middle = Sample((ALWAYS,) * 3, (RIGHT,) * TOKENS, right=True, soft=embedded([WRONG]), position=2)
    assert record([middle], neurons, embedded).rate[0][ANTI] == 0.0  # it is read, and does not count


def test_masking_silences_generated_positions_alone(neurons):
    prompt = torch.tensor([[ALWAYS, RIGHT]])
    silent = torch.zeros(2, WIDTH, dtype=torch.bool)
    silent[KEY] = True
    read, step = neurons.model(prompt), neurons.model(prompt[:, 1:])
    with neurons.masked(silent):
        assert torch.equal(neurons.model(prompt).logits, read.logits)  # a prompt is read as it is
        masked = neurons.model(prompt[:, 1:])
    assert step.logits.argmax() == 9 and masked.logits.argmax() == RIGHT


def test_a_random_control_avoids_key_neurons(neurons):
    keys = key_neurons(record(samples(), neurons, embedded))
    for by_layer in (True, False):
        drawn = random_neurons(keys, by_layer=by_layer, seed=0, name="a")
        assert drawn.sum() == keys.sum() and not (drawn & keys).any()
        assert not by_layer or torch.equal(drawn.sum(1), keys.sum(1))


@pytest.mark.slow
def test_the_whole_analysis_on_the_bundled_model(tmp_path, monkeypatch):
    words = "--questions 1 --samples 20 --masked 4 limit=10 max_new_tokens=60".split()
    monkeypatch.setattr(sys, "argv", ["run", *words, "--out", str(tmp_path)])
    script.main()
    [row] = json.loads((tmp_path / "neurons.json").read_text())
    assert set(row["masked"]) == set(MASKS) and row["keys"] > 0
    for source in (SC, SR, CONTROL):
        assert 0 < row["rate"][source] < 1 and set(row["layers"][source]) <= {"right", "wrong"}
    assert len(row["rounds"][SR]) > 1 and set(row["rounds"][SR][0]) == {*ROUND, "layers"}
    text = (tmp_path / "neurons.md").read_text()
    assert all(title in text for title in TITLES.values()) and "| key minus random by layer" in text
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "activation_rate.png",
        "activation_iterative.png",
    }
