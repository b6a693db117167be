import csv
import json

import pytest

from soft_reasoning.lab.data.sources import Hub, read_file, read_hub
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
        ".csv row 1",
        ".csv row 2",
    ]


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
        ("rows.json", '["{\\"a\\": 1}"]', "rows.json element 1: expected an object with fields, got str"),
        ("rows.csv", "a,b\n1,2\n1\n", "rows.csv row 2: expected the columns of its first line, got fewer"),
        ("rows.csv", 'a,b\n1,2\n3,"4\n5,6\n', "rows.csv row 2: expected CSV, got .*unexpected end"),
        (
            "rows.csv",
            'a,b\n"1" x,2\n',
            "rows.csv row 1: expected CSV, got .*; put a field that begins with a quote",
        ),
        ("rows.csv", "", "rows.csv: expected at least one row, got none"),
        (
            "rows.csv",
            "question,answer\n",
            "rows.csv: expected at least one row, got none; the first line of a CSV",
        ),
        ("rows.jsonl", "\n\n", "rows.jsonl: expected at least one row, got none"),
        ("rows.json", "[]", "rows.json: expected at least one row, got none"),
        ("rows.parquet", "text", "expected PARQUET"),
        ("rows.txt", "a", "expected a file ending in .jsonl"),
    ],
)
def test_broken_files_are_named_in_one_line(tmp_path, name, text, message):
    with pytest.raises(UserError, match=message) as caught:
        read_file(write(tmp_path / name, text))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(
    "text", ["", "\n", "\n\n\n", "q,a", "q,a\n", "q,a\r\n", '"q","a"\n\n', "   \n", ",\n"]
)
def test_a_csv_file_without_rows_says_what_its_first_line_is(tmp_path, text, mark):
    with pytest.raises(UserError, match="one row, got none; the first line of a CSV file holds") as caught:
        read_file(write(tmp_path / "rows.csv", mark + text))
    assert "\n" not in str(caught.value)


TWICE = {
    "a column": ("rows.csv", "question,answer,answer\n1?,2,3\n", "answer"),
    "a quoted column": ("rows.csv", 'question,"answer",answer\n1?,2,3\n', "answer"),
    "a column that is not read": ("rows.csv", "question,note,answer,note\n1?,a,2,b\n", "note"),
    "three columns": ("rows.csv", "a,a,a\n1,2,3\n", "a"),
    "a column after a byte-order mark": ("rows.csv", "\ufeffanswer,question,answer\n1,2?,3\n", "answer"),
    "the id": ("rows.csv", "id,question,id,answer\n1,2?,3,4\n", "id"),
    "a name with spaces": ("rows.csv", "the answer,q,the answer\n1,2?,3\n", "the answer"),
    "a field": ("rows.jsonl", '{"question": "1?", "answer": 2, "answer": 3}\n', "answer"),
    "a field of a later line": ("rows.jsonl", '{"q": "1?"}\n{"q": "2?", "q": "3?"}\n', "q"),
    "an escaped field": ("rows.jsonl", '{"answer": 1, "\\u0061nswer": 2}\n', "answer"),
    "a field inside": ("rows.jsonl", '{"choices": {"text": ["a"], "text": ["b"]}}\n', "text"),
    "a field of an array's object": ("rows.json", '[{"answer": 1}, {"answer": 1, "answer": 1}]', "answer"),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_column_that_is_there_twice_is_named(tmp_path, name):
    file, text, column = TWICE[name]
    with pytest.raises(
        UserError, match=f"{file}.*: expected each column once, got '{column}' again; rename"
    ) as line:
        read_file(write(tmp_path / file, text))
    assert "\n" not in str(line.value)


def test_columns_without_a_name_are_no_column(tmp_path):
    rows = docs(write(tmp_path / "rows.csv", "question,answer,,\n1?,2,,\n"))
    assert [(row["question"], row["answer"]) for row in rows] == [("1?", "2")]


def test_a_repeated_column_of_parquet_is_named(tmp_path):
    from pyarrow import array, parquet, table

    parquet.write_table(
        table([array([1]), array([2])], names=["answer", "answer"]), tmp_path / "rows.parquet"
    )
    with pytest.raises(UserError, match="expected each column once, got 'answer' again"):
        read_file(str(tmp_path / "rows.parquet"))


@pytest.mark.parametrize("length", [131_071, 131_072, 131_073, 200_000, 1_000_000])
@pytest.mark.parametrize("quoted", [False, True])
def test_a_field_of_any_length_is_read(tmp_path, length, quoted):
    long, limit = "7" * length, csv.field_size_limit()
    cell = f'"{long}"' if quoted else long
    rows = docs(write(tmp_path / "rows.csv", f"question,answer\n1?,2\n{cell},3\n"))
    assert rows[1] == {"question": long, "answer": "3"} and csv.field_size_limit() == limit


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
