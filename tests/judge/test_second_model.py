"""Another model as the judge, in the same process: the fake engine writes and the bundled model judges."""

from dataclasses import replace

import pytest

from soft_reasoning import SoftReasoner
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import SecondModels, build_context, build_engine, build_method
from soft_reasoning.configuration.parts import Setting
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import Problem

PROBLEMS = [
    Problem(str(i), f"Jon has {i} stones. A friend gives Jon 11 stones. How many?", "3") for i in (3, 4)
]


MODELS = SecondModels()


def solved(*words):
    config = compose_config(["engine=fake", "method=best_of_n", "k=2", "max_new_tokens=30", *words])
    context = build_context(config, build_engine(config), models=MODELS)
    return context, {p.id: r for p, r in drive(PROBLEMS, build_method(config), context)}


def test_the_bundled_model_judges_what_another_wrote():
    context, results = solved("verifier=single_judge", "verifier.model=demo")
    judge = context.judges["demo"]
    assert judge.engine is not context.engine and judge.engine.context_length != context.engine.context_length
    for result in results.values():
        verdict = result.trace[0]["verifier"]
        assert verdict["texts"] and all(text.startswith("Correct:") for text in verdict["texts"])
        assert all(prompt.endswith("Judge:\n") for prompt in verdict["prompts"])
        assert result.usage["verifier"].generated_tokens > 0
    again, _ = solved("verifier=single_judge", "verifier.model=demo")
    assert again.judges["demo"].engine is judge.engine, "loaded once"


@pytest.mark.slow
def test_the_seed_of_a_call_is_its_seed():
    fresh = Setting().build("verifier", "fresh")
    verifier = replace(fresh, temperature=1.5, samples=2, model="demo")
    options = {"verifier": verifier, "k": 2, "rounds": 0, "max_new_tokens": 20, "seed": 1}
    with SoftReasoner.from_pretrained("demo", **options) as reasoner:
        first, other, again = (reasoner.solve(PROBLEMS[0].question, seed=seed) for seed in (1, 2, 1))
    texts = [solution.trace[0]["verifier"]["texts"] for solution in (first, other, again)]
    assert texts[0] == texts[2] != texts[1]


def test_a_budget_binds_it():
    _, results = solved("verifier=single_judge", "verifier.model=demo", "max_tokens=20")
    for result in results.values():
        assert sum(usage.generated_tokens for usage in result.usage.values()) <= 20
