"""A real server in a thread, for tests."""

import signal
import threading
from contextlib import contextmanager

from openai import OpenAI

from soft_reasoning.lab.data.demo import demo_dataset
from soft_reasoning.serve.app import base_url, bind, build_server
from soft_reasoning.serve.service import Service
from soft_reasoning.serve.settings import Settings
from tests.waiting import wait_until


def questions(count):
    return [problem.question for problem in demo_dataset(name="demo", limit=count).problems()]


QUESTION = questions(5)[-1]
"""A question that takes several rounds."""


def chat(question):
    return [{"role": "user", "content": question}]


def ask(client, model="demo", messages=None, extra=None, extra_body=None, **options):
    """A chat's response; ``extra`` are the options of this package."""
    body = {**(extra_body or {}), **({} if extra is None else {"soft_reasoning": extra})}
    return client.chat.completions.create(
        model=model, messages=messages or chat(QUESTION), extra_body=body, **options
    )


class Served:
    """A running server: its address, its parts, and a client."""

    def __init__(self, reasoner, settings):
        listening = bind(settings)
        self.url = base_url(listening)
        self.service = Service(reasoner, settings, "demo")
        self.server = build_server(self.service)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]})
        self.thread.start()
        wait_until(lambda: self.server.started)

    def client(self, key="none", kind=OpenAI, **options):
        return kind(base_url=self.url, api_key=key, max_retries=0, **options)

    def end(self):
        self.server.handle_exit(signal.SIGTERM, None)


@contextmanager
def served(reasoner, **settings):
    running = Served(reasoner, Settings(port=0, **{"drain_seconds": 0.1, **settings}))
    try:
        yield running
    finally:
        running.end()
        running.thread.join()
