"""Texts that fit a JSON Schema, on a random model, whose texts fit nothing by themselves."""

import json

import pytest
import torch

from soft_reasoning.engine.fake import FakeEngine
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.types import Prompt, Request, Sampling
from tests.chat_templates import tokenizer_of
from tests.engine.models import refusal, tiny, tiny_engine

pytest.importorskip("llguidance")
jsonschema = pytest.importorskip("jsonschema")

BIT = {"enum": [0, 1]}
SCHEMAS = {
    "scalars": {"enum": ["yes", "no", None, 7]},
    "nested": {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": BIT}, "required": ["b"]}, "c": BIT},
        "required": ["a", "c"],
        "additionalProperties": False,
    },
    "$ref": {"$ref": "#/$defs/bits", "$defs": {"bits": {"type": "array", "items": BIT, "maxItems": 3}}},
    "anyOf": {"anyOf": [{"type": "integer", "minimum": 10, "maximum": 99}, {"type": "boolean"}]},
    "pattern": {"type": "string", "pattern": "^[a-c]{3}-[0-9]$"},
    "Unicode": {"enum": ["ä€😀", "日本"]},
}
SCHEMAS["nested"]["properties"]["a"]["additionalProperties"] = False


@pytest.fixture(scope="module")
def engine():
    tokenizer = tokenizer_of("qwen3")
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    return HuggingFaceEngine.from_loaded(
        tiny("qwen3", vocab_size=len(tokenizer), eos_token_id=end), tokenizer
    )


def asked(engine, schema, **options):
    prompt = Prompt(tuple(engine.tokenizer.encode("Say it. ")), schema=json.dumps(schema))
    return prompt.request(**{"max_new_tokens": 500, **options})


def test_every_text_fits_alone_and_in_a_batch_and_disturbs_no_other(engine):
    plain = [Request(tuple(engine.tokenizer.encode(text)), max_new_tokens=9) for text in ("Why?", "Say it. ")]
    expected = engine.generate(plain)
    drawn = [Sampling(), Sampling(1.0), Sampling(1.5, top_k=20)]
    guided = [
        (schema, asked(engine, schema, sampling=s, seed=3)) for schema in SCHEMAS.values() for s in drawn
    ]
    together = engine.generate([*plain, *(request for _, request in guided)])
    assert together[:2] == expected
    for (schema, request), run in zip(guided, together[2:], strict=True):
        jsonschema.validate(json.loads(run.text), schema)
        assert run.finish_reason == "eos" and engine.generate([request])[0] == run
    assert len({run.text for run in together}) > len(SCHEMAS)


def test_a_text_that_a_limit_cuts_is_a_beginning(engine):
    [run] = engine.generate([asked(engine, SCHEMAS["nested"], max_new_tokens=7)])
    assert run.finish_reason == "length" and run.text.lstrip().startswith("{")


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "strin"}, "strin"),
        ({"$ref": "https://else.where/schema"}, "else.where"),
        ({"type": "string", "pattern": "a{99999999999}"}, "9999"),
        ({"not": {"type": "string"}}, "not"),
        ({"enum": []}, "Unsatisfiable"),
    ],
)
def test_a_schema_that_cannot_be_compiled_is_one_line(engine, schema, words):
    message = refusal(engine.generate, [asked(engine, schema)])
    assert (
        message.startswith("schema: expected a JSON Schema that llguidance can compile") and words in message
    )
    assert not engine.queued


def test_what_no_schema_fits_is_refused(engine):
    for options in (
        {"soft": torch.zeros(1, engine.hidden_size)},
        {"thinks": True},
        {"min_new_tokens": 2},
        {"top_logprobs": 1},
        {"sampling": Sampling(first_temperature=9.0)},
        {"schema_from": 2},
    ):
        message = refusal(engine.generate, [asked(engine, SCHEMAS["scalars"], **options)])
        assert message.startswith("schema: expected a method that writes its texts as a whole")


def test_a_tokenizer_or_an_engine_without_schemas_is_refused():
    for other, words in (
        (tiny_engine(), "schema: expected llguidance"),
        (FakeEngine(), "JSON Schema, got Fake"),
    ):
        assert words in refusal(other.generate, [asked(other, SCHEMAS["scalars"])])
