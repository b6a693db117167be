"""What a method gives a problem does not depend on the other problems."""

import pytest

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_method
from soft_reasoning.engine.fake import FakeTokenizer
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import Problem
from tests.engine.models import tiny

PROBLEMS = [Problem(f"p{i}", f"What is {i} and {'one more and ' * i}3?", str(i)) for i in range(5)]
METHODS = {
    "fire": (),
    "cot_decoding": (),
    "cot_decoding_original": (),
    "best_of_n": (),
    "random_soft_prompts": (),
    "several_temperatures": (),
    "adaptive_consistency": ("method.stopping.rounds=5",),
    "early_stopping_consistency": ("k=2",),
    "verifier_only": (),
    "rap": ("method.iterations=3",),
    "prefix_scorer": ("method.block_tokens=4",),
    "verified_sampling": ("stopping=none", "rounds=2"),
    "soft_reasoning sampled": ("decoding=sampled", "stopping=none", "rounds=2"),
    "soft_reasoning": ("stopping=none", "rounds=2"),
}


@pytest.fixture(scope="module")
def engine():
    return HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())


@pytest.mark.parametrize(
    "name",
    [pytest.param(m, marks=pytest.mark.slow) if m == "rap" else m for m in METHODS],
)
def test_a_problem_gets_the_same_alone_in_a_batch_and_shuffled(engine, name):
    config = compose_config([f"method={name.split()[0]}", "max_new_tokens=12", *METHODS[name]])
    method, context = build_method(config), build_context(config, engine)

    def solve(problems, max_live):
        results = drive(problems, method, context, max_live=max_live)
        return {p.id: (r.answer, r.candidates, r.trace) for p, r in results}

    together = solve(PROBLEMS, 64)
    assert solve(PROBLEMS[::-1], 3) == together
    assert solve(PROBLEMS[:2], 1) == {p.id: together[p.id] for p in PROBLEMS[:2]}
