"""What a newcomer adds first, each by a file alone: an engine, a method that feeds embeddings, gradients."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from soft_reasoning.answers import Grader
from soft_reasoning.engines.abilities import FeedsEmbeddings, SoftTokenGradients
from soft_reasoning.engines.base import prepare
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.engines.output import Output
from soft_reasoning.engines.queue import QueueEngine
from soft_reasoning.engines.sampling import choose
from soft_reasoning.engines.text import StopChecker
from soft_reasoning.methods.base import read_candidate
from soft_reasoning.scheduling.context import Context
from soft_reasoning.scheduling.effects import answers
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.types import Effect, Generate, Problem, Prompt, Request, Result
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


@dataclass(frozen=True)
class Mixing:
    """Feeds the mean embedding of the ``likeliest`` next tokens at every step, as Soft Thinking does."""

    likeliest: int = 3
    name: str = "mixing"
    needs: ClassVar = (FeedsEmbeddings,)

    def solve(self, problem, context):
        prompt = context.prompts.solve(problem)

        def mean(logits):
            top = logits.topk(self.likeliest)
            return top.values.softmax(-1) @ context.engine.embed(top.indices.tolist())

        [completion] = yield Generate([Request(prompt.ids, max_new_tokens=12, feed=mean)])
        candidate = read_candidate(completion, problem, context)
        return Result(candidate.answer, (candidate,))


@dataclass(frozen=True)
class Ascent(Effect):
    """A step of gradient ascent on the confidence after ``soft``."""

    prompt: Prompt
    soft: torch.Tensor


@answers(Ascent)
def ascend(jobs, engine):
    def confidence(logits):
        return logits[0].log_softmax(-1).max()

    steps = []
    for job in jobs:
        request = Request(job.effect.prompt.ids, soft=job.effect.soft, max_new_tokens=1)
        value, gradient = engine.soft_gradient(request, confidence)
        steps.append((value, job.effect.soft + 0.05 * engine.embedding_rms * gradient / gradient.norm()))
    return steps


@dataclass(frozen=True)
class Climbing:
    """Moves the soft token so that the model becomes surer of the next one."""

    name: str = "climbing"
    needs: ClassVar = (SoftTokenGradients,)

    def solve(self, problem, context):
        prompt = context.prompts.solve(problem)
        soft, values = context.engine.embed(prompt.ids[-1:]), []
        for _ in range(5):
            value, soft = yield Ascent(prompt, soft)
            values.append(value)
        return Result(None, (), trace=({"confidence": values},))


@pytest.fixture(scope="module")
def context():
    class Asked:
        def solve(self, problem):
            return Prompt(random_ids(15, int(problem.id)))

        def split(self, text):
            return "", text

    engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())
    return Context(engine=engine, prompts=Asked(), grader=Grader(), seed=0)  # pyright: ignore


PROBLEMS = [Problem(str(i), "?") for i in range(4)]


def test_a_method_that_feeds_an_embedding_at_every_step(context):
    together = {p.id: r.candidates[0] for p, r in drive(PROBLEMS, Mixing(), context)}
    alone = {p.id: r.candidates[0] for p, r in drive(PROBLEMS, Mixing(), context, max_live=1)}
    assert together == alone
    greedy = {p.id: r.candidates[0] for p, r in drive(PROBLEMS, Mixing(likeliest=1), context)}
    for problem in PROBLEMS:
        request = Request(context.prompts.solve(problem).ids, max_new_tokens=12)
        assert greedy[problem.id].token_ids == context.engine.generate([request])[0].token_ids
    assert any(together[i].token_ids != greedy[i].token_ids for i in together)


def test_a_method_that_follows_a_gradient(context):
    for _, result in drive(PROBLEMS, Climbing(), context):
        values = result.trace[0]["confidence"]
        assert values == sorted(values) and values[-1] > values[0]
