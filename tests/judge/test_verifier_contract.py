"""Every verifier under the contract suite, on the fake engine."""

import pytest

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_method
from soft_reasoning.configuration.registry import VERIFIERS
from tests.contracts import verifier as contract
from tests.contracts.method import fake_context

CHECKS = (
    contract.scores_lie_between_0_and_1,
    contract.candidates_without_an_answer_are_not_called_right,
    contract.a_problem_alone_gets_the_scores_that_it_gets_among_others,
    contract.the_reference_answer_is_not_read,
)


@pytest.fixture(scope="module")
def context():
    return fake_context()


CASES = [(name, check) for name in VERIFIERS for check in CHECKS if name != "probe"]
"""The probe reads hidden states, which the fake engine has not: it is in test_hidden_states.py."""
CASES.remove(("oracle", contract.the_reference_answer_is_not_read))  # for analysis: it reads nothing else


@pytest.mark.parametrize(("name", "check"), CASES, ids=lambda part: getattr(part, "__name__", part))
def test_contract(name, check, context):
    config = compose_config(["engine=fake", "prompt=math", f"verifier={name}", "max_new_tokens=30"])
    check(build_method(config).verifier, context)
