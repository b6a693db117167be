"""Yes or no by next-token logits, against hand-computed cases."""

import math

import pytest
import torch

from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.schedule.solutions import ask_yes_no, word_ids
from soft_reasoning.types import Completion, Prompt, UserError


def test_both_spellings_are_asked_for_and_yes_comes_first():
    tokenizer = FakeTokenizer()
    steps = ask_yes_no([Prompt((5, 6)), Prompt((7,))], tokenizer, role="verifier")
    effect = next(steps)
    for request, ids in zip(effect.requests, ((5, 6), (7,)), strict=True):
        assert [tokenizer.decode([i]) for i in request.next_logits] == ["Yes", " Yes", "No", " No"]
        assert request.prompt_ids == ids and request.role == "verifier" and request.max_new_tokens == 0
    # Yes: e^0 + e^0 = 2; No: e^ln2 + e^ln4 = 6.
    rows = torch.tensor([[0.0, 0.0, math.log(2), math.log(4)], [1000.0, 0.0, 0.0, -1000.0]])
    with pytest.raises(StopIteration) as stop:
        steps.send([Completion((), (), "", "length", 1, next_logits=row) for row in rows])
    assert stop.value.value.tolist() == pytest.approx([0.25, 1.0], abs=1e-6)


def test_spellings_of_several_tokens_and_unknown_ones_are_left_out():
    class Spaced(FakeTokenizer):
        unk_token_id = 9

        def encode(self, text, add_special_tokens=True):
            return {"Yes": [9], " Yes": [4], "No": [5], " No": [6, 7], "Hm": [8, 8], " Hm": [9]}[text]

    assert word_ids(Spaced(), "Yes") == (4,) and word_ids(Spaced(), "No") == (5,)
    with pytest.raises(UserError, match="token for 'Hm'"):
        word_ids(Spaced(), "Hm")
