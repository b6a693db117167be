"""A language model written out by hand: what follows each text, with which probability."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace

import torch

from soft_reasoning.answers import Grader
from soft_reasoning.engine.fake import FakeEngine, FakeTokenizer
from soft_reasoning.judge.verifier import Verdict
from soft_reasoning.schedule.method import Context
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import Problem, Prompt

TOKENIZER = FakeTokenizer()
PROMPT = (5, 6)
PROBLEM = Problem("p", "How many?", "7")
END = "</s>"


def token(text: str) -> int:
    """The one token that ``text`` is."""
    if text == END:
        return TOKENIZER.eos_token_id
    [token_id] = TOKENIZER.encode(text, add_special_tokens=False)
    return token_id


class ScriptedEngine(FakeEngine):
    """``script``: text after the prompt -> {next token: probability}; a text that it lacks ends. Keeps the
    ``requests`` for text."""

    def __init__(self, script: Mapping[str, Mapping[str, float]]) -> None:
        super().__init__()
        self.requests = []
        self._script = script

    def logits(self, ids):
        logits = torch.full((TOKENIZER.vocab_size,), -math.inf)
        for text, probability in self._script.get(TOKENIZER.decode(ids[len(PROMPT) :]), {END: 1.0}).items():
            logits[token(text)] = math.log(probability)
        return logits

    def add(self, requests):
        self.requests += [request for request in requests if request.max_new_tokens]
        return super().add(requests)


def task(kind, problem, partial):
    """A prompt of the kind and the partial solution."""
    assert problem.gold is None
    return Prompt((*PROMPT, *TOKENIZER.encode(f"{kind} {partial}", add_special_tokens=False)))


def judge(*scores):
    """A verifier that gives these scores and asks nothing."""

    def verify(problem, candidates, context, earlier):
        return Verdict(scores=scores, answers=("9",), texts=("9 it is",))

    return SimpleNamespace(name="judge", verify=verify)


def context_of(engine, solve=lambda problem: Prompt(PROMPT, stop=("Question:",))):
    prompts = SimpleNamespace(solve=solve, split=lambda text, problem: ("", text), task=task)
    prompts.of = lambda answer_type: prompts
    return Context(engine=engine, prompts=prompts, grader=Grader(), seed=0)


def solve(method, engine):
    """The method's result for PROBLEM."""
    [(_, result)] = drive([PROBLEM], method, context_of(engine))
    return result
