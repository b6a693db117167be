"""Every file that a user may have at hand, damaged in every way that files are: one line that names it."""

import json
import shutil

import pyarrow
import pyarrow.parquet
import pytest

from soft_reasoning.configuration.data import read_prompt
from soft_reasoning.engine.completions import CompletionStore
from soft_reasoning.engine.huggingface import HuggingFaceEngine
from soft_reasoning.engine.paths import DEMO_FOLDER
from soft_reasoning.lab.data.dataset import read_exemplars
from soft_reasoning.lab.data.sources import read_file
from soft_reasoning.lab.runs.files import GRADES, MANIFEST
from soft_reasoning.lab.runs.records import Store, read_grades
from soft_reasoning.task.probe import Probe
from soft_reasoning.types import UserError
from tests.lab.runs.test_store import fill

ROW = {"question": "How many?", "answer": "3"}
PROBE = {"made_for": {}, "questions": {}, "weights": [0.5, 0.5], "vote_weight": 0.0, "bias": 0.0}
WHOLE = {
    "rows.csv": b"question,answer\nHow many?,3\n",
    "rows.json": json.dumps([ROW]).encode(),
    "rows.jsonl": json.dumps(ROW).encode() + b"\n",
    "rows.yaml": b"- question: How many?\n  answer: 3\n",
    "prompt.yaml": b"inherits: [math]\nask: '{question}'\n",
    "probe.json": json.dumps(PROBE | {"measured": {}}).encode(),
    GRADES: b"{}",
}


def parquet(path):
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([ROW]), path)


def completions(path):
    CompletionStore(path, 1.0).close()


MADE = {"rows.parquet": parquet, "completions.sqlite": completions}
READERS = {
    "rows": lambda path: (read_file(str(path)), read_exemplars(str(path))),
    "prompt": lambda path: read_prompt(path),
    "probe": Probe.load,
    "completions": lambda path: CompletionStore(path, 1.0).find([b"key"]),
    "grades": lambda path: read_grades(path.parent),
}
DAMAGE = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) * 2 // 3],
    "another encoding": lambda content: b"\xff\xfe\x00" + content,
    "zeros": lambda content: bytes(len(content)),
    "another kind": lambda content: b"5",
    "nested deeply": lambda content: b"[" * 50_000,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", [*WHOLE, *MADE])
def test_a_damaged_file_is_one_line_with_its_name(tmp_path, name, damage):
    path = tmp_path / name
    if name in MADE:
        MADE[name](path)
    else:
        path.write_bytes(WHOLE[name])
    read = READERS[name.partition(".")[0]]
    content = path.read_bytes()
    path.write_bytes(DAMAGE[damage](content))
    if (name, damage) in {("completions.sqlite", "empty"), ("completions.sqlite", "another kind")}:
        read(path)  # a new store: SQLite takes a file of a byte for an empty one
        return
    with pytest.raises(UserError) as error:
        read(path)
    assert name in str(error.value) and len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("damage", ["empty", "cut", "zeros", "nested deeply"])
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_damaged_model_is_one_line_with_its_folder(tmp_path, name, damage):
    folder = shutil.copytree(DEMO_FOLDER, tmp_path / "model")
    (folder / name).write_bytes(DAMAGE[damage]((folder / name).read_bytes()))
    with pytest.raises(UserError) as error:
        HuggingFaceEngine(str(folder))
    assert str(folder) in str(error.value) and len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("damage", [*DAMAGE, "a list for a text"])
def test_a_damaged_record_is_one_line_with_its_place(tmp_path, damage):
    fill(tmp_path, "a", "b")
    samples = tmp_path / "samples.jsonl"
    first, second = samples.read_bytes().splitlines(keepends=True)
    edited = {**json.loads(second), "question": ["How", "many?"]}
    change = DAMAGE.get(damage, lambda content: json.dumps(edited).encode())
    samples.write_bytes(first + change(second.rstrip(b"\n")) + b"\n")
    with pytest.raises(UserError, match="samples.jsonl, line 2: expected a record") as error:
        Store(tmp_path)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("damage", [*DAMAGE, "empty object"])
def test_a_damaged_manifest_is_one_line_with_its_name(tmp_path, damage):
    fill(tmp_path, "a")
    change = DAMAGE.get(damage, lambda content: b"{}")
    (tmp_path / MANIFEST).write_bytes(change((tmp_path / MANIFEST).read_bytes()))
    with pytest.raises(UserError, match=MANIFEST) as error:
        fill(tmp_path, "b")
    assert len(str(error.value).splitlines()) == 1
