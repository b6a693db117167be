"""Falcon with alibi: attention by hand. Transformers' eager path adds the bias twice, its SDPA path once."""

import math

import pytest
import torch

from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.types import UserError
from tests.engines.models import tiny


def test_the_first_layer_is_softmax_of_scores_and_bias_over_the_root_of_the_width():
    """As in Falcon's first release: (q k + slope * position) / sqrt(d), slopes 2**(-8 h / heads)."""
    model, seen = tiny("falcon"), {}
    layer = model.transformer.h[0].self_attention
    layer.register_forward_pre_hook(lambda module, given: seen.update(x=given[0]))
    layer.register_forward_hook(lambda module, given, out: seen.update(out=out[0]))
    with torch.no_grad():
        model(torch.tensor([[(7 * i + 3) % 90 + 5 for i in range(12)]]))
        q, k, v = (x.transpose(1, 2) for x in layer._split_heads(layer.query_key_value(seen["x"])))
        heads, n, width = q.shape[1:]
        slopes = torch.tensor([2 ** (-8 * (head + 1) / heads) for head in range(heads)])
        scores = (q @ k.transpose(-1, -2) + slopes[:, None, None] * torch.arange(n)) / math.sqrt(width)
        weights = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf).softmax(-1)
        expected = layer.dense((weights @ v).transpose(1, 2).reshape(1, n, -1))
    assert torch.allclose(seen["out"], expected, atol=1e-4)


def test_its_eager_attention_is_refused():
    with pytest.raises(UserError, match="adds its position bias twice .*attn_implementation=sdpa"):
        HuggingFaceEngine.from_loaded(tiny("falcon", attn_implementation="eager"), FakeTokenizer())
    model = tiny("falcon", alibi=False, attn_implementation="eager")
    HuggingFaceEngine.from_loaded(model, FakeTokenizer())
