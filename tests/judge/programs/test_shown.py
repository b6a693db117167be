"""Records, explain() and the page show programs with what they came to."""

import json

from soft_reasoning.answers import Grader
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.configuration.context import build_method
from soft_reasoning.judge.final import stored_verdicts
from soft_reasoning.lab.reports.page import rounds_of
from soft_reasoning.lab.runs.grading import grade, read_answers
from soft_reasoning.lab.runs.records import Record
from soft_reasoning.solution import Solution
from tests.judge.programs.programming import BROKEN, PROBLEM, RIGHT, Programmer, solved

BEST = ["method=best_of_n", "verifier=program", "k=2", "verifier.samples=2"]
ONCE = ["method=verified_sampling", "rounds=0", *BEST[1:]]


def shown(*options, answers=("11", "15")):
    result = solved(Programmer([RIGHT, BROKEN], answers=answers), *options)
    final = getattr(build_method(compose_config(["prompt=math", *options])), "final", None)
    solution = Solution.of(result, PROBLEM, "m", final, Grader())
    record = Record.read(json.loads(json.dumps(Record.new(PROBLEM, result, Grader()).line())))
    return solution, record


def test_a_verifier_s_programs_are_explained_and_stored():
    solution, record = shown(*BEST)
    text = solution.explain()
    assert f"  verifier:\n    def solution():\n    {RIGHT}\n    Answer: 15" in text
    assert "    Error: ZeroDivisionError: division by zero\n    Answer: no answer" in text
    [stored] = stored_verdicts(record.result.trace)
    assert stored.answers == ("15", None) and "return 7 / 0" in stored.texts[1]
    [shown_round] = rounds_of(record, grade(record, Grader()))
    assert shown_round["verdict"] == stored and shown_round["rights"] == [True, False]


def test_a_program_that_answers_alone_is_the_text():
    solution, _ = shown(*ONCE, "final=vote", "final.verifier_weight=9", answers=("11", "12"))
    assert solution.answer == "15" and solution.text.startswith("```python\ndef solution():")


def test_records_of_programs_are_graded_and_read_again():
    for options in (["method=program_consistency", "k=2"], ["method=mixed_consistency"], BEST):
        _, record = shown(*options)
        assert grade(record, Grader()).correct is True
        for grader in (Grader(), Grader(extraction="strict")):
            answer, answers = read_answers(record, grader)
            assert answer == "15" and answers == [c.answer for c in record.result.candidates]
