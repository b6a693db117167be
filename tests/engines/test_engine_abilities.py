"""The abilities that engines declare, on every kind of runner."""

import pytest

from soft_reasoning.engines.fake import FakeEngine
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from tests.contracts.abilities import (
    FeedsEmbeddingsContract,
    HiddenStatesContract,
    SoftTokenGradientsContract,
)
from tests.engines.models import random_ids, tiny

PROMPTS = [random_ids(length, seed) for seed, length in enumerate((40, 12, 33))]


@pytest.fixture(scope="class")
def prompts():
    return PROMPTS


class TestFake(FeedsEmbeddingsContract):
    @pytest.fixture(scope="class")
    def engine(self):
        return FakeEngine()


class TestHuggingFace(FeedsEmbeddingsContract, HiddenStatesContract, SoftTokenGradientsContract):
    """A model with a block table, one that bends its logits, one with a cache of its own."""

    @pytest.fixture(scope="class", params=["llama", "gemma2", "mamba"])
    def engine(self, request):
        return HuggingFaceEngine.from_loaded(tiny(request.param), FakeTokenizer())

    def test_the_lm_head_of_a_state_gives_the_next_token_s_logits(self, engine, prompts):
        if engine.model.config.model_type == "gemma2":
            pytest.skip("Gemma 2 bends its logits after the LM head")
        super().test_the_lm_head_of_a_state_gives_the_next_token_s_logits(engine, prompts)
