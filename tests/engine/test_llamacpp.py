"""llama.cpp's server on a small real model: the contract, its end, and its messages."""

import pytest

from soft_reasoning.engine.paths import resolve
from soft_reasoning.engine.served import llamacpp
from soft_reasoning.types import UserError
from tests.contracts.engine import EngineContract

pytest.importorskip("xllamacpp")
try:
    resolve("smollm2_135m")
except UserError as error:
    pytest.skip(str(error), allow_module_level=True)


@pytest.fixture(scope="module")
def engine():
    engine = llamacpp("smollm2_135m", threads=1, context=512, parallel=4)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def prompts(engine):
    texts = ("The capital of France is", "1 + 1 =", "Once upon a time there was a", "A day has 24")
    return [tuple(engine.tokenizer.encode(text)) for text in texts]


class TestLlamaCpp(EngineContract):
    rounding = 1e-3  # a quantised model's sums depend on the batch

    def test_text_is_cut_before_the_earliest_stop_string(self, engine, prompts):
        """llama.cpp leaves out the tokens of the stop string."""
        text = self.greedy(engine, prompts[0]).text
        for length in (1, 2, 3):
            stop = text[2 : 2 + length]
            run = self.greedy(engine, prompts[0], stop=("never written", stop))
            assert (run.text, run.finish_reason) == (text[: text.index(stop)], "stop")
