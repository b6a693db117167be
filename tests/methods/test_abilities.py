"""A method or a request that needs an ability which the engine lacks is refused in one line."""

from dataclasses import dataclass
from typing import Any

import pytest

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
    with pytest.raises(UserError, match="expected an engine with .*, got ScriptedEngine without") as error:
        solve(NEEDY[name], ScriptedEngine({}))
    assert "\n" not in str(error.value)


def test_a_request_is_refused_where_the_engine_lacks_the_ability():
    request = Request((5, 6), max_new_tokens=0, hidden_state=True)
    with pytest.raises(UserError, match="this request: expected an engine with HiddenStates, got Scripted"):
        ScriptedEngine({}).generate([request])
