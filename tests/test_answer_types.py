"""Questions of several kinds in one file or call: each has its prompt, reader and votes."""

import json
import logging

import pytest

from soft_reasoning import SoftReasoner, UserError
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.lab.runs.runner import LocalLauncher
from soft_reasoning.schedule.job import Clock

ROWS = [
    {"question": "How much is 2 + 2?", "answer": 4},
    {"question": "Is 7 prime?", "answer": "yes", "choices": [], "answer_type": "boolean"},
    {"question": "Which is odd?", "answer": "B", "choices": ["2", "3"], "answer_type": "choice"},
    {"question": "Simplify (x^2)/x.", "answer": "x", "choices": None, "answer_type": "latex"},
    {"question": "Who wrote Emma?", "answer": "Jane Austen", "answer_type": "text"},
]
KINDS = ["number", "boolean", "choice", "latex", "text"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def solved(file, *words):
    config = compose_config([f"dataset={file}", "engine=fake", "max_new_tokens=30", *words])
    problems = build_dataset(config).problems()
    launcher = LocalLauncher()
    launcher.start(config, problems)
    results = {problem.answer_type: result for problem, result in launcher.solve(problems, Clock())}
    return problems, results, launcher.context


@pytest.mark.parametrize(
    "method", ["cot", "self_consistency", "soft_reasoning verifier=single_judge", "mixed_consistency"]
)
def test_each_row_has_the_prompt_and_the_reader_of_its_kind(file, method, caplog):
    with caplog.at_level(logging.WARNING):
        problems, results, context = solved(file, "dataset.row.choices=choices", *f"method={method}".split())
    assert [problem.answer_type for problem in problems] == KINDS
    assert [problem.gold for problem in problems] == ["4", "True", "B", "x", "Jane Austen"]
    assert problems[2].question.endswith("(A) 2\n(B) 3")
    asked = {problem.answer_type: context.of(problem).prompts.solve(problem).ids for problem in problems}
    own = compose_config(["prompt=boolean"]).prompt.wording.ask.format(question="Is 7 prime?")
    assert own.strip() in context.engine.tokenizer.decode(list(asked["boolean"]))
    assert all(result.candidates for result in results.values())
    if method == "mixed_consistency":
        computed = [kind for kind in KINDS if any(c.computed for c in results[kind].candidates)]
        assert computed == ["number", "latex"] and caplog.text.count("answered in words alone") == 3


def test_an_answer_of_another_kind_says_how_to_name_it(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("question,answer\nWhich?,B\n", encoding="utf-8")
    with pytest.raises(UserError, match="expected a number in field 'answer', got 'B'; .*answer_type"):
        solved(path)


def test_a_question_names_its_kind():
    with SoftReasoner.from_pretrained("demo", method="cot", max_new_tokens=20) as reasoner:
        mixed = [ROWS[0]["question"], {"question": "Is 7 prime?", "answer_type": "boolean"}]
        numbers, truths = reasoner.solve(mixed)
        assert truths.candidates and numbers.answer != truths.answer
        assert reasoner.problem(mixed[1]).answer_type == "boolean"
        with pytest.raises(UserError, match="answer_type: expected one of"):
            reasoner.solve({"question": "Is it?", "answer_type": "bool"})
