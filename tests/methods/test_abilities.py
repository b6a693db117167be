"""A method that needs an ability of its engine, as a newcomer adds one: this file is all there is to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from soft_reasoning.effects import answers
from soft_reasoning.engines.abilities import LastHiddenStates
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.scheduler import drive
from soft_reasoning.types import Effect, Problem, Prompt, Result, Usage, UserError
from tests.engines.models import tiny
from tests.methods.scripted import ScriptedEngine, context_of


@dataclass(frozen=True)
class ReadStates(Effect):
    prompts: Sequence[Prompt]


@answers(ReadStates)
def read_states(asked, engine):
    states = engine.last_hidden_states([prompt for one in asked for prompt in one.effect.prompts])
    for one in asked:
        for prompt in one.effect.prompts:
            one.count("state", Usage.of(len(prompt.ids)))
    return states.split([len(one.effect.prompts) for one in asked])


@dataclass(frozen=True)
class NearestDigit:
    """Answers with the digit whose embedding the prompt's last hidden state is most like."""

    name: str = "nearest_digit"
    needs: ClassVar = (LastHiddenStates,)

    def solve(self, problem, context):
        engine = context.engine
        [state] = yield ReadStates([Prompt(tuple(engine.tokenizer.encode(problem.question)))])
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
    prompt = Prompt(tuple(engine.tokenizer.encode(problems[0].question)))
    digits = engine.embed([engine.tokenizer.encode(str(i), add_special_tokens=False)[0] for i in range(10)])
    assert together["0"].answer == str(int((digits @ engine.last_hidden_states([prompt])[0]).argmax()))


@pytest.mark.parametrize("method", [NearestDigit(), Holder(NearestDigit())])
def test_it_is_refused_in_one_line_where_the_engine_lacks_the_ability(method):
    with pytest.raises(UserError, match="NearestDigit: expected an engine with LastHiddenStates") as error:
        list(drive([Problem("p", "?")], method, context_of(ScriptedEngine({}))))
    assert "\n" not in str(error.value) and "got ScriptedEngine without" in str(error.value)


def test_the_lm_head_of_the_last_states_gives_the_next_tokens_logits(engine):
    prompts = [Prompt(tuple(range(5, 5 + n))) for n in (3, 20, 40)]
    states = engine.last_hidden_states(prompts)
    logits, _ = engine.next_token_logits(prompts)
    assert states.shape == (3, engine.hidden_size) and engine.last_hidden_states([]).shape == (0, 64)
    assert torch.allclose(engine.lm_head(states), logits, atol=1e-4)
