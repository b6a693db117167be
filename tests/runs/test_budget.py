"""How many samples an equal budget allows, from hand-made metrics."""

import pytest

from soft_reasoning.runs.metrics import equal_samples


def metrics(problems=10, **roles):
    """``roles``: (generated tokens, sequences) of a problem."""
    totals = [sum(values) for values in zip(*roles.values(), strict=True)]
    tokens = {
        role: {"generated": problems * generated, "sequences": problems * sequences}
        for role, (generated, sequences) in {**roles, "total": totals}.items()
    }
    return {"problems": problems, "tokens": tokens}


REFERENCE = metrics(20, candidate=(500, 10), verifier=(150, 2))


@pytest.mark.parametrize(
    ("roles", "samples"),
    [
        ({"candidate": (250, 5)}, 13),  # 650 / 50
        ({"candidate": (260, 5)}, 12),  # 12.5, and an even number is the nearer one
        ({"candidate": (250, 5), "verifier": (75, 1)}, 10),  # 650 / (50 + 15)
        ({"candidate": (9000, 5)}, 1),
    ],
)
def test_tokens_over_what_another_sample_costs(roles, samples):
    assert equal_samples(metrics(**roles), 5, REFERENCE) == samples
