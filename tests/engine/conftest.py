"""What tests of engines share."""

import pytest

from soft_reasoning.engine import loading
from soft_reasoning.engine.fake import FakeTokenizer
from tests.engine.models import random_ids


@pytest.fixture
def read_as_fake(monkeypatch):
    """Folders without a tokenizer are read with the fake one."""
    monkeypatch.setattr(loading.AutoTokenizer, "from_pretrained", lambda *_, **__: FakeTokenizer())


@pytest.fixture(scope="module")
def prompts():
    head = random_ids(150, 0)
    # One beyond a block of keys, one alone, two that share a long head.
    return [head + random_ids(9, 1), random_ids(12, 2), head + random_ids(40, 3), random_ids(33, 4)]
