"""Every real gold row that lies beside the checkout loads, and no exemplar is one of them."""

import os
from pathlib import Path

import pytest

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.lab.data import build_dataset

CHECKOUT = Path(__file__).resolve().parents[3]
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


@pytest.mark.parametrize("name", FILES)
def test_all_rows_load_and_no_exemplar_is_one_of_them(name):
    file, count = FILES[name]
    options = [f"dataset={name}", f"dataset.path={DATA / file}", "dataset.shots=8"]
    dataset = build_dataset(compose_config(options))
    loaded = dataset.problems()
    assert len(loaded) == count == len({problem.id for problem in loaded})
    assert all(problem.question and problem.gold and problem.answer_type for problem in loaded)
    asked = {words(problem.question) for problem in loaded}
    assert not asked & {words(exemplar.question) for exemplar in dataset.exemplars()}


def words(text):
    return " ".join("".join(c if c.isalnum() else " " for c in text.lower()).split())
