"""Any value of any option is taken or rejected with a one-line error."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from soft_reasoning.cli.compose import check_config, compose_config
from soft_reasoning.cli.errors import one_line
from soft_reasoning.configuration.context import build_method
from soft_reasoning.configuration.parts import make
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.lab.runs.manifest import flatten

METHODS = ("soft_reasoning", "best_of_n", "self_consistency", "cot_decoding", "fire", "rap", "prefix_scorer")
VALUES = st.one_of(
    st.sampled_from(
        [
            None,
            True,
            "",
            "${seed}",
            [1],
            {"a": 1},
            0,
            2**63,
            10**400,
            5e-324,
            float("inf"),
            float("nan"),
        ]
    ),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
)
PARTS = ("dataset.", "grader.", "method.")
TOP = ("seed", "limit", "max_new_tokens", "max_live", "fresh", "progress", "budget", "methods")


@pytest.mark.parametrize("method", METHODS)
def test_any_value_is_taken_or_refused_in_one_line(method):
    plain = compose_config([f"method={method}"])
    keys = [key for key in flatten(OmegaConf.to_container(plain)) if key.startswith(PARTS) or key in TOP]

    @settings(max_examples=40)
    @given(key=st.sampled_from([key for key in keys if "_target_" not in key]), value=VALUES)
    def put(key, value):
        try:
            config = plain.copy()
            OmegaConf.update(config, key, value, merge=False)
            check_config(config, [], {})
            build_method(config), make(config["grader"], "grader"), build_dataset(config)
        except Exception as error:
            if one_line(error) is None:
                raise
            assert len(one_line(error).splitlines()) == 1 and len(one_line(error)) < 600

    put()
