"""experiments/verifier_accuracy.py: figures on hand-computed cases, and a whole run on the fake engine."""

import math

from experiments import verifier_accuracy as script
from soft_reasoning.answers import Grader
from soft_reasoning.rewards.verifiers import Verdict
from soft_reasoning.types import Candidate, Problem, Result, Usage

GRADER = Grader()


def result(name, gold, answers, scores, own):
    """A problem with candidates of these answers, and a verdict with these scores and own answer."""
    candidates = tuple(
        Candidate("", a, 0, coherence=0.5, verified=s, reward=s) for a, s in zip(answers, scores, strict=True)
    )
    verdict = Verdict(tuple(scores), (own,), ("",), (1.0,))
    usage = {"verifier": Usage(generated_tokens=10)}
    return Problem(name, "?", gold), Result(own, candidates, ({"verdict": verdict},), usage)


RESULTS = [
    result("a", "1", ["1", "1", "2"], [1.0, 1.0, 0.0], "1"),  # all verdicts right
    result("b", "3", ["4", "4", "3"], [0.0, 0.0, 1.0], "3"),  # contested, and the verifier knows better
    result("c", "5", ["6", "6", "5"], [1.0, 1.0, 0.0], "6"),  # contested, and it does not
    result("d", "7", ["8", "8", "8"], [0.0, 0.0, 0.0], "9"),  # nobody right
]


def test_figures():
    cells = script.row(RESULTS, GRADER)
    # 9 of 12 verdicts are right: 3 of 4 right candidates are called right, 6 of 8 wrong ones wrong
    assert cells[:4] == ["75.0", "75.0", "66.7", "41.7"]  # AUC 1, 1, 0; called right 5 of 12
    assert cells[4].startswith("50.0") and cells[5].startswith("50.0")
    assert cells[6].startswith("25.0")  # votes: 1, 4 (two to two, seen first), 6, 8
    assert cells[7] == "10"


def test_auc():
    assert script.auc([0.9, 0.5, 0.5, 0.1], [True, True, False, False]) == 0.875
    assert math.isnan(script.auc([1.0], [True]))


def test_contested_needs_a_wrong_majority_and_a_right_candidate():
    assert [script.contested(p, r.candidates, GRADER) for p, r in RESULTS] == [False, True, True, False]


def test_an_answer_that_cannot_be_read_is_no_answer():
    problem, judged = RESULTS[0]
    silent = Verdict((0.0,) * 3, (None,), ("",), (1.0,))
    assert script.own_answer(judged.candidates, silent, problem, GRADER) is None
    judge = Verdict((0.0, 1.0, 0.0))
    assert script.own_answer(judged.candidates, judge, problem, GRADER) == "1"


def test_on_the_fake_engine(capsys):
    verifiers = {
        name: script.VERIFIERS[name] for name in ("multi_generate", "single_judge", "oracle", "none")
    }
    text = script.measure(["engine=fake", "max_new_tokens=30"], 3, verifiers)
    assert "3 problems, 15 candidates" in text and "\n| oracle | 100.0 |" in text
    assert len(capsys.readouterr().out.splitlines()) == 4
