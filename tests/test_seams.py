"""A third engine, by a file alone; tests/test_new_option.py has a verifier so."""

import pytest
import torch

from soft_reasoning.engine.base import Engine
from soft_reasoning.engine.fake import FakeTokenizer
from tests.contracts.engine import EngineContract
from tests.engine.models import random_ids, tiny


class OneByOne(Engine):
    """A third engine: transformers' own model, a whole pass for each token of one request after the other."""

    def __init__(self, model, tokenizer):
        super().__init__()
        self.model, self.tokenizer, self.eos_ids = model, tokenizer, frozenset([tokenizer.eos_token_id])
        lookup = model.get_input_embeddings()
        self.set_embeddings(lookup, lookup.weight.detach())
        self.context_length = model.config.max_position_embeddings

    @torch.no_grad()
    def advance(self):
        outcomes = {}
        for row in self.queued.values():
            head, soft, tail = row.head, row.soft, row.tail
            parts = [
                self.embed(head),
                self.embed([]) if soft is None else soft,
                self.embed((*tail, *row.ids)),
            ]
            logits = self.model(inputs_embeds=torch.cat(parts).unsqueeze(0)).logits[0, -1].float()
            outcomes |= self.extend([row], logits[None])
        return outcomes.items()


class TestAThirdEngine(EngineContract):
    @pytest.fixture(scope="class")
    def engine(self):
        return OneByOne(tiny("llama"), FakeTokenizer())

    @pytest.fixture(scope="class")
    def prompts(self):
        return [random_ids(length, seed) for seed, length in enumerate((20, 12, 16))]
