"""An engine, an optimiser and a method of few lines, whose calls tests look at."""

import torch

from soft_reasoning.answers import Grader
from soft_reasoning.context import Limits
from soft_reasoning.engines.batch_engine import BatchEngine
from soft_reasoning.engines.fake import FakeEngine
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.types import (
    Completion,
    Generate,
    Problem,
    Request,
    Result,
)


class Engine(BatchEngine):
    """Answers with the sum of the prompt's ids; refuses prompts that hold a 13."""

    tokenizer = FakeTokenizer()

    def __init__(self):
        super().__init__()
        self.generated, self.read = [], []

    def check(self, request):
        if 13 in request.prompt_ids:
            raise ValueError("a 13")

    def generate(self, requests):
        self.generated.append(len(requests))
        prompts = [r.prompt_ids for r in requests]
        return [Completion((1, 2), (0.0, 0.0), str(sum(ids)), "eos", len(ids), 1) for ids in prompts]

    def next_token_logits(self, prompts, ids=None, *, top=None):
        self.read.append((len(prompts), ids))
        logits = torch.tensor([[float(sum(p.ids))] * len(ids) for p in prompts])
        return logits, [len(p.ids) - 1 for p in prompts]


class Streaming:
    """Makes an engine complete one request at a time: the smallest prompts first, whenever they came."""

    def __init__(self):
        super().__init__()
        self.log, self.in_work, self.cancelled = [], {}, 0

    def submit(self, requests):
        tickets = super().submit(requests)
        self.in_work.update(zip(tickets, requests, strict=True))
        self.log += [("in", sum(r.prompt_ids)) for r in requests]
        return tickets

    def collect(self, tickets):
        ticket = min(tickets, key=lambda t: sum(self.in_work[t].prompt_ids))
        self.log.append(("out", sum(self.in_work.pop(ticket).prompt_ids)))
        return super().collect([ticket])

    def cancel(self, tickets):
        super().cancel(tickets)
        for ticket in tickets:
            del self.in_work[ticket]
        self.cancelled += 1


class StreamingEngine(Streaming, Engine):
    pass


class StreamingFake(Streaming, FakeEngine):
    pass


class Optimiser:
    def __init__(self):
        self.calls = []

    def propose(self, U, y, k, *, seed, round, keys):
        self.calls.append((tuple(U.shape), k, round, list(keys)))
        return [float(row.sum()) for row in U]


class Context:
    grader = Grader()
    seed = 0
    limits = Limits()

    def __init__(self, engine=None):
        self.engine = engine or Engine()


class Script:
    """A method that follows ``steps(problem)``, a generator function."""

    name = "script"

    def __init__(self, steps):
        self.steps = steps

    def solve(self, problem, context):
        return self.steps(problem)


def problems(n):
    return [Problem(str(i), f"q{i}") for i in range(n)]


def number(problem):
    return 100 + int(problem.id)


def ask(problem, count=1, role="candidate"):
    return Generate([Request((number(problem),), role=role)] * count)


def answer(completions):
    return Result(completions[0].text, ())
