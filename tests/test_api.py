"""SoftReasoner, and the README's lines of Python, on the bundled model."""

import re
from pathlib import Path

import pytest

from soft_reasoning import SoftReasoner, UserError

QUESTIONS = [
    "Ada has 31 apples. Ada buys 3 packs of 7 apples. Ada loses 12. How many apples does Ada have now?",
    "Ben has 40 books. Ben gives 4 to each of 5 friends. How many books does Ben have now?",
    "Eva has 18 coins. Then Eva doubles the coins. Jon also finds 5 coins. How many coins does Eva have now?",
]


@pytest.fixture(scope="module")
def reasoner():
    return SoftReasoner.from_pretrained("demo", overrides=["search.rounds=1"])


def test_one_question_gives_one_result(reasoner):
    result = reasoner.solve(QUESTIONS[0])
    assert result.answer is not None and len(result.candidates) in (5, 10)
    assert result.trace[0]["round"] == 0 and "ended" in result.trace[-1]
    assert result.usage["candidate"].sequences == len(result.candidates)


def test_a_list_gives_what_each_question_gets_alone(reasoner):
    together = reasoner.solve(QUESTIONS)
    alone = [reasoner.solve(q) for q in reversed(QUESTIONS)][::-1]
    assert [r.answer for r in together] == [r.answer for r in alone]
    assert [[c.reward for c in r.candidates] for r in together] == [
        [c.reward for c in r.candidates] for r in alone
    ]


def test_other_methods_by_override():
    result = SoftReasoner.from_pretrained("demo", overrides=["method=cot"]).solve(QUESTIONS[1])
    assert len(result.candidates) == 1 and result.trace == ()


@pytest.mark.parametrize("bad", ["", "   ", {"question": None}, {"text": "hello"}])
def test_an_empty_question_is_refused(reasoner, bad):
    with pytest.raises(UserError, match="expected a question"):
        reasoner.solve(bad)


def test_a_question_longer_than_the_context_is_refused(reasoner):
    with pytest.raises(UserError, match="the model takes 1024"):
        reasoner.solve("Ada has 3 apples. " * 300)


def test_unknown_options_are_one_line():
    with pytest.raises(UserError, match="telepathy"):
        SoftReasoner.from_pretrained("demo", overrides=["method=telepathy"])


def test_the_readme_example_runs(capsys):
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip()
