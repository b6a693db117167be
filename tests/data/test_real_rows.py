"""Every real gold row that lies beside the checkout: it loads, and ten phrasings of its answer are read."""

import functools
import os
from pathlib import Path

import pytest

from soft_reasoning.answers import Grader, extract
from soft_reasoning.configuration.build import build_dataset
from soft_reasoning.configuration.compose import compose_config
from soft_reasoning.data.benchmarks import gsm8k_solution

CHECKOUT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("SOFT_REASONING_DATA", CHECKOUT.parent / "shared" / "data"))
FILES = {
    "gsm8k": ("gsm8k_test.jsonl", 660),
    "gsm_hard": ("gsm_hard.jsonl", 660),
    "svamp": ("svamp.jsonl", 500),
    "strategyqa": ("strategyqa.jsonl", 1145),
}
pytestmark = pytest.mark.skipif(
    not all((DATA / file).is_file() for file, _ in FILES.values()),
    reason=f"no benchmark rows in {DATA}; SOFT_REASONING_DATA names another folder",
)

NUMBER_PHRASINGS = (
    "Answer: {plain}",
    "Answer: {point}",
    "Answer: ${commas}.",
    "**Answer:** {commas} units\n\nQuestion:\nTom has 5 apples and eats 2. How many are left?\nAnswer: 3",
    "Answer: \\boxed{{{latex}}}",
    "So the answer is {typographic}.",
    "Final answer: x = {typographic}, because 2 + 2 = 4",
    "Answer: {plain} + 0 = {plain}",
    "#### {commas}",
    "This leaves \\(\\boxed{{{plain}}}\\). That was question 3 of 7.",
)
BOOLEAN_PHRASINGS = (
    "Answer: {truth}",
    "Answer: {word}.",
    "Answer: {word}, that is certain.",
    "**Answer:** {truth}",
    "**Answer**: **{word}**\n\nQuestion:\nIs water dry?\nAnswer: {other}",
    "Answer:\n{lower}",
    "Answer: \\boxed{{\\text{{{truth}}}}}",
    "So the answer is {lower}.",
    "Nobody knows a reason against it. Therefore, {lower}.",
    "True or false? {truth}.",
)


@functools.cache
def problems(name):
    file, _ = FILES[name]
    return build_dataset(compose_config([f"dataset={name}", f"dataset.path={DATA / file}"])).problems()


@pytest.mark.parametrize("name", FILES)
def test_all_rows_load(name):
    loaded = problems(name)
    assert len(loaded) == FILES[name][1] == len({problem.id for problem in loaded})
    assert all(problem.question and problem.gold and problem.answer_type for problem in loaded)


def number_forms(gold):
    commas = f"{int(gold.partition('.')[0]):,}" + "".join(gold.partition(".")[1:])
    commas = f"-{commas}" if gold.startswith("-0") else commas
    return {
        "plain": gold,
        "point": gold if "." in gold else f"{gold}.0",
        "commas": commas,
        "latex": commas.replace(",", "{,}"),
        "typographic": commas.replace("-", "−"),
    }


@pytest.mark.parametrize("name", ["gsm8k", "gsm_hard", "svamp"])
@pytest.mark.parametrize("phrasing", NUMBER_PHRASINGS)
def test_numbers_are_recovered(name, phrasing):
    missed = []
    for problem in problems(name):
        before = gsm8k_solution(problem.doc)[0] if name == "gsm8k" else "First we count 12 + 30 = 42 things."
        text = f"{before}\n{phrasing.format(**number_forms(problem.gold))}"
        answer = extract(text, "number")
        if answer != problem.gold or not Grader().correct(answer, problem):
            missed.append((problem.id, problem.gold, answer))
    assert not missed


@pytest.mark.parametrize("phrasing", BOOLEAN_PHRASINGS)
def test_booleans_are_recovered(phrasing):
    missed = []
    for problem in problems("strategyqa"):
        word, other = ("Yes", "No") if problem.gold == "True" else ("No", "Yes")
        facts = " ".join(problem.doc["facts"])
        text = f"{facts}\n" + phrasing.format(truth=problem.gold, word=word, lower=word.lower(), other=other)
        if extract(text, "boolean") != problem.gold:
            missed.append((problem.id, problem.gold, text))
    assert not missed


@pytest.mark.parametrize("name", FILES)
def test_exemplars_are_not_in_the_data(name):
    dataset = build_dataset(
        compose_config([f"dataset={name}", f"dataset.path={DATA / FILES[name][0]}", "dataset.shots=8"])
    )
    asked = {words(problem.question) for problem in dataset.problems()}
    assert not asked & {words(exemplar.question) for exemplar in dataset.exemplars()}


def words(text):
    return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())
