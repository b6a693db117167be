"""Invariants 1 and 2 on the bundled model: what a problem gets does not depend on its neighbours."""

import random

import pytest
import torch

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_context, build_engine, build_method
from soft_reasoning.lab.data.demo import demo_dataset
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import Request


@pytest.fixture(
    scope="module", params=[1, pytest.param(2, marks=pytest.mark.slow)], ids=["one_thread", "two_threads"]
)
def engine(request):
    before = torch.get_num_threads()
    yield build_engine(compose_config([f"engine.threads={request.param}"]))
    torch.set_num_threads(before)


def solve(engine, problems, max_live, *overrides):
    config = compose_config(["rounds=2", *overrides])
    method, context = build_method(config), build_context(config, engine)
    return {p.id: r for p, r in drive(problems, method, context, max_live=max_live)}


def same(result, other):
    """Byte-identical answers, texts, points, rewards and verdicts."""
    assert result.answer == other.answer
    assert result.candidates == other.candidates
    assert [t["verifier"] for t in result.trace] == [t["verifier"] for t in other.trace]


@pytest.mark.slow
@pytest.mark.parametrize("embedding", ["gaussian", "token_simplex"])
def test_a_problem_gets_the_same_alone_in_a_batch_and_shuffled(engine, embedding):
    problems = demo_dataset("validation", name="demo", limit=16).problems()
    batch = solve(engine, problems, 64, f"embedding={embedding}")
    shuffled = list(problems)
    random.Random(0).shuffle(shuffled)
    for name, result in solve(engine, shuffled, 7, f"embedding={embedding}").items():
        same(batch[name], result)
    for problem in problems[::13]:
        same(batch[problem.id], solve(engine, [problem], 1, f"embedding={embedding}")[problem.id])


def test_without_noise_every_candidate_is_the_greedy_continuation(engine):
    problems = demo_dataset("validation", name="demo", limit=10).problems()
    context = build_context(compose_config(), engine)
    results = solve(
        engine, problems, 20, "embedding=gaussian", "embedding.sigma=0", "decoding=greedy", "rounds=0"
    )
    for problem in problems:
        prompt = context.prompts.solve(problem)
        [greedy] = engine.generate([Request(prompt.ids, max_new_tokens=301, stop=context.prompts.stop)])
        rest = engine.tokenizer.decode(list(greedy.token_ids[1:]), skip_special_tokens=True)
        assert {c.text for c in results[problem.id].candidates} == {rest}
