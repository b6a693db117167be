"""A server of the bundled model that the tests of a file share."""

import pytest

from soft_reasoning import SoftReasoner


@pytest.fixture(scope="module")
def reasoner():
    with SoftReasoner.from_pretrained("demo", k=2, rounds=1, max_new_tokens=60) as reasoner:
        yield reasoner


@pytest.fixture(scope="module")
def running(reasoner):
    from tests.serve.serving import served  # needs the extra [serve]

    limits = {"max_body_bytes": 20_000, "max_tokens": 500, "max_n": 16, "max_k": 64, "max_rounds": 8}
    with served(reasoner, **limits) as running:
        yield running


@pytest.fixture(scope="module")
def client(running):
    with running.client() as client:
        yield client
