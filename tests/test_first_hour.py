"""The first hour of new users: what they type and what comes."""

import re
import shlex
from pathlib import Path

import pytest

from soft_reasoning.cli import finished, run

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
