"""Exemplars from a user's file."""

import pytest

from soft_reasoning.cli.compose import compose_config
from soft_reasoning.lab.data import build_dataset
from soft_reasoning.lab.data.dataset import read_exemplars
from soft_reasoning.prompts import Exemplar
from soft_reasoning.types import UserError


def test_a_file_of_ones_own(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("- {question: How many, thought: Just one., answer: 1}\n", encoding="utf-8")
    expected = [Exemplar("How many", "Just one.", "1")]
    options = ["dataset=gsm8k", f"dataset.exemplars={file}", "dataset.shots=1"]
    assert build_dataset(compose_config(options)).exemplars() == read_exemplars(str(file)) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {question: q, answer: 1}", "row 1: expected a field 'thought'"),
        ("rows: []", "no list of objects"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, message):
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_exemplars(str(file))
