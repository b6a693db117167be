"""The invariants on a real model."""

from dataclasses import replace

import pytest
import torch

from soft_reasoning import SoftReasoner
from soft_reasoning.configuration.parts import Setting
from soft_reasoning.types import Request, UserError

try:
    from soft_reasoning.engine.paths import resolve

    resolve("smollm2_135m")
    missing = ""
except UserError as error:
    missing = str(error)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing), reason=missing)]

QUESTIONS = ["What is 19 + 5?", "Which number is larger, 57 or 75?", "What is 6 times 7?", "What is 40 + 41?"]
SMALL = {"k": 3, "rounds": 1, "max_tokens": 200}


@pytest.fixture(scope="module")
def reasoner():
    judge = replace(Setting().build("verifier", "single_judge"), shots=1)
    options = {"max_new_tokens": 24, "verifier": judge, "embedding": "gaussian", "decoding": "greedy"}
    with SoftReasoner.from_pretrained("smollm2_135m", prompt="math", **options) as opened:
        yield opened


def test_the_weights_are_the_file_s_own(reasoner):
    """Greedy text of the engine and of transformers' generate are equal, and the model knows a fact."""
    engine = reasoner.context.engine
    message = [{"role": "user", "content": "What is the capital of France?"}]
    ids = engine.tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False)
    ours = engine.generate([Request(tuple(ids), max_new_tokens=20)])[0]
    theirs = engine.model.generate(torch.tensor([ids]), max_new_tokens=20, do_sample=False)[0, len(ids) :]
    assert list(ours.token_ids) == theirs.tolist()
    assert "Paris" in ours.text


def test_a_question_gets_the_same_alone_and_in_a_batch(reasoner):
    batch = reasoner.solve(QUESTIONS, **SMALL)
    for question, result in zip(QUESTIONS[:2], batch, strict=False):
        alone = reasoner.solve(question, **SMALL)
        assert (alone.answer, alone.candidates) == (result.answer, result.candidates)
