import csv
import json

import pytest

from soft_reasoning.data.sources import Hub, read_file, read_hub
from soft_reasoning.types import UserError

DOCS = [{"question": 'One, "two"\nthree — 3?', "answer": "3"}, {"question": "Four?", "answer": "4"}]


def write(file, text):
    file.write_text(text, encoding="utf-8")
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
    assert [row.where.rpartition("rows")[2] for row in read_file(lines)] == [".jsonl line 1", ".jsonl line 3"]
    assert [row.where.rpartition("rows")[2] for row in read_file(str(tmp_path / "rows.csv"))] == [
        ".csv row 1", ".csv row 2",
    ]  # fmt: skip


def test_parquet(tmp_path):
    from pyarrow import Table, parquet

    parquet.write_table(Table.from_pylist(DOCS), tmp_path / "rows.parquet")
    assert docs(str(tmp_path / "rows.parquet")) == DOCS


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rows.jsonl", '{"a": 1}\n{"a": \n', "rows.jsonl line 2: expected JSONL in UTF-8, got an error"),
        ("rows.jsonl", '{"a": 1}\n[1]\n', "rows.jsonl line 2: expected an object with fields, got list"),
        ("rows.json", '{"a": 1}', "expected a JSON array of objects, got dict"),
        ("rows.csv", "a,b\n1,2\n1\n", "rows.csv row 2: expected the columns of its first line, got fewer"),
        ("rows.csv", f"a,b\n1,2\n1,{'2' * 131_073}\n", "rows.csv row 1: expected CSV in UTF-8, got an error"),
        ("rows.parquet", "text", "expected PARQUET"),
        ("rows.txt", "a", "expected a file ending in .jsonl"),
    ],
)
def test_broken_files_are_named_in_one_line(tmp_path, name, text, message):
    with pytest.raises(UserError, match=message) as caught:
        read_file(write(tmp_path / name, text))
    assert "\n" not in str(caught.value)


def test_data_that_cannot_be_had_name_the_three_ways(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise ConnectionError("no\nnetwork")

    monkeypatch.setattr("datasets.load_dataset", fail)
    hub, none = Hub("owner/name", "test"), str(tmp_path / "none.jsonl")
    for read in (lambda: read_file(none, hub), lambda: read_hub(hub, "dataset.path")):
        with pytest.raises(UserError) as caught:
            read()
        for way in ("the hub as owner/name", "HF_HOME=<folder> HF_HUB_OFFLINE=1", "dataset.path=<local file"):
            assert way in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(UserError, match="no file .*; give the path of an existing file"):
        read_file(none)
