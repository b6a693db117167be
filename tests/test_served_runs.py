"""Whole runs on a server: what methods need of it, a run that is killed, and what is written down."""

import json
import os
import signal
import subprocess
import sys

import pytest

from soft_reasoning import SoftReasoner
from soft_reasoning.types import UserError
from tests.engine.faulty import faulty_server

QUESTIONS = "question,answer\n" + "".join(f"How many are {i} and {i + 1}?,{2 * i + 1}\n" for i in range(6))
HANDSHAKE = 5  # requests


@pytest.fixture
def server():
    with faulty_server() as server:
        yield server


@pytest.fixture
def questions(tmp_path):
    (tmp_path / "questions.csv").write_text(QUESTIONS)
    return [f"dataset={tmp_path / 'questions.csv'}", f"hydra.run.dir={tmp_path / 'run'}", "progress=false"]


def words(body):
    """What distinguishes a request."""
    return json.dumps([body["messages"], body.get("seed"), body["temperature"]])


def test_python_asks_a_url(server):
    with SoftReasoner.from_pretrained(
        server.url, method="self_consistency", answer_type="number", k=3
    ) as reasoner:
        solution = reasoner.solve("How many are 2 and 2?")
    assert len(solution.candidates) == 3 and solution.answer in {c.answer for c in solution.candidates}
    asked = [body for _, body, _ in server.bodies if "How many are" in str(body["messages"])]
    assert len({body["seed"] for body in asked}) == 3
    assert solution.usage["candidate"].generated_tokens == 24  # as the server counts them


@pytest.mark.parametrize(
    ("options", "lacks"),
    [
        ({}, "soft tokens"),
        ({"method": "soft_reasoning"}, "soft tokens"),
        ({"method": "cot_decoding"}, "log-probabilities"),
        ({"method": "fire"}, "log-probabilities"),
        ({"method": "rap"}, "logits"),
        ({"method": "best_of_n", "verifier": "single_judge"}, "log-probabilities"),
    ],
)
def test_what_a_method_needs_is_refused_before_any_work(server, options, lacks):
    with pytest.raises(UserError, match=f"expected an engine with .*{lacks}"):
        with SoftReasoner.from_pretrained(server.url, prompt="math", **options) as reasoner:
            reasoner.solve("How many are 2 and 2?")
    assert not [body for _, body, _ in server.bodies if "How many are" in str(body["messages"])]


@pytest.mark.slow
def test_a_killed_run_continues_at_another_url_and_asks_nothing_again(server, questions, tmp_path):
    command = [sys.executable, "-m", "soft_reasoning.run", "method=self_consistency", "k=2", *questions]
    server.faults = [lambda reply: None] * (HANDSHAKE + 5) + ["hang"] * 12
    run = subprocess.Popen([*command, f"model={server.url}", "engine.concurrency=1"], stderr=subprocess.PIPE)
    server.hung.wait()
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    first = [words(body) for _, body, _ in server.bodies][: HANDSHAKE + 5]
    with faulty_server() as other:
        done = subprocess.run([*command, f"model={other.url}"], capture_output=True, text=True, check=True)
        again = [words(body) for _, body, _ in other.bodies]
    asked = {text for text in first if "How many are" in text}
    assert len(asked) == 5 and not asked & {*again}
    assert "6 problems" in done.stdout or "of 6" in done.stdout
    assert len((tmp_path / "run" / "samples.jsonl").read_text().splitlines()) == 6
    for file in (tmp_path / "run").iterdir():
        assert b"127.0.0.1" not in file.read_bytes(), file.name


@pytest.mark.slow
def test_a_model_that_changes_under_its_name_does_not_continue_a_run(server, questions, run):
    options = ["method=cot", f"model={server.url}", *questions]
    assert run(*options, "limit=2").returncode == 0
    server.salt = "other weights"
    changed = run(*options)
    assert changed.returncode and "weights of model-1" in changed.stderr
    assert len(changed.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_signal_ends_a_run_while_its_server_is_still_at_work(server, questions):
    """No exit waits for a reply."""
    server.faults = [lambda reply: None] * HANDSHAKE + ["hang"] * 6
    command = [sys.executable, "-m", "soft_reasoning.run", f"model={server.url}", *questions]
    with subprocess.Popen(
        [*command, "method=cot", "prompt=math"], stderr=subprocess.PIPE, text=True
    ) as process:
        server.hung.wait()
        process.send_signal(signal.SIGTERM)
        error = process.stderr.read()
    assert not server.released.is_set() and process.returncode == 130, error
    assert error.endswith("soft_reasoning: interrupted; the same command continues\n")
    server.released.set()
