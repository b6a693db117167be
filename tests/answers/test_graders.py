"""Graders as a choice of the configuration."""

import pytest

from soft_reasoning.answers import Grader
from soft_reasoning.configuration.build import build_grader
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.rewards.released import ReleasedGrader


@pytest.mark.parametrize(
    ("overrides", "grader"),
    [
        ([], Grader()),
        (["grader=released"], ReleasedGrader()),
        (["preset=released"], ReleasedGrader()),
        (["preset=released", "grader=default"], Grader()),
        (["grader.extraction=strict"], Grader(extraction="strict")),
    ],
)
def test_every_choice_is_its_grader(overrides, grader):
    assert build_grader(compose_config(overrides)) == grader
