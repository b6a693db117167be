"""Questions and a context on the fake engine, for the tests of a task."""

from soft_reasoning.answers import Grader
from soft_reasoning.engine.fake import FakeEngine
from soft_reasoning.prompts import Prompts, Wording
from soft_reasoning.schedule.method import Context
from soft_reasoning.types import Problem

PROBLEMS = [Problem(f"p{i}", f"What is {i} and {i + 3}?", str(i % 4)) for i in range(24)]


def fake_context(ask: str = "{question}\n") -> Context:
    engine = FakeEngine()
    return Context(engine, Prompts(engine.tokenizer, Wording(ask=ask)), Grader(), seed=0)
