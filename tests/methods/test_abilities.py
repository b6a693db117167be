"""A method or a request that needs an ability which the engine lacks is rejected with a one-line error."""

from dataclasses import dataclass
from typing import Any

import pytest

from soft_reasoning.engines.abilities import (
    AdjustsLogits,
    FeedsEmbeddings,
    HiddenStates,
    LMHead,
    SoftTokenGradients,
    check_abilities,
)
from soft_reasoning.engines.fake import FakeEngine
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.methods.since.slot import Slot
from soft_reasoning.types import Request, UserError
from tests.methods.scripted import ScriptedEngine, solve
from tests.methods.test_gradients import METHODS


@dataclass(frozen=True)
class Holder:
    """A method with a part that needs the ability."""

    part: Any
    name: str = "holder"


NEEDY = {name: method for name, method in METHODS.items() if name != "ltpo"}
NEEDY["a part"] = Holder(Slot())


@pytest.mark.parametrize("name", NEEDY)
def test_a_method_is_refused_where_the_engine_lacks_the_ability(name):
    with pytest.raises(UserError, match="expected an engine with .*, got ScriptedEngine;") as error:
        solve(NEEDY[name], ScriptedEngine({}))
    assert "\n" not in str(error.value)


def test_a_request_is_refused_where_the_engine_lacks_the_ability():
    request = Request((5, 6), max_new_tokens=0, hidden_state=True)
    with pytest.raises(UserError, match="this request: expected an engine with HiddenStates, got Scripted"):
        ScriptedEngine({}).generate([request])


@dataclass(frozen=True)
class Needs:
    """A method that needs an ability."""

    needs: tuple[type, ...]
    name: str = "needs"


NOT_OFFERED = {
    "false": (AdjustsLogits, FakeEngine, {"adjusts_logits": False}),
    "none": (AdjustsLogits, FakeEngine, {"adjusts_logits": None}),
    "zero": (AdjustsLogits, FakeEngine, {"adjusts_logits": 0}),
    "false for embeddings": (FeedsEmbeddings, FakeEngine, {"feeds_embeddings": False}),
    "none for embeddings": (FeedsEmbeddings, FakeEngine, {"feeds_embeddings": None}),
    "a property": (FeedsEmbeddings, FakeEngine, {"feeds_embeddings": property(lambda self: False)}),
    "no method for states": (HiddenStates, HuggingFaceEngine, {"hidden_states": None}),
    "no head": (LMHead, HuggingFaceEngine, {"lm_head": None}),
    "no gradient of the head": (LMHead, HuggingFaceEngine, {"lm_head_gradient": None}),
    "no gradients": (SoftTokenGradients, HuggingFaceEngine, {"soft_gradient": None}),
    "false for a model": (AdjustsLogits, HuggingFaceEngine, {"adjusts_logits": False}),
    "false for a model's embeddings": (FeedsEmbeddings, HuggingFaceEngine, {"feeds_embeddings": False}),
}


@pytest.mark.parametrize("name", NOT_OFFERED)
def test_an_engine_may_say_that_it_lacks_an_ability(name):
    ability, base, lacks = NOT_OFFERED[name]
    engine = object.__new__(type("Lacking", (base,), lacks))
    with pytest.raises(UserError, match=f"an engine with {ability.__name__}, got Lacking;"):
        check_abilities(Needs((ability,)), engine)
    check_abilities(Needs((ability,)), object.__new__(base))


def test_a_request_is_refused_too_where_the_engine_says_so():
    class Plain(FakeEngine):
        adjusts_logits = feeds_embeddings = False

    engine = Plain()
    for asked in ({"adjust": lambda ids, logits: logits}, {"feed": lambda logits: engine.embed([5])[0]}):
        with pytest.raises(UserError, match="this request: expected an engine with"):
            engine.generate([Request((5, 6), max_new_tokens=2, **asked)])
