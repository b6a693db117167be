"""Every method under the contract suite, on the fake engine."""

import pytest

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_method
from soft_reasoning.configuration.registry import METHODS
from tests.contracts import method as contract

CHECKS = (
    contract.has_a_name_and_solves_every_problem,
    contract.a_problem_alone_gets_the_result_that_it_gets_among_others,
    contract.the_reference_answer_is_not_read,
    contract.it_keeps_within_its_budget,
)
POINT = "soft_token"
"""It needs a point, and is tested with one in tests/task."""
LONG = ("rap", "best_of_n", "adaptive_consistency", "random_embedding", "mixed_consistency")


@pytest.fixture(scope="module")
def context():
    return contract.fake_context()


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    "name", [pytest.param(m, marks=pytest.mark.slow) if m in LONG else m for m in METHODS if m != POINT]
)
def test_contract(name, check, context):
    config = compose_config(["engine=fake", "prompt=math", f"method={name}", "max_new_tokens=30"])
    check(build_method(config), context)
