"""Stored settings are data: only what conf/ names is built from them."""

import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.configuration.stored import build_stored
from soft_reasoning.types import UserError

GRADER = "soft_reasoning.answers.Grader"


def test_what_the_package_ships_is_built():
    assert build_stored({"_target_": GRADER, "absolute": 0.5}, "here", "grader") == Grader(absolute=0.5)


@pytest.mark.parametrize(
    "settings",
    [
        {"_target_": "os.system", "command": "true"},
        {"_target_": GRADER, "absolute": {"_target_": "builtins.eval", "_args_": ["1"]}},
        {"_target_": GRADER, "absolute": [{"x": {"_target_": "soft_reasoning.configuration.stored.Path"}}]},
        {"_target_": GRADER, "absolute": "${oc.env:HOME}"},
    ],
)
def test_nothing_else_is(settings):
    with pytest.raises(UserError, match="here: expected"):
        build_stored(settings, "here", "grader")
