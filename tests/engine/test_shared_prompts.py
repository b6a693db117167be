"""Prompts that begin alike, in half precision: each has the logits of the model alone."""

import torch

from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.types import Request
from tests.engine.models import tiny


def test_long_prompts_with_a_shared_beginning_have_the_logits_of_the_model():
    model = tiny("qwen2").to(torch.bfloat16)
    engine = HuggingFaceEngine.from_loaded(model, FakeTokenizer())
    draw = torch.Generator().manual_seed(0)
    vocabulary = model.config.vocab_size
    begin = torch.randint(3, vocabulary, (40,), generator=draw).tolist()
    prompts = [begin + torch.randint(3, vocabulary, (70 + 9 * i,), generator=draw).tolist() for i in range(6)]
    requests = [Request(tuple(ids), max_new_tokens=0, next_logits=True) for ids in prompts]
    for completion, ids in zip(engine.generate(requests), prompts, strict=True):
        with torch.no_grad():
            own = model(torch.tensor([ids])).logits[0, -1].float()
        assert torch.allclose(completion.next_logits.float(), own, atol=0.05 * float(own.abs().max()))
