"""A method or a request that needs an ability which the engine lacks is refused in one line."""

from dataclasses import dataclass
from typing import ClassVar

import pytest

from soft_reasoning.engines.abilities import HiddenStates
from soft_reasoning.scheduling.scheduler import drive
from soft_reasoning.types import Problem, Request, UserError
from tests.methods.scripted import ScriptedEngine, context_of


@dataclass(frozen=True)
class Reading:
    name: str = "reading"
    needs: ClassVar = (HiddenStates,)

    def solve(self, problem, context):
        raise AssertionError("it does not begin")
        yield


@dataclass(frozen=True)
class Holder:
    """A method with a part that needs the ability."""

    part: Reading
    name: str = "holder"


@pytest.mark.parametrize("method", [Reading(), Holder(Reading())])
def test_a_method_is_refused_where_the_engine_lacks_the_ability(method):
    with pytest.raises(UserError, match="Reading: expected an engine with HiddenStates") as error:
        list(drive([Problem("p", "?")], method, context_of(ScriptedEngine({}))))
    assert "\n" not in str(error.value) and "got ScriptedEngine without" in str(error.value)


def test_a_request_is_refused_where_the_engine_lacks_the_ability():
    request = Request((5, 6), max_new_tokens=0, hidden_state=True)
    with pytest.raises(UserError, match="this request: expected an engine with HiddenStates, got Scripted"):
        ScriptedEngine({}).generate([request])
