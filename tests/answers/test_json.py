"""JSON in a text."""

import pytest

from soft_reasoning.answers import equal, extract


@pytest.mark.parametrize(
    ("text", "answer"),
    {
        '{"s": "\\ud83d\\ude00"}': '{"s": "\U0001f600"}',
        '{"a": 1} {"s": "\\ud83d"}': '{"a": 1}',  # half of a surrogate pair is no character
        '{"\\ud83d": 1}': None,
        '{"a": 1} {"n": 1e999}': '{"a": 1}',  # JSON has no Infinity
        '{"n": [1e999]}': None,
    }.items(),
)
def test_what_json_is_read(text, answer):
    assert extract(text, "json") == answer


@pytest.mark.parametrize(
    ("a", "b", "tolerance", "same"),
    [
        ("9007199254740992", "9007199254740993", 0, False),  # which are one float
        ("1e400", "1e401", 1e-6, False),
        ("1" + "0" * 400, "1" + "0" * 401, 1e-6, False),
        ("1e999999999", "1e999999998", 1e-6, False),
        ("1e400", "10.0e399", 0, True),
        ("1", "1.0", 0, True),
        ("true", "1", 1, False),
    ],
)
def test_numbers_in_json_are_exact(a, b, tolerance, same):
    a, b = f'{{"n": [{a}]}}', f'{{"n":[{b}]}}'
    assert equal(a, b, "json", absolute=0, relative=tolerance) is same
