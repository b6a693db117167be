"""A method that needs an ability of its engine, as a newcomer adds one: this file is all there is to it."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from soft_reasoning.engines.abilities import HiddenStates
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.scheduling.effects import answers
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.types import Effect, Problem, Prompt, Request, Result, Usage, UserError
from tests.engines.models import tiny
from tests.methods.scripted import ScriptedEngine, context_of


@dataclass(frozen=True)
class ReadState(Effect):
    prompt: Prompt


@answers(ReadState)
def read_states(jobs, engine):
    for job in jobs:
        job.count("state", Usage.of(len(job.effect.prompt.ids)))
    return [engine.hidden_states([Request(job.effect.prompt.ids)])[0][-1] for job in jobs]


@dataclass(frozen=True)
class NearestDigit:
    """Answers with the digit whose embedding the prompt's last hidden state is most like."""

    name: str = "nearest_digit"
    needs: ClassVar = (HiddenStates,)

    def solve(self, problem, context):
        engine = context.engine
        state = yield ReadState(Prompt(tuple(engine.tokenizer.encode(problem.question))))
        digits = [engine.tokenizer.encode(str(i), add_special_tokens=False)[0] for i in range(10)]
        return Result(str(int((engine.embed(digits) @ state).argmax())), ())


@dataclass(frozen=True)
class Holder:
    """A method with a part that needs the ability."""

    part: NearestDigit
    name: str = "holder"


@pytest.fixture(scope="module")
def engine():
    return HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())


def test_it_runs_on_an_engine_that_has_the_ability_alone_and_in_batches(engine):
    problems = [Problem(str(i), f"How many are {i} and {7 * i}?") for i in range(5)]
    together = {p.id: r for p, r in drive(problems, NearestDigit(), context_of(engine))}
    alone = {p.id: r for p, r in drive(problems, NearestDigit(), context_of(engine), max_live=1)}
    assert together == alone and all(r.usage["state"].sequences == 1 for r in together.values())
    prompt = tuple(engine.tokenizer.encode(problems[0].question))
    [read] = engine.generate([Request(prompt, max_new_tokens=0, hidden_state=True)])
    digits = engine.embed([engine.tokenizer.encode(str(i), add_special_tokens=False)[0] for i in range(10)])
    assert together["0"].answer == str(int((digits @ read.hidden_state).argmax()))


@pytest.mark.parametrize("method", [NearestDigit(), Holder(NearestDigit())])
def test_it_is_refused_in_one_line_where_the_engine_lacks_the_ability(method):
    with pytest.raises(UserError, match="NearestDigit: expected an engine with HiddenStates") as error:
        list(drive([Problem("p", "?")], method, context_of(ScriptedEngine({}))))
    assert "\n" not in str(error.value) and "got ScriptedEngine without" in str(error.value)


def test_a_request_for_what_the_engine_lacks_is_refused_in_one_line():
    request = Request((5, 6), max_new_tokens=0, hidden_state=True)
    with pytest.raises(UserError, match="this request: expected an engine with HiddenStates, got Scripted"):
        ScriptedEngine({}).generate([request])
