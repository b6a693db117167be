"""A model that programs: texts for questions, programs for questions that ask for a program."""

from soft_reasoning.answers import Grader
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_method, build_prompts
from soft_reasoning.engine import base
from soft_reasoning.schedule.method import Context
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import GREEDY, Completion, Problem
from tests.scripted import Engine

PROBLEM = Problem("p", "Ann has 7 pens and buys 2 bags of 4. How many?", "15")
RIGHT, WRONG = "    return 7 + 2 * 4", "    return 7 + 4"
BROKEN, NOTHING = "    return 7 / 0", "    total = 7"
MARK = "solution()"


class Programmer(Engine):
    """Writes ``programs`` in turn, the bodies of solution(), and texts that end with ``answers`` in turn."""

    context_length = 8192

    def __init__(self, programs=(RIGHT,), answers=("15",)):
        super().__init__()
        self.programs, self.answers, self.asked, self.texts = programs, answers, [], []

    def prepare(self, request, ticket=-1):
        return base.Engine.prepare(self, request, ticket)  # a prompt may hold any token

    def completion(self, request):
        prompt = self.tokenizer.decode(list(request.prompt_ids))
        asked = self.asked if MARK in prompt else self.texts
        turn = len(asked)
        asked.append(request)
        program = self.programs[turn % len(self.programs)]
        text = (
            program
            if asked is self.asked
            else f"So {self.answers[turn % len(self.answers)]}. Answer: "
            + (self.answers[turn % len(self.answers)])
        )
        return Completion((1, 2), (-0.1, -0.1), text, "eos", len(request.prompt_ids))

    @property
    def greedy(self):
        """Whether each program was greedy, in the order of the requests."""
        return [request.sampling == GREEDY for request in self.asked]


def world(engine, *overrides):
    """(method, context) with the wording of word problems."""
    config = compose_config(["engine=fake", "prompt=math", "prompt.layout=completion", *overrides])
    prompts = build_prompts({**config.prompt, "answer_type": None}, engine)  # one for every type of answer
    return build_method(config), Context(engine, prompts, Grader(), config.seed)


def solved(engine, *overrides, problem=PROBLEM):
    """The method's result for ``problem``."""
    method, context = world(engine, *overrides)
    [(_, result)] = drive([problem], method, context)
    return result
