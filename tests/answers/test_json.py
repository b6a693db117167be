"""JSON in a text."""

import pytest

from soft_reasoning.answers import extract


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
