"""Messages that clients send: what the model cannot be shown is refused in OpenAI's form, never left out."""

import httpx
import pytest

pytest.importorskip("fastapi")
openai = pytest.importorskip("openai")

from soft_reasoning import SoftReasoner, UserError  # noqa: E402
from tests.chat_templates import tokenizer_of  # noqa: E402
from tests.engine.models import tiny  # noqa: E402
from tests.serve.serving import ask, served  # noqa: E402

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
USER = {"role": "user", "content": "How many?"}
ASKED = {"role": "assistant", "content": "Let me see."}
EFFECT = "expected a field that has an effect here"
REFUSED = {
    "a call": ([USER, {**ASKED, "tool_calls": [CALL]}, USER], "messages.1.tool_calls", EFFECT),
    "a tool's result": (
        [USER, {"role": "tool", "tool_call_id": "c1", "content": "5"}],
        "messages.1.role",
        "'assistant'",
    ),
    "no content": ([{"role": "user", "content": None}], "messages.0.content", "Field required"),
    "an image": ([{**USER, "content": [IMAGE]}], "messages.0.content.0.type", "'text', got 'image_url'"),
    "more beside a text": (
        [{**USER, "content": [{"type": "text", "text": "?", "image_url": {"url": "x"}}]}],
        "messages.0.content.0.image_url",
        EFFECT,
    ),
}


def refusal(create, **sent):
    with pytest.raises(openai.BadRequestError) as error:
        create(model="cot-demo", **sent)
    body = error.value.body
    assert body["type"] == "invalid_request_error" and "\n" not in body["message"]
    return body["message"], body["param"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_message_holds_besides_text_is_refused(client, name):
    messages, param, words = REFUSED[name]
    message, named = refusal(client.chat.completions.create, messages=messages)
    assert words in message and message.startswith(f"{param}: ") and named == param


def test_empty_fields_and_an_answer_sent_back_are_taken(client):
    empty = {"tool_calls": [], "function_call": None, "audio": None, "refusal": None, "annotations": []}
    sent_back = {**ASKED, **empty, "reasoning": "Round 1", "reasoning_content": "Round 1"}
    plain = ask(client, "cot-demo", [USER, ASKED, USER]).choices
    assert ask(client, "cot-demo", [USER, sent_back, {**USER, "name": "ann"}]).choices == plain
    cached = [{"type": "text", "text": USER["content"], "cache_control": {"type": "ephemeral"}}]
    assert ask(client, "cot-demo", [USER, ASKED, {**USER, "content": cached}]).choices == plain


@pytest.mark.slow
def test_a_template_that_drops_a_message_or_fails_is_one_line():
    tokenizer = tokenizer_of("qwen3")
    model = tiny("qwen3", vocab_size=len(tokenizer), max_position_embeddings=512)
    loop = "{{% for m in messages %}}{0}{{% endfor %}}{{% if add_generation_prompt %}}> {{% endif %}}"
    tokenizer.chat_template = loop.format("{% if m.role != 'assistant' %}{{ m.content }}{% endif %}")
    options = {"method": "soft_reasoning", "k": 2, "rounds": 0, "max_new_tokens": 4}
    with SoftReasoner(model, tokenizer, **options) as reasoner:
        with served(reasoner) as running, running.client() as client:
            assert ask(client, "cot-demo", [USER]).choices
            with pytest.raises(openai.BadRequestError, match="leaves out the assistant's message"):
                ask(client, "cot-demo", [USER, ASKED, USER])
    for template in ("{{ messages[0].a.b }}", "{% for %}", loop.format(""), {"rag": "x"}):
        tokenizer.chat_template = template
        with pytest.raises(UserError, match="prompt.layout=chat: "):
            SoftReasoner(model, tokenizer)


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/nothing", {}, 404),
        ("POST", "/v1/embeddings", {}, 404),
        ("GET", "/v1/chat/completions", {}, 405),
        ("POST", "/v1/completions", {"content-type": "application/json"}, 400),
    ],
)
def test_every_refusal_has_openai_s_form(running, method, path, headers, status):
    response = httpx.request(method, running.url.removesuffix("/v1") + path, headers=headers)
    assert response.status_code == status
    error = response.json()["error"]
    assert {*error} == {"message", "type", "param", "code"} and error["type"] == "invalid_request_error"
    assert error["message"] and "\n" not in error["message"]
    assert status != 404 or f"or /health, got {path}" in error["message"]


@pytest.mark.parametrize("value", [5, {"text": "?"}, None, [["?"]], [5.5], []])
def test_a_prompt_of_another_kind_is_named(client, value):
    message, param = refusal(client.completions.create, prompt=value)
    assert param == "prompt" and message.startswith("prompt: ") and "list[" not in message
