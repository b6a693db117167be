"""JSON as clients ask for it: ``response_format``, and a type of answer per request."""

import json

import pytest

pytest.importorskip("fastapi")
openai = pytest.importorskip("openai")

from soft_reasoning import SoftReasoner  # noqa: E402
from soft_reasoning.engine import base  # noqa: E402
from soft_reasoning.serve.service import RETRIES  # noqa: E402
from soft_reasoning.types import Completion  # noqa: E402
from tests.scripted import Engine  # noqa: E402
from tests.serve.serving import ask, served  # noqa: E402

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
FORMAT = {"type": "json_schema", "json_schema": {"name": "count", "schema": SCHEMA}}
ASKED = [{"role": "user", "content": "How many eggs are in a dozen?"}]
GOOD, OTHER, WORDS = 'Here it is:\n```json\n{"n": 12}\n```', '{"m": 12}', "A dozen."


class Writer(Engine):
    """Writes ``texts`` in turn."""

    context_length = 8192

    def __init__(self):
        super().__init__()
        self.texts, self.asked = [], []

    def prepare(self, request, ticket=-1):
        return base.Engine.prepare(self, request, ticket)  # a prompt may hold any token

    def completion(self, request):
        self.asked.append(self.tokenizer.decode(list(request.prompt_ids)))
        text = self.texts[(len(self.asked) - 1) % len(self.texts)]
        return Completion((1, 2), (-0.1, -0.1), text, "eos", len(request.prompt_ids))


@pytest.fixture
def engine():
    return Writer()


@pytest.fixture
def running(engine):
    prompt = {"inherits": ["any"], "layout": "completion"}
    with (
        SoftReasoner.from_pretrained("fake", prompt=prompt, engine=engine) as reasoner,
        served(reasoner) as running,
    ):
        yield running


@pytest.fixture
def client(running):
    with running.client() as client:
        yield client


def test_a_schema_is_asked_for_and_only_its_json_comes_back(client, engine):
    engine.texts = [GOOD]
    [choice] = ask(client, messages=ASKED, response_format=FORMAT).choices
    assert json.loads(choice.message.content) == {"n": 12}
    [prompt] = engine.asked
    assert json.dumps(SCHEMA) in prompt and ASKED[0]["content"] in prompt
    engine.texts = [OTHER]
    [choice] = ask(client, messages=ASKED, response_format={"type": "json_object"}).choices
    assert json.loads(choice.message.content) == {"m": 12}
    [choice] = ask(client, messages=ASKED, response_format={"type": "text"}).choices
    assert choice.message.content == OTHER


def test_what_does_not_fit_is_tried_again_and_then_refused(client, engine):
    engine.texts = [WORDS, OTHER, GOOD, WORDS, WORDS, WORDS]
    [choice] = ask(client, messages=ASKED, response_format=FORMAT).choices
    assert json.loads(choice.message.content) == {"n": 12} and len(engine.asked) == 1 + RETRIES
    engine.texts, engine.asked = [WORDS, GOOD], []
    reply = ask(client, messages=ASKED, response_format=FORMAT)
    assert reply.usage.completion_tokens == 2 * len(engine.asked) == 2 * (1 + RETRIES)
    engine.asked = []
    with pytest.raises(openai.UnprocessableEntityError, match="within max_completion_tokens"):
        ask(client, messages=ASKED, response_format=FORMAT, max_completion_tokens=2)
    assert len(engine.asked) == 1
    engine.texts = [WORDS]
    with pytest.raises(openai.UnprocessableEntityError, match="response_format: expected JSON"):
        ask(client, messages=ASKED, response_format=FORMAT)


def test_a_schema_that_is_none_is_refused(client, engine):
    engine.texts = [GOOD]
    for schema, message in (
        ({"type": "whole"}, "expected a valid JSON Schema"),
        ({"$ref": "http://127.0.0.1:9/x"}, "expected references to parts of the same JSON Schema"),
        ({"$ref": "#"}, "leads back to itself"),
    ):
        wrong = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        with pytest.raises(openai.BadRequestError, match=message):
            ask(client, messages=ASKED, response_format=wrong)
    assert not engine.asked


def test_a_stream_has_the_same_json(client, engine):
    engine.texts = [GOOD]
    parts = ask(client, messages=ASKED, response_format=FORMAT, stream=True)
    text = "".join(part.choices[0].delta.content or "" for part in parts if part.choices)
    assert json.loads(text) == {"n": 12}


def test_a_type_of_answer_per_request(client, engine):
    engine.texts = ["Answer: 3/4", "Answer: yes"]
    number = ask(client, messages=ASKED, extra={"answer_type": "number"})
    truth = ask(client, messages=ASKED, extra={"answer_type": "boolean"})
    answers = [reply.choices[0].soft_reasoning["answer"] for reply in (number, truth)]
    assert answers == ["3/4", "True"]
    with pytest.raises(openai.BadRequestError, match="answer_type: expected one of number"):
        ask(client, messages=ASKED, extra={"answer_type": "bool"})
