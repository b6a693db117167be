"""What the server refuses, its limits, and how requests and the server end."""

import json
import logging
import socket
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import pytest

pytest.importorskip("fastapi")
openai = pytest.importorskip("openai")

from soft_reasoning import SoftReasoner, UserError  # noqa: E402
from soft_reasoning.integrations.server.running import bound  # noqa: E402
from soft_reasoning.integrations.server.settings import Settings  # noqa: E402
from tests.integrations.serving import chat, questions, served, wait_until  # noqa: E402

Q = questions(1)[0]
LONG = {"method": "self_consistency", "k": 64}
LONGER = {"method": "self_consistency", "k": 2000}
"""Take about a second, and about half a minute."""


@pytest.fixture(scope="module")
def reasoner():
    with SoftReasoner.from_pretrained("demo", k=3, rounds=1, overrides=["max_new_tokens=60"]) as reasoner:
        yield reasoner


@pytest.fixture(scope="module")
def running(reasoner):
    with served(reasoner, max_body_bytes=20_000, max_tokens=500, max_n=4, max_k=64, max_rounds=8) as running:
        yield running


@pytest.fixture(scope="module")
def client(running):
    with running.client() as client:
        yield client


def ask(client, model="cot-demo", messages=None, extra=None, **options):
    body = {**({} if extra is None else {"soft_reasoning": extra}), **options.pop("body", {})}
    return client.chat.completions.create(
        model=model, messages=messages or chat(Q), extra_body=body or None, **options
    )


@pytest.mark.parametrize(
    ("sent", "param", "words"),
    [
        ({"temperature": -1}, "temperature", "greater than or equal to 0"),
        ({"temperature": 2.5}, "temperature", "less than or equal to 2"),
        ({"temperature": "hot"}, "temperature", "expected a valid number, got 'hot'"),
        ({"temperature": 0.7}, "temperature", "expected a method that has it, got method=cot"),
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"max_tokens": 501}, "max_tokens", "at most 500"),
        ({"max_completion_tokens": 501}, "max_completion_tokens", "at most 500"),
        ({"n": 0}, "n", "greater than or equal to 1"),
        ({"n": 5}, "n", "at most 4"),
        ({"seed": -1}, "seed", "greater than or equal to 0"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop", "at most 4 texts"),
        ({"stop": [""]}, "stop", "none of them empty"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream=true"),
        ({"top_logprobs": 3}, "top_logprobs", "nothing here acts on it"),
        ({"top_p": 0.5}, "top_p", "expected null or 1, .* got 0.5"),
        ({"frequency_penalty": 1}, "frequency_penalty", "nothing here acts on it"),
        ({"presence_penalty": 1}, "presence_penalty", "nothing here acts on it"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "nothing here acts on it"),
        ({"response_format": {"type": "json_object"}}, "response_format", "nothing here acts on it"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "nothing here acts on it"),
        ({"reasoning_effort": "high"}, "reasoning_effort", "nothing here acts on it"),
        ({"store": True}, "store", "nothing here acts on it"),
        ({"metadata": {"a": "b"}}, "metadata", "nothing here acts on it"),
        ({"body": {"colour": "red"}}, "colour", "a field that this server knows"),
        ({"extra": {"method": "telepathy"}}, "soft_reasoning.method", "expected one of best_of_n"),
        ({"extra": {"method": "rap"}}, "soft_reasoning.method", "expected cot, that of model=cot-demo"),
        ({"extra": {"preset": "x"}, "model": "demo"}, "soft_reasoning.preset", "expected one of default"),
        ({"extra": {"k": 65}, "model": "demo"}, "soft_reasoning.k", "at most 64"),
        ({"extra": {"k": 1}, "model": "demo"}, "soft_reasoning.k", "at least 2"),
        ({"extra": {"k": 2}}, "soft_reasoning.k", "expected a method that has it"),
        ({"extra": {"rounds": 9}, "model": "demo"}, "soft_reasoning.rounds", "at most 8"),
        ({"extra": {"max_seconds": 601}}, "soft_reasoning.max_seconds", "at most 600"),
        ({"extra": {"max_seconds": 0}}, "soft_reasoning.max_seconds", "greater than 0"),
        ({"extra": {"kk": 1}}, "soft_reasoning.kk", "a field that this server knows"),
        (
            {"model": "prefix_scorer-demo", "logprobs": True},
            "logprobs",
            "single completions, got prefix_scorer",
        ),
        (
            {"messages": [{"role": "tool", "content": "5", "tool_call_id": "x"}]},
            "messages.0.role",
            "'system'",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, None, "messages.0.content"),
        (
            {"messages": [{"role": "user", "content": "Hi", "name": "Ann"}]},
            "messages.0.name",
            "read text only",
        ),
        ({"messages": [{"role": "assistant", "content": "Hi"}]}, "messages", "ends with the user's message"),
        ({"messages": [{"role": "user", "content": " "}]}, "messages", "expected a question in words"),
        ({"messages": chat("Ada has 3 apples. " * 400)}, None, "the model takes 1536"),
    ],
)
def test_a_field_that_cannot_be_is_named(client, sent, param, words):
    with pytest.raises(openai.BadRequestError, match=words) as error:
        ask(client, **sent)
    body = error.value.body
    assert body["type"] == "invalid_request_error" and len(body["message"].splitlines()) == 1
    assert param is None or body["param"] == param
    if param != "stream_options":
        with pytest.raises(openai.BadRequestError):  # before the first event of a stream
            ask(client, **{**sent, "stream": True})


NOTHING = {
    "top_p": 1, "frequency_penalty": 0, "presence_penalty": 0, "logit_bias": {}, "n": 1, "store": False,
    "response_format": {"type": "text"}, "temperature": 0, "top_logprobs": 0, "metadata": {}, "tools": [],
    "logprobs": False, "parallel_tool_calls": True, "seed": 0,
}  # fmt: skip


def test_values_that_ask_for_nothing_are_accepted(client):
    assert ask(client, **NOTHING).choices == ask(client).choices


def test_the_longest_answer_is_the_models_context(reasoner):
    with served(reasoner) as running, running.client() as client:
        with pytest.raises(openai.BadRequestError, match="max_tokens: expected at most 1536"):
            ask(client, max_tokens=1537)


def test_the_servers_tokens_hold_for_every_request(reasoner):
    with served(reasoner, max_tokens=20) as running, running.client() as client:
        response = ask(client, "demo")
        assert response.usage.completion_tokens <= 20 and response.soft_reasoning["ended"] == "tokens"


@pytest.mark.parametrize(
    ("body", "kind", "status", "words"),
    [
        (b"{", "application/json", 400, "expected JSON"),
        (b"[]", "application/json", 400, "expected a JSON object"),
        (b'{"model": NaN}', "application/json", 400, "expected JSON"),
        (b'{"messages": []}', "application/json", 400, "model: expected it, got none"),
        (b'{"model": "demo", "messages": []}', "application/json", 400, "messages: expected"),
        (b"{}", "text/plain", 400, "Content-Type: application/json, got 'text/plain'"),
        (b"x" * 20_001, "application/json", 413, "at most 20,000 bytes"),
    ],
)
def test_a_body_that_cannot_be(running, body, kind, status, words):
    for parts in (body, iter([body])):  # with its length, and in chunks
        url = f"{running.url}/chat/completions"
        response = httpx.post(url, content=parts, headers={"content-type": kind}, timeout=60)
        assert response.status_code == status and words in response.json()["error"]["message"]


def test_other_addresses(running):
    response = httpx.get(f"{running.url}/nothing")
    assert response.status_code == 404 and response.json()["error"]["code"] == "unknown_url"
    response = httpx.get(f"{running.url}/chat/completions")
    assert response.status_code == 405 and response.json()["error"]["type"] == "invalid_request_error"


def test_an_unknown_model(client):
    with pytest.raises(openai.NotFoundError, match="model: expected one of demo, ") as error:
        ask(client, "gpt-9")
    assert error.value.body["code"] == "model_not_found"


def test_a_key(reasoner):
    with served(reasoner, api_key="secret") as running:
        with running.client("secret") as client:
            assert client.models.list().data and ask(client).choices
        with running.client("other") as client:
            for asked in (client.models.list, lambda: client.models.retrieve("demo"), lambda: ask(client)):
                with pytest.raises(openai.AuthenticationError, match="got another key"):
                    asked()
        response = httpx.get(f"{running.url}/models")
        assert response.status_code == 401 and "got none" in response.json()["error"]["message"]
        assert httpx.get(running.url.replace("/v1", "/health")).json() == {"status": "ok", "in_work": 0}


def in_background(pool, client, extra=LONG):
    return pool.submit(ask, client, "demo", extra=extra)


def test_too_many_wait(reasoner):
    with served(reasoner, max_live=1, max_waiting=1) as running, running.client() as client:
        with ThreadPoolExecutor(2) as pool:
            held = [in_background(pool, client) for _ in range(2)]
            wait_until(lambda: running.service.in_work == 2)
            with pytest.raises(openai.RateLimitError, match="fewer than 2 requests") as error:
                ask(client)
            assert error.value.response.headers["retry-after"] == "1"
            assert all(one.result(timeout=300).choices for one in held)
        assert ask(client).choices


def test_a_request_that_takes_too_long(reasoner):
    with served(reasoner, max_seconds=0.3, max_k=2000) as running, running.client() as client:
        with pytest.raises(openai.InternalServerError, match="within 0.3 seconds") as error:
            ask(client, "demo", extra=LONGER)
        assert error.value.status_code == 504 and error.value.response.headers["x-should-retry"] == "false"
        wait_until(lambda: not reasoner._worker._jobs)  # its work has ended


def test_a_body_that_never_ends(reasoner):
    with served(reasoner, max_seconds=0.3) as running:
        place = urlsplit(running.url)
        with socket.create_connection((place.hostname, place.port), timeout=60) as line:
            line.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
                         b"application/json\r\nContent-Length: 100\r\n\r\n{")  # fmt: skip
            assert line.recv(1000).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_disconnects_ends_its_work(reasoner, stream):
    body = {"model": "demo", "messages": chat(Q), "stream": stream, "soft_reasoning": LONGER}
    with served(reasoner, keep_alive_seconds=0.05, max_k=2000) as running:
        url = f"{running.url}/chat/completions"
        with httpx.Client(timeout=60) as http:
            if stream:
                with http.stream("POST", url, json=body) as response:
                    lines = response.iter_lines()
                    assert next(lines) == ": in work"
                    assert running.service.in_work == 1
            else:
                with pytest.raises(httpx.ReadTimeout):
                    http.post(url, json=body, timeout=0.5)
        wait_until(lambda: running.service.in_work == 0 and not reasoner._worker._jobs)
        with running.client() as client:
            assert ask(client).choices


def test_an_error_in_a_stream_is_raised_by_the_client(reasoner):
    limits = {"max_seconds": 0.5, "keep_alive_seconds": 0.02, "max_k": 2000}
    with served(reasoner, **limits) as running, running.client() as client:
        with pytest.raises(openai.APIError, match="within 0.5 seconds"):
            list(ask(client, "demo", extra=LONGER, stream=True))


def test_a_shutdown_finishes_the_work_and_refuses_more(reasoner):
    with served(reasoner, drain_seconds=300) as running, running.client() as client:
        with ThreadPoolExecutor(1) as pool:
            held = in_background(pool, client)
            wait_until(lambda: running.service.in_work == 1)
            running.end()
            health = httpx.get(running.url.replace("/v1", "/health"))
            assert health.status_code == 503 and health.json()["status"] == "closing"
            with pytest.raises(openai.InternalServerError, match="shutting down") as error:
                ask(client)
            assert error.value.status_code == 503
            assert held.result(timeout=300).choices
        running.thread.join(60)
        assert not running.thread.is_alive()
        with pytest.raises(openai.APIConnectionError):
            ask(client)


@pytest.mark.parametrize("again", [False, True])
def test_a_shutdown_gives_up_on_what_takes_too_long(reasoner, again):
    limits = {"drain_seconds": 300 if again else 0.2, "max_k": 2000}
    with served(reasoner, **limits) as running, running.client() as client:
        with ThreadPoolExecutor(1) as pool:
            held = in_background(pool, client, LONGER)
            wait_until(lambda: running.service.in_work == 1)
            running.end()
            if again:
                running.end()  # a second Ctrl-C
            with pytest.raises(openai.InternalServerError, match="shutting down"):
                held.result(timeout=60)
    wait_until(lambda: not reasoner._worker._jobs)


def test_a_reasoner_that_has_gone():
    with SoftReasoner.from_pretrained("demo", overrides=["engine=fake"]) as reasoner:
        with served(reasoner) as running, running.client() as client:
            reasoner.close()
            assert httpx.get(running.url.replace("/v1", "/health")).status_code == 503
            with pytest.raises(openai.InternalServerError, match="shutting down"):
                ask(client)


def test_a_fault_of_ours_is_an_error_500(caplog):
    with SoftReasoner.from_pretrained("demo", overrides=["engine=fake"]) as reasoner:

        def broken(*_):
            raise ZeroDivisionError("broken")

        reasoner.context.engine.collect = broken
        with served(reasoner) as running, running.client() as client:
            with pytest.raises(openai.InternalServerError, match="ProblemError while solving") as error:
                ask(client)
            assert error.value.status_code == 500
    assert "broken" in caplog.text  # with its traceback, for whoever runs the server


def test_the_log_names_the_user_and_no_question(client, caplog):
    with caplog.at_level(logging.INFO, "soft_reasoning.integrations.server"):
        ask(client, user="ann\nbob")
        ask(client, safety_identifier="carl")
        with pytest.raises(openai.BadRequestError):
            ask(client, n=5, user="dora")
    lines = [one.getMessage() for one in caplog.records if "chatcmpl-" in one.getMessage()]
    assert [("'ann\\nbob'" in lines[0]), "'carl'" in lines[1], "'dora': 400" in lines[2]] == [True] * 3
    assert "model='cot-demo'" in lines[0] and ": 200, " in lines[0] and Q[:20] not in caplog.text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"port": 70000}, "server.port: .* at most 65535"),
        ({"max_seconds": 0}, "server.max_seconds: .* above 0"),
        ({"max_n": 0}, "server.max_n: .* at least 1"),
        ({"max_waiting": -1}, "server.max_waiting: .* at least 0"),
        ({"max_tokens": 0}, "server.max_tokens"),
        ({"drain_seconds": -1}, "server.drain_seconds"),
        ({"api_key": " "}, "server.api_key"),
        ({"host": ""}, "server.host"),
    ],
)
def test_settings_are_checked(given, words):
    with pytest.raises(UserError, match=words):
        Settings(**given)


def test_an_address_that_is_taken_is_one_line():
    with bound(Settings(port=0)) as first:
        first.listen()
        with pytest.raises(UserError, match="expected an address that is free"):
            bound(Settings(port=first.getsockname()[1]))
    with pytest.raises(UserError, match="server.host=no.such.host.invalid"):
        bound(Settings(host="no.such.host.invalid"))


def test_json_of_errors_is_openais(running):
    response = httpx.post(f"{running.url}/chat/completions", json={})
    assert {*json.loads(response.text)["error"]} == {"message", "type", "param", "code"}
