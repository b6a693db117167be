"""Graders as a choice of the configuration."""

import pytest

from soft_reasoning.answers import ANSWER_TYPES, MODES, Grader, LmEvalGrader, MathVerifyGrader
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine, check_problems
from soft_reasoning.configuration.parts import make
from soft_reasoning.judge.released import ReleasedGrader
from soft_reasoning.types import Problem, UserError


@pytest.mark.parametrize(
    ("choice", "grader", "name"),
    [
        ("default", Grader(), "flexible"),
        ("lm_eval_strict", LmEvalGrader("strict-match"), "lm_eval_strict"),
        ("lm_eval_flexible", LmEvalGrader("flexible-extract"), "lm_eval_flexible"),
        ("math_verify", MathVerifyGrader(), "math_verify"),
        ("released", ReleasedGrader(absolute=0.01, relative=0.0), "released"),
    ],
)
def test_every_choice_is_its_grader(choice, grader, name):
    made = make(compose_config([f"grader={choice}"])["grader"])
    assert made == grader and made.name == name


def test_the_default_is_ours_and_the_preset_released_chooses_its_own():
    assert make(compose_config([])["grader"]) == Grader()
    assert make(compose_config(["preset=released"])["grader"]).name == "released"
    assert make(compose_config(["preset=released", "grader=default"])["grader"]) == Grader()
    assert [Grader(extraction=mode).name for mode in MODES] == [*MODES]
    assert all(Grader().supports(kind) for kind in ANSWER_TYPES)


def test_answers_that_a_grader_cannot_read_are_refused_before_any_model_work():
    config = compose_config(["engine=fake", "grader=lm_eval_strict"])
    context = build_context(config, build_engine(config))
    check_problems([Problem("p", "How many?", "3")], context)
    with pytest.raises(UserError, match="grader for answers of type boolean, got lm_eval_strict; use"):
        check_problems([Problem("p", "Is it?", "True", "boolean")], context)
