"""soft-reasoning serve: a process with a configuration, signals and exit status."""

import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

pytest.importorskip("fastapi")
openai = pytest.importorskip("openai")

from soft_reasoning import SoftReasoner  # noqa: E402
from tests.serve.serving import chat, questions, served  # noqa: E402

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
Q = questions(1)[0]


def command(*words):
    return [sys.executable, "-c", "from soft_reasoning.cli.main import main; main()", "serve", *words]


def environment(**more):
    return {**os.environ, "PYTHONPATH": str(ROOT), **more}


@contextmanager
def started(tmp_path, *words, **more):
    process = subprocess.Popen(
        command("port=0", *words), cwd=tmp_path, env=environment(**more), text=True, stderr=subprocess.PIPE
    )
    try:
        lines = []
        for line in process.stderr:
            lines.append(line)
            if match := re.search(r"serving (\S+) at (http://\S+)", line):
                yield process, match[1], match[2], lines
                return
        raise AssertionError("".join(lines))
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stderr.close()


def test_a_process_serves_and_ends_by_a_signal(tmp_path):
    words = ("model=demo", "method=cot", "max_new_tokens=20", "server.model_name=mine", "seed=5")
    with started(tmp_path, *words, SOFT_REASONING_API_KEY="k") as (process, name, url, _):
        assert name == "mine" and url.startswith("http://127.0.0.1:")
        with openai.OpenAI(base_url=url, api_key="k", max_retries=0) as client:
            response = client.chat.completions.create(model="mine", messages=chat(Q))
            assert response.soft_reasoning["method"] == "cot" and response.usage.completion_tokens <= 20
            assert client.models.retrieve("soft_reasoning-mine")
        assert httpx.get(f"{url}/models").status_code == 401
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
    assert [*tmp_path.iterdir()] == []  # a server writes no run


def test_a_second_signal_ends_at_once_and_other_networks_are_warned_of(tmp_path):
    words = ("engine=fake", "host=0.0.0.0", "server.drain_seconds=600", "server.max_rounds=9999")
    with started(tmp_path, *words, "stopping=none") as (process, name, url, lines):
        assert any("anyone who reaches 0.0.0.0" in line for line in lines)
        body = {"model": name, "messages": chat(Q), "stream": True, "soft_reasoning": {"rounds": 9999}}
        with httpx.stream("POST", f"{url}/chat/completions", json=body, timeout=None) as response:
            events = response.iter_lines()  # which would close the response if it were dropped
            next(events)
            process.send_signal(signal.SIGINT)
            assert any("Waiting for" in line for line in process.stderr)  # the request is in progress
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait() == 0


def test_what_cannot_be_served_is_one_line(tmp_path):
    ended = subprocess.run(
        command("port=99999"), cwd=tmp_path, env=environment(), capture_output=True, text=True
    )
    message = "server.port: Input should be less than or equal to 65535, got 99999"
    assert ended.returncode == 2 and message in ended.stderr and len(ended.stderr.splitlines()) == 1


def test_the_script_of_the_documentation():
    script = ROOT / "docs" / "scripts" / "openai_client.py"
    with SoftReasoner.from_pretrained("demo") as reasoner, served(reasoner, api_key="k") as running:
        ended = subprocess.run([sys.executable, script, running.url, "k"], capture_output=True, text=True)
        asked = re.search(r'question = "(.*)"', script.read_text(encoding="utf-8"))[1]
        greedy = reasoner.solve(asked, method="cot")
        other = reasoner.solve(asked, k=4, rounds=1, seed=1)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0].startswith("cot-demo: ") and lines[1].startswith("demo: ") and "hidden" in lines[-1]
    assert lines[0] == f"cot-demo: {greedy.text.strip()!r}, {greedy.generated_tokens} tokens"
    assert f"answer: {other.answer} of {len(other.candidates)} candidates" in lines
