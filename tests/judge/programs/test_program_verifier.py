"""The verifier that computes: what it asks, how it scores and votes, and what it says of itself."""

from dataclasses import replace

import pytest

from soft_reasoning import SoftReasoner, reasoner
from soft_reasoning.cli.compose import compose_config
from soft_reasoning.judge.programs import ProgramVerifier, Sandbox
from soft_reasoning.judge.programs.writing import code_of
from soft_reasoning.lab.runs import runner
from soft_reasoning.schedule.scheduler import drive
from soft_reasoning.types import Candidate, UserError
from tests.judge.programs.programming import BROKEN, NOTHING, PROBLEM, RIGHT, WRONG, Programmer, solved, world

CANDIDATES = [
    Candidate("7 + 8 = 15. Answer: 15", "15", 0),
    Candidate("?", None, 0),
    Candidate("11", "11.0", 0),
]
BEST = ["method=best_of_n", "verifier=program", "k=3"]
ONCE = ["method=verified_sampling", "rounds=0", "verifier=program", "k=3"]


def judge(programs, candidates=CANDIDATES, earlier=(), **options):
    """(the verdict, the engine)."""
    engine = Programmer(programs)
    _, context = world(engine)
    steps, verdict = ProgramVerifier(**options).verify(PROBLEM, candidates, context, earlier), None
    try:
        effect = next(steps)
        while True:
            effect = steps.send(engine.generate(effect.requests))
    except StopIteration as stop:
        verdict = stop.value
    return verdict, engine


def test_the_score_is_the_share_of_the_programs_with_an_answer_that_agree():
    verdict, engine = judge([RIGHT, WRONG, BROKEN, RIGHT])
    assert verdict.scores == pytest.approx((2 / 3, 0, 1 / 3))
    assert verdict.answers == ("15", "11", None, "15") and verdict.weights == (1.0,) * 4
    assert engine.greedy == [True, False, False, False] and not engine.texts
    assert len({request.seed for request in engine.asked}) == 4
    assert {request.role for request in engine.asked} == {"verifier"}


def test_without_an_answer_of_a_program_nothing_is_said():
    verdict, _ = judge([BROKEN, NOTHING])
    assert verdict.scores == (None, None, None) and verdict.answers == (None,) * 4
    none, _ = judge([RIGHT], candidates=[])
    assert none.scores == () and none.answers == ("15",) * 4


def test_texts_show_programs_values_and_errors():
    verdict, engine = judge([RIGHT, BROKEN, NOTHING], samples=3)
    right, broken, nothing = verdict.texts
    assert right == f"```python\ndef solution():\n{RIGHT}\n```\nAnswer: 15"
    assert broken.endswith("```\nError: ZeroDivisionError: division by zero\nAnswer: no answer")
    assert "expected an answer of type number, got a value of type NoneType" in nothing
    assert len(verdict.prompts) == 3 and PROBLEM.question in verdict.prompts[0]
    _, context = world(engine)
    for text, answer in zip(verdict.texts, verdict.answers, strict=True):
        assert context.grader.extract(text, "number") == answer, "a record can be read again"


def test_programs_are_written_once():
    first, _ = judge([RIGHT, RIGHT, WRONG, BROKEN])
    later, engine = judge([RIGHT], earlier=[first])
    assert later.scores == first.scores and later.answers == () and not engine.asked


def test_programs_vote_like_fresh_solutions():
    """Three candidates of one answer weigh 3, the verifier's answers together its weight."""
    engine = Programmer([RIGHT], answers=["11"])
    votes = [*ONCE, "final=vote"]
    assert solved(engine, *votes).answer == "11"
    assert solved(Programmer([RIGHT], answers=["11"]), *votes, "final.verifier_weight=4").answer == "15"
    split = solved(Programmer([RIGHT], answers=["11", "12", "15"]), *votes)
    assert split.answer == "15", "the programs break the tie"


def test_the_best_candidate_is_the_one_that_programs_agree_with():
    result = solved(Programmer([RIGHT, WRONG, RIGHT, BROKEN], answers=["11", "12", "15"]), *BEST)
    assert result.answer == "15"
    assert [c.verified for c in result.candidates] == pytest.approx([1 / 3, 0, 2 / 3])
    assert result.usage["verifier"].sequences == 4


START = "```python\ndef solution():\n"


@pytest.mark.parametrize(
    "text",
    [
        START + "    return 5\n```\nIt returns 5.",
        START + "def solution():\n    return 5\n```",
        START + "def half(x):\n    return x / 2\ndef solution():\n    return half(10)\n```",
        START + "Here is the code:\n```python\ndef solution():\n    return 5\n```",
        START + "total = 2 + 3\nreturn total",
        "```text\nAdd 2 and 3.\n```\n```python\ndef solution():\n    return 5\n```",
        START.replace("\n", "\r\n") + "    return 5\r\n```\r\nIt returns 5.",
        START + '    note = "a ``` b"\n    return 5\n```\nIt returns 5.',
        "def solution():\n    return 5",
    ],
)
def test_a_program_is_found_whatever_its_fence(text):
    [outcome] = Sandbox().run([code_of(text)])
    assert (outcome.value, outcome.error) == (5, None)


@pytest.mark.parametrize("prompt", ["boolean", "any", "code", "json", "demo"])
def test_where_programs_do_not_apply_one_line_says_so_before_a_model_is_loaded(prompt, monkeypatch):
    monkeypatch.setattr(runner, "build_engine", None)  # calling it fails
    monkeypatch.setattr(reasoner, "build_engine", None)
    expected = "which the bundled model cannot"
    for option, name in (("verifier", "program"), ("method", "program"), ("method", "mixed_consistency")):
        searched = ["method=soft_reasoning"] if option == "verifier" else []
        config = compose_config([f"prompt={prompt}", f"{option}={name}", *searched])
        with pytest.raises(UserError, match=expected):
            runner.LocalLauncher().start(config, [PROBLEM])
        if prompt != "any":  # whose questions may name a number as their type of answer
            with pytest.raises(UserError, match=expected):
                SoftReasoner.from_pretrained(
                    "demo", prompt=prompt, **{"method": "soft_reasoning", option: name}
                )


@pytest.mark.parametrize("kind", ["open", "json", "code"])
def test_a_question_that_no_program_computes_is_answered_in_words_or_refused(kind):
    engine, problem = Programmer(), replace(PROBLEM, answer_type=kind)
    result = solved(engine, *BEST, problem=problem)
    assert not engine.asked and all(candidate.verified is None for candidate in result.candidates)
    with pytest.raises(UserError, match=f"got a question with an answer of type {kind}; use verifier="):
        solved(engine, "method=program", problem=problem)


def test_another_model_may_write_the_programs():
    writer, solver = Programmer([RIGHT]), Programmer([WRONG], answers=["11", "15"])
    method, context = world(solver, *BEST)
    method = replace(method, verifier=replace(method.verifier, model="other"))
    judges = {"other": replace(context, engine=writer)}
    [(_, result)] = drive([PROBLEM], method, replace(context, judges=judges))
    assert result.answer == "15" and len(writer.asked) == 4 and not solver.asked and not writer.texts


@pytest.mark.parametrize(
    "options", [{"method": "mixed_consistency"}, {"method": "verified_sampling", "verifier": "program"}]
)
def test_where_programs_are_written_questions_have_numbers_as_answers(options):
    with SoftReasoner.from_pretrained("some/model", engine="fake", **options) as reasoner:
        assert reasoner.answer_type == "number"
        assert "program" in reasoner.context.prompts.wording.tasks
    with SoftReasoner.from_pretrained("some/model", method="cot", engine="fake") as reasoner:
        assert reasoner.answer_type == "open"
