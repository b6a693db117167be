"""The server in front of another server: many clients at once, streams, and one that goes away."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from soft_reasoning import SoftReasoner
from tests.engine.faulty import faulty_server
from tests.serve.serving import ask, chat, served
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def upstream():
    with faulty_server() as server:
        yield server


@pytest.fixture(scope="module")
def proxy(upstream):
    options = {"method": "self_consistency", "answer_type": "number", "k": 3}
    with SoftReasoner.from_pretrained(upstream.url, **options) as reasoner:
        with served(reasoner) as running:
            yield running


def test_32_clients_get_what_one_gets(upstream, proxy):
    def one(number):
        with proxy.client() as client:
            question = chat(f"How many are {number} and 1?")
            if number % 2:
                return ask(client, messages=question).choices[0].message.content
            parts = ask(client, messages=question, stream=True)
            deltas = [part.choices[0].delta.content for part in parts if part.choices]
            return "".join(filter(None, deltas))

    alone = {number: one(number) for number in (0, 1, 30, 31)}
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(one, range(32)))
    assert all(text.rpartition("Answer: ")[2].isdigit() for text in answers)
    assert all(answers[number] == text for number, text in alone.items())
    assert upstream.most_in_flight > 1


def test_a_client_that_goes_away_disturbs_no_other(upstream, proxy):
    upstream.faults = ["hang"] * 3
    with proxy.client() as leaving, proxy.client() as staying:
        stream = ask(leaving, messages=chat("How many are 40 and 2?"), stream=True)
        upstream.hung.wait()
        stream.close()
        assert "Answer: " in ask(staying, messages=chat("How many are 5 and 1?")).choices[0].message.content
    wait_until(lambda: not proxy.service.in_progress)  # the work of the client that left ends
