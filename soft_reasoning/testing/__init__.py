"""Contract suites for pytest: what every engine, embedding, surrogate and acquisition function must do."""

import pytest

SUITES = ("acquisition", "embedding", "engine", "surrogate")

pytest.register_assert_rewrite(*(f"{__name__}.{suite}" for suite in SUITES))
