"""Contract suites for pytest: what every part of a kind must do."""

from pkgutil import iter_modules

import pytest

pytest.register_assert_rewrite(*(f"{__name__}.{suite.name}" for suite in iter_modules(__path__)))
