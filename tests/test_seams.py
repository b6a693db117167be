"""A third engine, by a file alone."""

import pytest
import torch

from soft_reasoning.engines.base import prepare
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.output import Output
from soft_reasoning.engines.queue import QueueEngine
from soft_reasoning.engines.sampling import choose
from soft_reasoning.engines.text import StopChecker
from tests.contracts.engine import EngineContract
from tests.engines.models import random_ids, tiny


class OneByOne(QueueEngine):
    """A third engine: transformers' own model, a whole pass for each token of one request after the other."""

    def __init__(self, model, tokenizer):
        super().__init__()
        self.model, self.tokenizer, self.eos_ids = model, tokenizer, frozenset([tokenizer.eos_token_id])
        self.table = model.get_input_embeddings().weight.detach()
        self.hidden_size, self.context_length = self.table.shape[1], model.config.max_position_embeddings
        self.embedding_rms = float(self.table.square().mean().sqrt())
        self.stops, self.outputs = StopChecker(tokenizer), {}

    def embed(self, ids):
        return self.table[list(ids)].clone()

    def nearest_tokens(self, x, count=3):
        cosines = torch.nn.functional.cosine_similarity(x.unsqueeze(1), self.table.unsqueeze(0), dim=-1)
        best = cosines.topk(count)
        return [
            list(zip(i, v, strict=True))
            for i, v in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    def check(self, request):
        return prepare(request, self.hidden_size, self.context_length, len(self.table))

    @torch.no_grad()
    def advance(self):
        done = []
        for ticket, prepared in self.queued.items():
            output = self.outputs.setdefault(ticket, Output(prepared))
            soft = self.table[:0] if prepared.soft is None else prepared.soft
            rows = [self.embed(prepared.head), soft, self.embed((*prepared.tail, *output.ids))]
            logits = self.model(inputs_embeds=torch.cat(rows).unsqueeze(0)).logits[0, -1].float()
            ended = output.read(logits, float(logits.logsumexp(-1)))
            if not ended:
                token = int(choose(logits[None], [output], sorted(self.eos_ids)))
                ended = output.add(token, float(logits.log_softmax(-1)[token]), self.eos_ids, self.stops)
            if ended:
                completion = output.completion(self.tokenizer, self.eos_ids, self.stops, cached_tokens=0)
                done.append((ticket, completion))
        for ticket, _ in done:
            del self.outputs[ticket]
        return done

    def drop(self, tickets):
        super().drop(tickets)
        for ticket in tickets:
            self.outputs.pop(ticket, None)


class TestAThirdEngine(EngineContract):
    @pytest.fixture(scope="class")
    def engine(self):
        return OneByOne(tiny("llama"), FakeTokenizer())

    @pytest.fixture(scope="class")
    def prompts(self):
        return [random_ids(length, seed) for seed, length in enumerate((20, 12, 16))]
