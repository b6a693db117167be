"""The abilities that engines declare, on every kind of runner."""

import pytest

from soft_reasoning.engines.fake import FakeEngine
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from tests.contracts.abilities import OpenModelContract, StepsContract
from tests.engines.models import random_ids, tiny

PROMPTS = [random_ids(length, seed) for seed, length in enumerate((40, 12, 33))]


@pytest.fixture(scope="class")
def prompts():
    return PROMPTS


class TestFake(StepsContract):
    @pytest.fixture(scope="class")
    def engine(self):
        return FakeEngine()


class TestHuggingFace(StepsContract, OpenModelContract):
    """A model with a block table, one that bends its logits, one with a cache of its own."""

    @pytest.fixture(scope="class", params=["llama", "gemma2", "mamba"])
    def engine(self, request):
        return HuggingFaceEngine.from_loaded(tiny(request.param), FakeTokenizer())
