"""An engine, an optimiser and a method of few lines, whose calls tests look at."""

import torch

from soft_reasoning.answers import Grader
from soft_reasoning.engine import base
from soft_reasoning.engine.fake import FakeEngine, FakeTokenizer
from soft_reasoning.schedule.method import Generate, Limits
from soft_reasoning.types import Completion, Problem, Request, Result


class Engine(base.Engine):
    """Answers with the sum of the prompt's ids, all requests in one step; refuses prompts that hold a 13."""

    tokenizer = FakeTokenizer()
    hidden_size, context_length, vocabulary = 4, 2**31, 2**31

    def __init__(self):
        super().__init__()
        self.generated = []

    def prepare(self, request, ticket=-1):
        if 13 in request.prompt_ids:
            raise ValueError("a 13")
        return super().prepare(request, ticket)

    def advance(self):
        self.generated.append(len(self.queued))
        return [(ticket, self.completion(row.request)) for ticket, row in self.queued.items()]

    def completion(self, request):
        total, length, ids = sum(request.prompt_ids), len(request.prompt_ids), request.next_logits
        if ids is not False:
            return Completion(
                (), (), "", "length", length, length - 1, next_logits=torch.full((len(ids),), float(total))
            )
        return Completion((1, 2), (0.0, 0.0), str(total), "eos", length, 1)


class Streaming:
    """Makes an engine complete one request at a time: the smallest prompts first, whenever they came."""

    def __init__(self):
        super().__init__()
        self.log, self.cancelled = [], 0

    def begin(self, rows):
        super().begin(rows)
        self.log += [("in", sum(row.request.prompt_ids)) for row in rows.values()]

    def advance(self):
        order = {ticket: sum(row.request.prompt_ids) for ticket, row in self.queued.items()}
        ticket = min(order, key=order.get)
        rest = {other: self.queued.pop(other) for other in list(self.queued) if other != ticket}
        outcome = dict(super().advance())
        while not outcome:  # it may take several steps
            outcome = dict(super().advance())
        self.queued.update(rest)
        self.log.append(("out", order[ticket]))
        return outcome.items()

    def cancel(self, tickets):
        super().cancel(tickets)
        self.cancelled += 1


class StreamingEngine(Streaming, Engine):
    pass


class StreamingFake(Streaming, FakeEngine):
    pass


class Optimiser:
    def __init__(self):
        self.calls = []

    def propose(self, state):
        self.calls.append((tuple(state.U.shape), state.k, state.round, state.keys))
        return [float(row.sum()) for row in state.U]


class Context:
    grader = Grader()
    seed = 0
    limits = Limits()

    def __init__(self, engine=None):
        self.engine = engine or Engine()

    def of(self, problem):
        return self


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
