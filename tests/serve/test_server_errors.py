"""What the server refuses, its limits, and how requests and the server end."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest

pytest.importorskip("fastapi")
openai = pytest.importorskip("openai")

from soft_reasoning import SoftReasoner, UserError  # noqa: E402
from soft_reasoning.serve.app import bind  # noqa: E402
from soft_reasoning.serve.settings import Settings  # noqa: E402
from tests.serve.serving import QUESTION, ask, chat, served  # noqa: E402
from tests.waiting import wait_until  # noqa: E402

MODEL = "self_consistency-demo"
LONG = {"k": 64}
LONGER = {"k": 2000}
"""Take about a second, and about half a minute."""


@pytest.mark.parametrize(
    ("sent", "param", "words"),
    [
        ({"temperature": 2.5}, "temperature", "less than or equal to 2, got 2.5"),
        ({"top_logprobs": 3}, "top_logprobs", "an effect here, got 3; leave it out"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "no method calls tools"),
        ({"stream_options": {"foo": 1}}, "stream_options.foo", "an effect here"),
        ({"response_format": {"type": "json_object"}}, None, "a tokenizer that it can read, got an error"),
        ({"response_format": {"type": "text", "shema": {"a": 1}}}, "response_format", "alone, got"),
        ({"response_format": {"type": "json_object", "schema": {"a": 1}}}, "response_format", "alone, got"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "with json_schema its name and"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": [1]}}},
            "response_format",
            "with json_schema its name and schema alone",
        ),
        ({"extra_body": {"min_p": 0.1}}, "min_p", "an effect here"),
        ({"reasoning_effort": "high"}, "reasoning_effort", "an effect here"),
        ({"top_p": 0}, "top_p", "greater than 0"),
        ({"extra_body": {"n": None, "model": None}}, "model", "model: Field required"),
        ({"extra": {"preset": "x"}, "model": "demo"}, None, "preset: expected one of default, paper"),
        ({"extra": {"k": 65}, "model": "demo"}, "soft_reasoning.k", "at most 64"),
        ({"messages": [{"role": "assistant", "content": "Hi"}]}, "messages", "ends with the user's message"),
        ({"messages": [{"role": "user", "content": " "}]}, "messages", "messages: expected a question in"),
        ({"messages": chat("Ada has 3 apples. " * 400)}, None, "the model has 1536"),
    ],
)
def test_a_field_that_cannot_be_is_named(client, sent, param, words):
    for stream in (False, True):  # before the first event of a stream
        with pytest.raises(openai.BadRequestError, match=words) as error:
            ask(client, **{"model": "cot-demo", **sent, "stream": stream})
        body = error.value.body
        assert body["type"] == "invalid_request_error" and len(body["message"].splitlines()) == 1
        assert param is None or body["param"] == param


def test_token_ids_outside_the_vocabulary(client):
    with pytest.raises(openai.BadRequestError, match="prompt: expected token ids in 0..* got 1000000000"):
        client.completions.create(model="cot-demo", prompt=[50, 10**9])


NESTED = b'{"model":"cot-demo","messages": %s%s}'
DEEP = (
    b'{"model": "cot-demo", "messages": [{"role": "user", "content": "Why?"}], "response_format": '
    b'{"type": "json_schema", "json_schema": {"schema": %s%s%s}}}'
)
TURNS = b'{"model":"cot-demo","messages": [{"role":"user", "content":"%s"}, {"role":"user", "content":"%s"}]}'


@pytest.mark.parametrize(
    ("body", "kind", "status", "words"),
    [
        (b'{"model": "\xff"}', "application/json", 400, "expected a JSON object in UTF-8"),
        (b"[" * 10_000, "application/json", 400, "expected a JSON object in UTF-8"),
        (TURNS % (b"Why?", b"\\ud83d"), "application/json", 400, "expected a question in Unicode text"),
        *(
            (NESTED % (b"[" * depth, b"]" * depth), "application/json", 400, '"param"')
            for depth in (100, 500, 800, 900, 930, 960)
        ),
        (DEEP % (b'{"a":' * 800, b"1", b"}" * 800), "application/json", 400, '"param"'),
        (b"{}", None, 400, "Content-Type: application/json"),
        (b"x" * 20_001, "application/json", 413, "Content Too Large"),
    ],
)
def test_a_body_that_cannot_be(running, body, kind, status, words):
    for parts in (body, iter([body])):  # with its length, and in chunks
        url, headers = f"{running.url}/chat/completions", {"content-type": kind} if kind else {}
        response = httpx.post(url, content=parts, headers=headers, timeout=None)
        assert response.status_code == status and words in response.text


def test_a_model_that_is_not_there(client):
    with pytest.raises(openai.NotFoundError, match="model: expected one of demo, ") as error:
        ask(client, "gpt-9")
    assert error.value.body["code"] == "model_not_found"


def test_a_key(reasoner):
    with served(reasoner, api_key="secret") as running:
        with running.client("secret") as client:
            assert client.models.list().data and ask(client, "cot-demo").choices
        with running.client("other") as client:
            for call in (client.models.list, lambda: ask(client, "cot-demo")):
                with pytest.raises(openai.AuthenticationError, match="got another key"):
                    call()
        root = running.url.removesuffix("/v1")
        assert httpx.get(f"{root}/health").json() == {"status": "ok", "in_progress": 0}


def test_other_hosts_and_pages(running, reasoner):
    def get(url, **headers):
        return httpx.get(f"{url}/models", headers=headers)

    page, allows = {"origin": "https://page.example"}, "access-control-allow-origin"
    assert get(running.url).status_code == get(running.url, host="localhost:1").status_code == 200
    assert get(running.url, host="[::1]:1").status_code == 200
    for host in ("rebound.example", "localhost.rebound.example:8000", ""):
        assert get(running.url, host=host).status_code == 400
    assert (
        httpx.get(running.url.replace("/v1", "/health"), headers={"host": "page.example"}).status_code == 400
    )
    post = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    assert httpx.options(f"{running.url}/chat/completions", headers={**page, **post}).status_code == 400
    assert allows not in get(running.url, **page).headers  # so that a browser does not show it to the page
    with served(reasoner, allowed_origins=["https://page.example"], allowed_hosts=["*"]) as other:
        response = get(other.url, host="rebound.example", **page)
        assert response.status_code == 200 and response.headers[allows] == "https://page.example"
        assert allows not in get(other.url, origin="https://x.example").headers


@contextmanager
def held(running, client, extra=LONG):
    """A request that is in progress."""
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(ask, client, MODEL, extra=extra)
        wait_until(lambda: running.service.in_progress == 1)
        yield request


def test_too_many_connections(reasoner):
    with served(reasoner, max_connections=1) as running, running.client() as client:
        with held(running, client) as request:
            with running.client() as other, pytest.raises(openai.InternalServerError) as error:
                ask(other, "cot-demo")
            assert error.value.status_code == 503 and request.result().choices


def test_a_request_that_takes_too_long(reasoner):
    limits = {"max_seconds": 0.3, "max_k": 2000, "keep_alive_seconds": 0.02}
    with served(reasoner, **limits) as running, running.client() as client:
        with pytest.raises(openai.InternalServerError, match="longer than 0.3 seconds") as error:
            ask(client, MODEL, extra=LONGER)
        assert error.value.status_code == 504 and error.value.response.headers["x-should-retry"] == "false"
        with pytest.raises(openai.APIError, match="longer than 0.3 seconds"):  # the stream has begun
            list(ask(client, MODEL, extra=LONGER, stream=True))
        wait_until(lambda: running.service.in_progress == 0)


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_disconnects_ends_its_work(reasoner, stream):
    body = {"model": MODEL, "messages": chat(QUESTION), "stream": stream, "soft_reasoning": LONGER}
    with served(reasoner, keep_alive_seconds=0.05, max_k=2000) as running:
        url = f"{running.url}/chat/completions"

        async def leave():
            async with httpx.AsyncClient(timeout=None) as http:
                request = asyncio.ensure_future(http.post(url, json=body))
                while running.service.in_progress == 0:
                    await asyncio.sleep(0.001)
                request.cancel()

        if stream:
            with httpx.stream("POST", url, json=body, timeout=None) as response:
                lines = response.iter_lines()  # kept, since the end of it would disconnect, too
                assert "assistant" in next(lines)
                assert running.service.in_progress == 1
        else:
            asyncio.run(leave())
        wait_until(lambda: running.service.in_progress == 0)
        with running.client() as client:
            assert ask(client, "cot-demo").choices


def test_a_shutdown_finishes_the_work(reasoner):
    with served(reasoner, drain_seconds=300) as running, running.client() as client:
        with held(running, client) as request:
            running.end()
            assert request.result().choices
        running.thread.join()
        with pytest.raises(openai.APIConnectionError):
            ask(client, "cot-demo")


def test_a_shutdown_gives_up_on_what_takes_too_long(reasoner):
    with served(reasoner, drain_seconds=0.2, max_k=2000) as running, running.client() as client:
        with held(running, client, LONGER) as request:
            running.end()
            with pytest.raises(openai.InternalServerError, match="shutting down"):
                request.result()


def test_faults_of_ours(caplog, monkeypatch):
    async def broken(*_, **__):
        raise ZeroDivisionError("broken")

    with SoftReasoner.from_pretrained("demo", engine="fake") as reasoner:
        with served(reasoner) as running, running.client() as client:
            with monkeypatch.context() as patch:
                patch.setattr(reasoner, "asolve", broken)
                with pytest.raises(openai.InternalServerError, match="ZeroDivisionError while sol") as error:
                    ask(client, "cot-demo")
            assert error.value.status_code == 500 and "broken" in caplog.text  # for whoever runs the server
            reasoner.close()
            assert httpx.get(running.url.replace("/v1", "/health")).status_code == 503
            with pytest.raises(openai.InternalServerError, match="shutting down"):
                ask(client, "cot-demo")


def test_settings_are_checked():
    for settings, words in (({"colour": 1}, "server.colour"), ({"api_key": " "}, "server.api_key")):
        with pytest.raises(UserError, match=words):
            Settings.from_group(settings)


def test_an_address_that_is_taken_is_one_line():
    with bind(Settings(port=0)) as first:
        with pytest.raises(UserError, match="expected an address that is free"):
            bind(Settings(port=first.getsockname()[1]))
