import csv
import json

import pytest

from soft_reasoning.lab.data.sources import Hub, read_file, read_hub
from soft_reasoning.types import UserError

DOCS = [{"question": 'One, "two"\nthree — 3?', "answer": "3"}, {"question": "Four?", "answer": "4"}]


def write(file, text):
    file.write_text(text, encoding="utf-8", newline="")
    return str(file)


def docs(path):
    return [dict(row.doc) for row in read_file(path)]


def test_every_layout_gives_the_same_rows(tmp_path):
    lines = write(tmp_path / "rows.jsonl", "\ufeff" + "\n\n".join(json.dumps(doc) for doc in DOCS))
    array = write(tmp_path / "rows.json", json.dumps(DOCS, indent=1))
    with (tmp_path / "rows.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, DOCS[0])
        writer.writeheader()
        writer.writerows(DOCS)
    assert docs(lines) == docs(array) == docs(str(tmp_path / "rows.csv")) == DOCS
    assert [row.where for row in read_file(lines)] == [f"{lines} line 1", f"{lines} line 3"]


def test_values_stay_as_they_are_written(tmp_path):
    from pyarrow import Table, parquet

    text = write(tmp_path / "rows.csv", "id,question,answer,,\n007,NA,1.0,,\ntrue,nan,1e5,,\n")
    assert [list(doc.values())[:3] for doc in docs(text)] == [["007", "NA", "1.0"], ["true", "nan", "1e5"]]
    rows = '{"answer": 7, "id": true}\n{"answer": 123456789012345678901234567890}\n{"note": 1.0}'
    assert docs(write(tmp_path / "rows.jsonl", rows)) == [
        {"answer": 7, "id": True},
        {"answer": 123456789012345678901234567890},
        {"note": 1.0},
    ]
    typed = [{"answer": 7, "choices": ["x", "y"]}, {"answer": None, "choices": None}]
    parquet.write_table(Table.from_pylist(typed), tmp_path / "rows.parquet")
    assert docs(str(tmp_path / "rows.parquet")) == typed


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rows.jsonl", '{"a": 1}\n{"a": \n', "after .*rows.jsonl line 1: expected JSONL in UTF-8"),
        ("rows.json", '{"a": 1}', "no list of objects"),
        ("rows.csv", "a,b\n1,2\n1\n", "after .*rows.csv row 1: .*more or fewer fields"),
        ("rows.csv", "question,note,answer,note\n1?,a,2,b\n", "the column 'note' twice"),
        ("rows.txt", "a", "expected a file ending in .jsonl"),
    ],
)
def test_broken_files_are_named_in_one_line(tmp_path, name, text, message):
    with pytest.raises(UserError, match=message) as caught:
        read_file(write(tmp_path / name, text))
    assert "\n" not in str(caught.value) and name in str(caught.value)


def test_data_that_cannot_be_had_name_the_three_ways(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ConnectionError("no\nnetwork")

    monkeypatch.setattr("datasets.load_dataset", fail)
    hub, none = Hub("owner/name", "test"), str(tmp_path / "none.jsonl")
    for read in (lambda: read_file(none, hub), lambda: read_hub(hub)):
        with pytest.raises(UserError) as caught:
            read()
        for way in ("the hub as owner/name", "HF_HOME=<folder> HF_HUB_OFFLINE=1", "dataset.path=<local file"):
            assert way in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(UserError, match="no file .*; give the path of an existing file"):
        read_file(none)
