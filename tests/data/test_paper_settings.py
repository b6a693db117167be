"""The shipped exemplars in the prompts of the paper's benchmarks."""

import pytest

from soft_reasoning.configuration.build import build_context, build_dataset, build_engine
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.types import Problem

BENCHMARKS = ("gsm8k", "gsm_hard", "svamp", "strategyqa", "aime_2024")


@pytest.mark.parametrize("shots", [0, 1, 2, 4, 8])
def test_so_many_exemplars_stand_in_the_prompt(shots):
    for name in BENCHMARKS:
        config = compose_config([f"dataset={name}", "engine=fake", f"dataset.shots={shots}"])
        context = build_context(config, build_engine(config), build_dataset(config).exemplars())
        prompt = context.prompts.solve(Problem("p", "How many are left?"))
        text = context.engine.tokenizer.decode(prompt.ids)
        assert text.count("Question:") == shots + 1 and text.count("\nAnswer: ") == shots
        assert text.rindex("Question:") > text.rfind("\nAnswer: ")
