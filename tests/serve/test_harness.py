"""lm-evaluation-harness against a server: its own clients, by the commands of the page."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("lm_eval")
pytest.importorskip("tenacity", reason="needs lm_eval[api]")

from soft_reasoning import SoftReasoner  # noqa: E402
from tests.serve.serving import questions, served  # noqa: E402

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "evaluation.md").read_text(encoding="utf-8")
COMMANDS = [shlex.split(line) for line in re.findall(r"^lm-eval (.*--include_path.*)$", PAGE, re.MULTILINE)]


@pytest.fixture(scope="module")
def running():
    with SoftReasoner.from_pretrained("demo") as reasoner, served(reasoner) as running:
        yield running


def rows(words, running, tmp_path):
    """The harness's rows and standard output for a command of the page, with two problems."""
    words = [word.replace("http://127.0.0.1:8000/v1", running.url) for word in words]
    words[words.index("--limit") + 1] = "2"
    done = subprocess.run(
        [sys.executable, "-m", "lm_eval", *words, "--log_samples", "--output_path", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    [path] = tmp_path.rglob("samples_*.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()], done.stdout


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[words.index("--model") + 1])
def test_its_clients_get_what_solve_answers(words, running, tmp_path):
    read, shown = rows(words, running, tmp_path)
    assert "|exact_match|" in shown
    assert [row["doc"]["question"] for row in read] == questions(2)
    solve, prompts = running.service.reasoner.solve, [row["arguments"]["gen_args_0"]["arg_0"] for row in read]
    if "local-chat-completions" in words:
        options = {"max_new_tokens": 300, "temperature": 1.1, "seed": 1234}
        asked = questions(2)
        assert [json.loads(prompt[0])[-1]["content"] for prompt in prompts] == asked
    else:
        options = {"method": "cot", "max_new_tokens": 300, "stop": ["Question:"], "seed": 1234}
        asked = [{"question": prompt, "prompt": prompt} for prompt in prompts]
    assert [row["resps"][0][0] for row in read] == [solve(question, **options).text for question in asked]


def test_more_stop_strings_than_openai_takes(running, tmp_path):
    """A task may have more than four; the client of completions sends all of them."""
    stops = ["Question:", "\n", "=", "Answer", "Thought"]
    [words] = [words for words in COMMANDS if "local-completions" in words]
    read, _ = rows([*words, "--gen_kwargs", json.dumps({"until": stops})], running, tmp_path)
    texts = [row["resps"][0][0] for row in read]
    assert all(texts) and not any(stop in text for stop in stops for text in texts)
