"""Sampled completions behind soft tokens, and rounds of samples without one."""

import pytest

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine, build_method
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import Problem, Request, Sampling

PROBLEMS = [Problem(f"p{i}", f"What is {i} and {i + 3}?", str(2 * i + 3)) for i in range(5)]
ROUNDS = ("rounds=1", "stopping=none", "k=3")


@pytest.fixture(scope="module")
def engine():
    return build_engine(compose_config(["engine=fake"]))


def solve(engine, *overrides):
    config = compose_config(["max_new_tokens=30", *overrides])
    method, context = build_method(config), build_context(config, engine)
    return {p.id: r for p, r in drive(PROBLEMS, method, context)}


def texts(result):
    return [c.text for c in result.candidates]


@pytest.mark.parametrize("method", ["soft_reasoning", "random_embedding"])
def test_without_noise_candidates_are_samples_behind_the_anchor(engine, method):
    results = solve(
        engine, f"method={method}", "embedding=gaussian", "embedding.sigma=0", "temperature=0.8", *ROUNDS
    )
    context = build_context(compose_config(), engine)
    differ = 0
    for problem in PROBLEMS:
        prompt = context.prompts.solve(problem)
        [greedy] = engine.generate([Request(prompt.ids, max_new_tokens=1)])
        requests = [
            Request(
                (*prompt.ids, *greedy.token_ids),
                sampling=Sampling(0.8, top_k=50),
                max_new_tokens=30,
                stop=context.prompts.stop,
                seed=context.stream(problem.id, "sample", i),
            )
            for i in range(6)
        ]
        assert texts(results[problem.id]) == [c.text for c in engine.generate(requests)]
        differ += len(set(texts(results[problem.id]))) > 1
    assert differ, "samples are not all alike"


def test_verified_sampling_draws_the_samples_of_self_consistency(engine):
    ours = solve(engine, "method=verified_sampling", "temperature=0.8", *ROUNDS)
    theirs = solve(engine, "method=self_consistency", "k=6")
    for name, result in ours.items():
        assert texts(result) == texts(theirs[name])
        assert [c.round for c in result.candidates] == [0, 0, 0, 1, 1, 1]
        assert all(c.u is None and c.reward is not None for c in result.candidates)
        assert [entry["round"] for entry in result.trace] == [0, 1]
        assert result.trace[-1]["ended"] == "rounds"
        usage = result.usage
        judged = {c.text for c in result.candidates if c.answer is not None}  # equal texts once
        assert usage["candidate"].sequences == 6 and usage["verifier"].sequences == len(judged)
        assert usage["candidate"].generated_tokens == sum(c.generated_tokens for c in result.candidates)
