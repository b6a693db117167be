"""Methods in which programs vote: one program, several, and solutions in words beside them."""

import pytest

from tests.judge.programs.programming import BROKEN, RIGHT, WRONG, Programmer, solved

MIXED = "method=mixed_consistency"
ALL = "method.confidence=1"


def test_one_greedy_program():
    engine = Programmer([RIGHT])
    result = solved(engine, "method=program")
    assert result.answer == "15" and engine.greedy == [True] and not engine.texts
    [candidate] = result.candidates
    assert candidate.text.startswith("```python\ndef solution():") and candidate.generated_tokens == 2
    assert "def solution():" in "".join(result.prompt), "the prompt that it was asked with"
    assert solved(Programmer([BROKEN]), "method=program").answer is None


def test_a_majority_of_programs():
    engine = Programmer([WRONG, RIGHT, BROKEN, RIGHT])
    result = solved(engine, "method=program_consistency")
    assert result.answer == "15" and engine.greedy == [True, False, False, False]
    assert [c.answer for c in result.candidates] == ["11", "15", None, "15"]
    assert solved(Programmer([WRONG, RIGHT]), "method=program_consistency").answer == "11", "first wins a tie"
    assert len(solved(Programmer(), "method=program_consistency", "k=6").candidates) == 6


def test_solutions_and_programs_vote_together():
    engine = Programmer([RIGHT, RIGHT, BROKEN], answers=["11", "15", "12"])
    result = solved(engine, MIXED, ALL, "k=3", "method.programs.samples=3")
    assert result.answer == "15" and len(engine.texts) == 3 and len(engine.asked) == 3
    assert [c.answer for c in result.candidates] == ["11", "15", "12", "15", "15", None]
    assert result.trace[0]["weights"] == [1.0] * 6
    assert all(request.sampling.temperature == 0.8 for request in engine.texts)


@pytest.mark.parametrize(
    ("programs", "answers", "texts", "answer"),
    [
        ([RIGHT], ["11"], 0, "15"),  # four of four: .97
        ([RIGHT, RIGHT, BROKEN, BROKEN], ["11"], 0, "15"),  # two of two: .875
        ([RIGHT, RIGHT, BROKEN, WRONG], ["11"], 4, "11"),  # five of seven: .855
        ([RIGHT, RIGHT, BROKEN, WRONG], ["15", "15", "11"], 2, "15"),
        ([BROKEN], ["15", "15", "11"], 2, "15"),
        ([BROKEN], ["15", "11", "12", "13", "14"], 5, "15"),
    ],
)
def test_solutions_follow_until_the_vote_is_settled(programs, answers, texts, answer):
    engine = Programmer(programs, answers=answers)
    result = solved(engine, MIXED, "method.wave=1")
    assert (len(engine.texts), result.answer) == (texts, answer)
    for wave in (2, 5):  # a wave is written whole, and more solutions change no settled vote here
        again = Programmer(programs, answers=answers)
        assert solved(again, MIXED, f"method.wave={wave}").answer == answer
        assert len(again.texts) == min(5, -(-texts // wave) * wave)
        assert [text.seed for text in engine.texts] == [text.seed for text in again.texts][:texts]


def test_programs_that_err_together_can_be_outvoted():
    """Three solutions against four programs with the same wrong answer."""

    def answer(*options):
        return solved(Programmer([WRONG], answers=["15"]), MIXED, ALL, "k=3", *options)

    assert answer().answer == "11"
    half = answer("method.repeat_weight=0.5")
    assert half.answer == "15" and half.trace[0]["weights"][3:] == [1, 0.5, 0.25, 0.125]
    assert answer("method.program_weight=0.5").answer == "15"
    assert answer("method.repeat_weight=0").trace[0]["weights"][3:] == [1, 0, 0, 0]


def test_the_programs_are_those_of_the_verifier():
    engines = [Programmer(), Programmer(), Programmer()]
    for engine, options in zip(
        engines,
        (["method=program_consistency"], [MIXED], ["method=best_of_n", "verifier=program"]),
        strict=True,
    ):
        solved(engine, *options)
    sent = [[(r.prompt_ids, r.seed, r.sampling, r.stop) for r in engine.asked] for engine in engines]
    assert sent[0] == sent[1] == sent[2] and len(sent[0]) == 4
