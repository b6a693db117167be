"""The first hour of four new users: what they type and what comes."""

import re
import shlex
from pathlib import Path

import httpx
import pytest
import torch

from soft_reasoning import SoftReasoner, UserError
from soft_reasoning.cli import finished, run

DAN = (
    "Dan has 24 eggs. 1) 2 friends get 4 eggs each. 2) A dog takes 5 eggs. 3) Dan gets 7. "
    "How many eggs does Dan have now?"
)
FAKE = "engine=fake progress=false max_new_tokens=20"
TWELVE = "\n".join(
    [
        "id,question,answer",
        *(f"q{n},Ann has {n} pens and buys {n % 3}. How many?,{n + n % 3} pens" for n in range(9)),
        "later,Ann has 9 pens and buys 1. How many?,",
        "much later,Ann has 10 pens and buys 1. How many?,",
        "last,Ann has 11 pens and buys 2. How many?,13",
    ]
)
MODEL = Path("~/.cache/soft_reasoning/qwen2.5-coder-0.5b-instruct-q4_k_m.gguf").expanduser()


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    """Types a command of the command line in an empty folder; returns its output and its exit code."""
    monkeypatch.chdir(tmp_path)
    commands = {
        "run": run.main,
        "compare": run.compare_main,
        "show": finished.show_main,
        "regrade": finished.regrade_main,
    }

    def type_in(line):
        name, *words = shlex.split(line)
        code = 0
        try:
            commands[name](words)
        except SystemExit as end:
            code = end.code
        output = capsys.readouterr()
        return output.out + output.err, code

    return type_in


def comes(result, *patterns, code=0):
    """What came holds each pattern, in this order."""
    output, ended = result
    assert ended == code, output
    place = 0
    for pattern in patterns:
        found = re.compile(pattern).search(output, place)
        assert found, f"{pattern!r} in {output[place:]}"
        place = found.end()


@pytest.mark.slow
def test_a_researcher_runs_compares_and_grades_again(typed):
    comes(typed("run limit=6 progress=false hydra.run.dir=first"), "of 6 questions were answered", "coverage")
    comes(typed("run limit=8 progress=false hydra.run.dir=first"), "6 of 8 problems are done; continuing")
    comes(typed("show first 7"), "Question: ", "Votes")
    comes(typed("regrade first grader=lm_eval_flexible"), "accuracy %")
    comes(
        typed("compare cot self_consistency verified_sampling limit=4 progress=false hydra.run.dir=three"),
        "cot",
        "verified_sampling",
        "comparison.md",
    )
    comes(typed("run method=cot acquisition=ucb"), "acquisition: expected a method that reads it", code=2)


def test_a_botorch_user_maximises_a_reward():
    with SoftReasoner.from_pretrained("demo") as reasoner:
        objective = reasoner.objective(DAN, gold=18)
        assert "Dan has 24 eggs" in repr(objective) and "d=25" in repr(objective)
        torch.manual_seed(0)
        rewards = objective(torch.randn(5, objective.dim, dtype=torch.float64))
        assert [candidate.answer for candidate in objective.candidates] == ["22", "18", "22", "22", "18"]
        assert rewards.max() < objective.optimal_value == 2.0
        assert objective.answer == "18" and objective.correct(objective.answer)
        with pytest.raises(ValueError, match="expected floats"):
            objective(torch.ones(2, objective.dim, dtype=torch.int64))
        with pytest.raises(UserError, match="^objective: expected options among gold, .*got rounds"):
            reasoner.objective(DAN, rounds=2)
        with pytest.raises(UserError, match="^noise_std: "):
            reasoner.objective(DAN, noise_std=-1)


def test_an_engineer_answers_twelve_questions_of_a_file(typed):
    Path("mine.csv").write_text(TWELVE, encoding="utf-8")
    comes(
        typed(f"run dataset=mine.csv method=cot {FAKE} hydra.run.dir=mine"),
        r"  0  Ann has 0 pens.*\((correct|wrong: 0)\)\n",
        r"  9  Ann has 9 pens and buys 1\. How many\?  \d+\n",
        r" 11  Ann has 11 pens",
        "mine/predictions.csv",
        r"of 10 questions with a reference answer \(2 more have none\)",
        "without a reference answer +2",
    )
    comes(typed("show mine 9"), "Question: Ann has 9 pens")
    comes(typed("show mine custom-later"), "Question: Ann has 9 pens")
    Path("mine.csv").write_text("id,question,answer\na,How far?,some km\n", encoding="utf-8")
    comes(
        typed(f"run dataset=mine.csv method=cot {FAKE} hydra.run.dir=other"),
        r"row 1: expected a number in field 'answer', got 'some km'; dataset.answer_type=",
        code=2,
    )
    comes(
        typed(f"run dataset=mine.csv dataset.row.answer=result method=cot {FAKE} hydra.run.dir=other"),
        r"expected a field 'result', got id, question, answer; name yours",
        code=2,
    )


def test_an_engineer_serves_a_platform():
    pytest.importorskip("fastapi")
    from tests.serve.serving import served

    with (
        SoftReasoner.from_pretrained("demo", engine="fake", max_new_tokens=30) as reasoner,
        served(reasoner) as running,
        httpx.Client(base_url=running.url.removesuffix("/v1"), timeout=None) as http,
    ):
        chat = {"model": "self_consistency-demo", "messages": [{"role": "user", "content": DAN}]}

        def post(path="/v1/chat/completions", **fields):
            return http.post(path, json={**chat, **fields})

        reply = post(temperature=0).json()
        assert reply["soft_reasoning"]["answer"] in reply["choices"][0]["message"]["content"]
        assert reply["soft_reasoning"]["warning"].startswith("temperature: expected a finite number above 0")
        tools = post(tools=[{"type": "function", "function": {"name": "f"}}])
        assert tools.status_code == 400 and "no method calls tools" in tools.json()["error"]["message"]
        unknown = post("/v1/embeddings")
        assert unknown.status_code == 404 and "/v1/chat/completions" in unknown.json()["error"]["message"]
        assert "data: [DONE]" in post(model="cot-demo", stream=True).text.splitlines()


@pytest.mark.slow
@pytest.mark.skipif(not MODEL.is_file(), reason="needs the 0.5B model of experiments/real_models/fetch.py")
def test_programs_and_solutions_of_a_real_model_vote(typed):
    pytest.importorskip("xllamacpp")
    Path("mine.csv").write_text(
        "question,answer\nA pack of 12 pens costs $3. How much do 60 pens cost?,$15\n"
        "Tom runs 5 km a day. How far does he run in a week?,35 km\n",
        encoding="utf-8",
    )
    model = f"engine=llamacpp model={MODEL} engine.threads=1 progress=false"
    result = typed(f"run method=mixed_consistency {model} dataset=mine.csv hydra.run.dir=mixed")
    comes(result, "0  A pack of 12 pens", "1  Tom runs 5 km", "of 2 questions were answered correctly")
    comes(typed("show mixed 0"), "mixed_consistency", "candidates")
