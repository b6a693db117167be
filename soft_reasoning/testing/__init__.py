"""Contract suites for pytest: what every part of a kind must do."""

import pytest

SUITES = ("acquisition", "embedding", "engine", "method", "surrogate", "verifier")

pytest.register_assert_rewrite(*(f"{__name__}.{suite}" for suite in SUITES))
