"""The shipped exemplars: complete, and right."""

import itertools
import re
from fractions import Fraction
from math import gcd

import pytest

from soft_reasoning.answers import extract
from soft_reasoning.configuration.build import build_dataset
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.data.exemplars import Exemplar, from_config
from soft_reasoning.types import UserError

BENCHMARKS = ("gsm8k", "gsm_hard", "svamp", "strategyqa", "aime_2024", "aime_2025")
TERM = r"-?\d+(?:\.\d+)?"
CHAIN = re.compile(rf"(?<![\d.^])({TERM}(?: [-+*/] {TERM})+) = ({TERM})(?!\d)")


def shipped(name):
    return build_dataset(compose_config([f"dataset={name}", "dataset.shots=8"])).exemplars()


@pytest.mark.parametrize("name", BENCHMARKS)
def test_eight_complete_exemplars(name):
    exemplars = shipped(name)
    assert len({exemplar.question for exemplar in exemplars}) == 8
    kind = "boolean" if name == "strategyqa" else "number"
    for exemplar in exemplars:
        shown = f"{exemplar.thought}\nAnswer: {exemplar.answer}"
        assert extract(shown, kind, mode="strict") == exemplar.answer
        assert "Question:" not in shown and "\n\n" not in shown


@pytest.mark.parametrize("name", BENCHMARKS)
def test_their_arithmetic_is_right(name):
    checked = 0
    for exemplar in shipped(name):
        for left, right in CHAIN.findall(exemplar.thought):
            exact = eval(re.sub(TERM, lambda term: f"Fraction('{term.group()}')", left))
            assert exact == Fraction(right), (exemplar.question, left, right)
            checked += 1
    assert checked >= (2 if name == "strategyqa" else 8)


@pytest.mark.parametrize("name", ["gsm8k", "gsm_hard", "svamp"])
def test_their_reasoning_ends_on_the_answer(name):
    for exemplar in shipped(name):
        assert re.findall(TERM, exemplar.thought)[-1] == exemplar.answer or name == "gsm8k"
        assert exemplar.answer in exemplar.thought


def test_strategyqa_answers_are_balanced():
    assert [exemplar.answer for exemplar in shipped("strategyqa")].count("True") == 4


def drawn_marbles():
    draws = list(itertools.combinations("R" * 5 + "B" * 7, 3))
    good = sum(draw.count("R") == 2 for draw in draws)
    return (good + len(draws)) // gcd(good, len(draws))


def sequence():
    a = 2
    for n in range(1, 50):
        a += 2 * n + 1
    return a % 1000


def triangle():
    area = Fraction(84)  # 16 area^2 = (a+b+c)(-a+b+c)(a-b+c)(a+b-c)
    assert 16 * area**2 == (13 + 14 + 15) * (-13 + 14 + 15) * (13 - 14 + 15) * (13 + 14 - 15)
    return 8 * (area / 21) * (Fraction(13 * 14 * 15) / (4 * area))


def test_aime_answers_by_another_way():
    expected = [
        sum((n * n + n) % 15 == 0 for n in range(1, 501)),
        drawn_marbles(),
        sequence(),
        sum(d for d in range(6, 181, 6) if 180 % d == 0),
        pow(7, 2026, 100),
        triangle(),
        sum("LL" not in "".join(word) for word in set(itertools.permutations("BALLOON"))),
        10**3 - 3 * 17 * 10,
    ]
    assert [int(exemplar.answer) for exemplar in shipped("aime_2024")] == expected


def test_a_file_of_ones_own(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("- {question: How many, thought: Just one., answer: 1}\n", encoding="utf-8")
    expected = [Exemplar("How many", "Just one.", "1")]
    assert from_config(str(file)) == expected
    options = ["dataset=gsm8k", f"dataset.exemplars={file}", "dataset.shots=1"]
    assert build_dataset(compose_config(options)).exemplars() == expected


def test_the_exemplars_of_another_benchmark():
    config = compose_config(["dataset=gsm8k", "exemplars@dataset=svamp", "dataset.shots=8"])
    assert build_dataset(config).exemplars() == shipped("svamp")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {question: q, answer: 1}", "entry 1: expected a field 'thought'"),
        ("- {question: '', thought: t, answer: 1}", "entry 1: expected text in field 'question'"),
        ("just text", "expected a"),
        ("a: [", "expected a YAML file"),
        ("rows: []", "expected a list of entries"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, message):
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        from_config(str(file))


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="expected a YAML file"):
        from_config(str(tmp_path / "none.yaml"))
