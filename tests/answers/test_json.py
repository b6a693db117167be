"""JSON in a text, and the schemas that it has to fit."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

pytest.importorskip("jsonschema")

from soft_reasoning.answers import equal, extract  # noqa: E402
from soft_reasoning.answers.text import fits_schema, read_json  # noqa: E402
from soft_reasoning.serve.schema import check_schema  # noqa: E402
from soft_reasoning.types import UserError  # noqa: E402

DRAFT_4, DRAFT_7 = (f"http://json-schema.org/draft-0{n}/schema#" for n in (4, 7))
WITH_N = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


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


def test_keys_keep_their_order_where_a_client_gets_them_and_count_as_equal_in_any():
    text = '{"z": 1, "a": [2.50]}'
    reading = read_json(text, "{}")
    assert reading.answer == '{"z": 1, "a": [2.5]}' and extract(text, "json") == '{"a": [2.5], "z": 1}'
    assert equal(reading.answer, extract(text, "json"), "json")


@contextmanager
def listener():
    """A server and the paths that it was asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/secret", asked
        server.shutdown()


@pytest.mark.parametrize("name", ["$ref", "$dynamicRef"])
def test_no_reference_is_fetched(name):
    with listener() as (url, asked):
        schema = {"properties": {"n": {name: url}}}
        with pytest.raises(UserError, match="parts of the same JSON Schema, got 'http://127"):
            check_schema(schema)
        with pytest.raises(Exception, match="Unresolvable"):  # nor where a schema was not checked
            fits_schema('{"n": 1}', json.dumps(schema))
    assert not asked


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"$ref": "#/definitions/x"}, "parts of the same JSON Schema, got '#/definitions/x'"),
        ({"$ref": "#"}, "leads back to itself"),
        ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "leads back"),
        ({"title": "n", "$ref": "#/title"}, "'n' is not of type 'object', 'boolean'"),
        ({"x": {"type": 5}, "properties": {"n": {"$ref": "#/x"}}}, "5 is not valid"),
        ({"$schema": DRAFT_4, "$ref": 5}, "cannot be read"),
        ({"$id": "http://[", "$ref": "#"}, "cannot be read"),
    ],
)
def test_a_schema_must_hold_what_it_refers_to_and_end(schema, message):
    with pytest.raises(UserError, match=message) as refused:
        check_schema(schema)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"next": {"$ref": "#"}}},
        {"$ref": "#/$defs/list", "$defs": {"list": {"additionalProperties": {"$ref": "#/$defs/list"}}}},
        {"$schema": DRAFT_7, "definitions": {"x": {"type": "object"}}, "$ref": "#/definitions/x"},
        {"$id": "https://a.b/c", "$defs": {"y": {"$id": "d", "type": "object"}}, "$ref": "d"},
        {"$ref": "https://json-schema.org/draft/2020-12/schema"},
        {"properties": {"$ref": {"type": "string"}}},
    ],
)
def test_references_within_a_schema_and_to_the_drafts_are_read(schema):
    assert fits_schema("{}", check_schema(schema))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ('{"n": 1}\n\nSee note [1].', '{"n": 1}'),
        ('{"n": 1} {"n": 2} {"n": "3"}', '{"n": 2}'),
        ('[1] {"m": 1}', None),
    ],
)
def test_the_last_value_that_fits_is_the_answer(text, answer):
    reading = read_json(text, json.dumps(WITH_N))
    assert (reading and reading.answer) == answer


def test_a_number_beyond_floats_does_not_fit():
    assert read_json(f'{{"n": 1{"0" * 400}}}', '{"properties": {"n": {"multipleOf": 0.1}}}') is None
