"""Where adapters lie: whole or not at all, one training for all who want the same."""

import json
import threading
import time

import pytest

from soft_reasoning.finetuning.adapters import adapter, digest_of, weights_mark
from soft_reasoning.types import UserError


def test_several_at_once_train_once(tmp_path):
    trained, found, said = [], [], []

    def train(work):
        trained.append(work)
        time.sleep(0.2)
        (work / "weights").write_text("here")
        return {"steps": 3}

    def want():
        found.append(adapter(tmp_path, "x", {"seed": 0}, train, say=said.append))

    threads = [threading.Thread(target=want) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(trained) == 1 and len(set(found)) == 1 and not trained[0].exists()
    assert (found[0] / "weights").read_text() == "here"
    assert json.loads((found[0] / "training.json").read_text()) == {"made_with": {"seed": 0}, "steps": 3}
    assert any("waiting" in line for line in said)


def test_a_training_that_fails_leaves_no_adapter_and_its_work(tmp_path):
    def fail(work):
        (work / "state").write_text("so far")
        raise RuntimeError("killed")

    for _ in range(2):
        with pytest.raises(RuntimeError):
            adapter(tmp_path, "x", {}, fail, say=print)
    assert [path.name for path in tmp_path.glob("*/*")] == ["state"]
    done = adapter(tmp_path, "x", {}, lambda work: {"state": (work / "state").read_text()}, say=print)
    assert json.loads((done / "training.json").read_text())["state"] == "so far"


def test_names_tell_all_settings_apart():
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1}) != digest_of({"a": 1, "b": 3})


def test_other_weights_have_another_mark(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"one")
    one = weights_mark(str(tmp_path), None)
    assert one == weights_mark(str(tmp_path), "main")
    (tmp_path / "model.safetensors").write_bytes(b"two")
    marks = {one, weights_mark(str(tmp_path), None)}
    for place in (0, 2**22, 2**23 - 1):
        weights = bytearray(2**23)
        weights[place : place + 2**18] = bytes([1]) * len(weights[place : place + 2**18])
        (tmp_path / "model.safetensors").write_bytes(weights)
        marks.add(weights_mark(str(tmp_path), None))
    assert len(marks) == 5
    assert weights_mark("owner/name", None) == "owner/name@main" != weights_mark("owner/name", "v2")


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="finetuning.folder="):
        adapter(tmp_path / "file", "x", {}, lambda work: {}, say=print)
