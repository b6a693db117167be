"""The fake engine keeps the contract, and its tokenizer loses nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from soft_reasoning.engine.fake import FakeEngine, FakeTokenizer
from soft_reasoning.types import Request
from tests.contracts.engine import EngineContract


@pytest.fixture(scope="module")
def engine():
    return FakeEngine()


@pytest.fixture(scope="module")
def prompts(engine):
    texts = ("Question:\nAnn has 3 apples. How many?\nThought:\n", "How many more books?", "Solve: 17 - 4 = ")
    return [tuple(engine.tokenizer.encode(text)) for text in texts]


class TestFake(EngineContract):
    def test_answers_are_small_numbers_that_depend_on_the_prompt(self, engine):
        prompts = [tuple(engine.tokenizer.encode(f"Question {i}:")) for i in range(40)]
        texts = [run.text for run in engine.generate([Request(p) for p in prompts])]
        answers = {int(text.split("Answer:")[1]) for text in texts}
        assert len(answers) > 8 and answers <= set(range(21))


@given(st.text())
def test_the_tokenizer_loses_nothing(text):
    tokenizer = FakeTokenizer()
    ids = tokenizer.encode(text)
    assert ids[0] == tokenizer.bos_token_id
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert tokenizer.encode(tokenizer.decode(ids[1:]), add_special_tokens=False) == ids[1:]
