"""Servers that fail: what is retried, what ends a run, and what is one request's own."""

import json
import logging
from time import monotonic

import pytest

from soft_reasoning.engine.paths import DEMO_FOLDER
from soft_reasoning.engine.served import served
from soft_reasoning.engine.served.client import Server
from soft_reasoning.types import Request, Sampling, UserError
from tests.engine.faulty import faulty_server

ASKED = (("user", "How many?"),)


def ask(seed=0, **options):
    return Request((), messages=ASKED, sampling=Sampling(0.8), seed=seed, max_new_tokens=20, **options)


@pytest.fixture
def server():
    with faulty_server() as server:
        yield server


@pytest.fixture
def engine(server):
    engine = served(server.url, retries=2, timeout=30, concurrency=4)
    yield engine
    engine.close()


def test_the_handshake_finds_what_a_server_does(server, engine):
    assert engine.offers == frozenset()
    assert engine.facts["seeded"] and engine.facts["counts"] and not engine.facts["top_k"]
    assert engine.facts["served"] == "model-1"
    assert len(server.bodies) <= 8


def test_a_text_is_that_of_its_messages_and_seed(engine):
    texts = [run.text for run in engine.generate([ask(seed) for seed in (0, 1, 2, 3, 4, 0)])]
    assert texts[0] == texts[-1] and len(set(texts)) > 1
    assert all(run.generated_tokens == 8 and run.prompt_tokens == 9 for run in engine.generate([ask()]))


def test_a_top_k_that_was_typed_is_refused_where_the_server_has_none(server, engine):
    engine.generate([Request((), messages=ASKED, sampling=Sampling(0.8, top_k=50))])
    assert "top_k" not in server.bodies[-1][1]
    with pytest.raises(UserError, match="top_k: expected 0, as this server has no top_k, got 20"):
        engine.generate([Request((), messages=ASKED, sampling=Sampling(0.8, top_k=20))])


@pytest.mark.parametrize("fault", [429, (429, {"Retry-After": "0"}), 408, 500, 503, "torn"])
def test_a_passing_fault_is_retried(server, engine, fault):
    [expected] = engine.generate([ask(3)])
    server.faults = [fault]
    [again] = engine.generate([ask(3)])
    assert again.text == expected.text


def test_a_429_halves_the_requests_in_flight(server, engine):
    server.faults = [(429, {"Retry-After": "0"})] * 2
    engine.generate([ask(seed) for seed in range(2)])
    assert engine.server.at_once < 4
    for _ in range(3):
        engine.generate([ask(seed) for seed in range(8)])
    assert engine.server.at_once > 2


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_refusal_of_all_requests_ends_the_run_in_one_line(server, engine, status):
    server.faults = [status]
    with pytest.raises(UserError, match=f"refused a request .*{status}.*check the") as error:
        engine.generate([ask()])
    assert "\n" not in str(error.value)


def test_a_refusal_of_one_request_is_an_empty_candidate(server, engine, caplog):
    engine.generate([ask()])
    server.faults = [400]
    with caplog.at_level(logging.WARNING):
        [run] = engine.generate([ask()])
    assert (run.text, run.finish_reason, run.generated_tokens) == ("", "length", 0)
    assert "left without an answer" in caplog.text


def test_if_the_first_request_is_refused_the_settings_are_wrong(server, engine):
    server.faults = [400]
    with pytest.raises(UserError, match="refused a request"):
        engine.generate([ask()])


def test_a_server_that_dies_ends_the_run(server, engine):
    server.faults = ["torn"] * 9
    with pytest.raises(UserError, match="the same command continues"):
        engine.generate([ask()])


def test_no_reply_in_time(server):
    engine = served(server.url, retries=0, timeout=2)
    server.faults = ["hang"]
    with pytest.raises(UserError, match=r"no reply within 2 seconds; .*engine.timeout"):
        engine.generate([ask()])
    engine.close()


def test_a_run_ends_at_its_tokens(server):
    engine = served(server.url, max_generated_tokens=20, concurrency=1)
    engine.begin_run()
    asked = [ask(seed) for seed in range(6)]
    runs = engine.generate(asked)
    assert [run.finish_reason for run in runs] == ["eos"] * 3 + ["budget"] * 3  # of 8 tokens each
    engine.begin_run()
    assert engine.generate(asked[:1])[0].text == runs[0].text
    engine.close()


def test_a_deadline_closes_the_connection(server, engine):
    server.faults = ["hang"]
    [late] = engine.generate([ask(deadline=monotonic() + 0.2)])
    assert (late.text, late.finish_reason) == ("", "length")


def test_a_missing_text_is_an_empty_one(server, engine):
    def filtered(reply):
        reply["choices"][0]["message"]["content"] = None
        reply["choices"][0]["finish_reason"] = "content_filter"

    server.faults = [filtered]
    [run] = engine.generate([ask()])
    assert run.text == ""


def test_thoughts_that_stand_apart_come_first(server, engine):
    def thinking(reply):
        reply["choices"][0]["message"]["reasoning_content"] = "Let me count."

    server.faults = [thinking]
    [run] = engine.generate([ask(stop=("\nAnswer",))])
    assert run.text.startswith("<think>\nLet me count.\n</think>\n\nWe count to")
    assert "Answer" not in run.text and run.finish_reason == "stop"


@pytest.mark.parametrize("fault", ["html", lambda reply: reply.pop("choices")])
def test_a_reply_of_another_kind_ends_the_run(server, engine, fault):
    server.faults = [fault]
    with pytest.raises(UserError, match="expected a reply"):
        engine.generate([ask()])


def test_neither_url_nor_key_is_in_a_message(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    engine = served(server.url, retries=0)
    assert any("sk-secret" in headers.get("Authorization", "") for *_, headers in server.bodies)
    server.faults = [500]
    with pytest.raises(UserError) as error:
        engine.generate([ask()])
    engine.close()
    assert "127.0.0.1" not in str(error.value) and "sk-secret" not in str(error.value)
    assert "sk-secret" not in repr(engine.facts) and server.url not in repr(engine.facts)


def test_a_schema_is_passed_on_where_the_server_acts_on_it(server, engine):
    schema = json.dumps({"type": "object", "properties": {"unit": {"enum": ["kg"]}}})
    with pytest.raises(UserError, match="an engine with texts that fit a JSON Schema, got MessageEngine"):
        engine.generate([ask(schema=schema)])
    server.guides = True
    guided = served(server.url, retries=0)
    assert guided.offers == {"schemas"} and guided.facts["offers"] == ["schemas"]
    plain, fits = guided.generate([ask(), ask(schema=schema)])
    assert fits.text == '{"unit": "kg"}' and "Answer: " in plain.text
    server.faults = [400]
    with pytest.raises(UserError, match="the server refused a request"):
        guided.generate([ask(schema=schema)])
    guided.close()


@pytest.mark.parametrize("url", ["http://me:secret@localhost/v1", "http://localhost/v1?key=1"])
def test_a_url_with_a_secret_is_refused(url):
    with pytest.raises(UserError, match="url: expected no user, password or query") as error:
        Server(url)
    assert "secret" not in str(error.value)


def test_a_name_that_is_not_served(server):
    with pytest.raises(UserError, match=r"expected a name of a served model \(model-1\), got other"):
        served(server.url, name="other")


def test_a_tokenizer_for_a_server_that_takes_no_ids_is_refused(server):
    with pytest.raises(UserError, match="model.tokenizer"):
        served(server.url, tokenizer=str(DEMO_FOLDER))


def test_a_server_that_fails_at_a_schema_takes_none_and_is_asked_once(server):
    server.schema_status = 500
    engine = served(server.url, retries=2)
    assert engine.offers == frozenset()
    assert sum("response_format" in body for _, body, _ in server.bodies) == 1
    engine.close()
