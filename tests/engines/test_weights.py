"""A fingerprint of weights changes with the weights, whatever files hold them."""

from soft_reasoning.engines.paths import weights_mark


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


def test_weights_in_other_files_have_marks_too(tmp_path):
    marks = set()
    for i, name in enumerate(("model.gguf", "model.pt", "part/model.gguf")):
        file = tmp_path / str(i) / name
        file.parent.mkdir(parents=True)
        file.write_bytes(b"weights")
        marks.add(weights_mark(str(tmp_path / str(i)), None))
        file.write_bytes(b"others!")
        marks.add(weights_mark(str(tmp_path / str(i)), None))
    assert len(marks) == 4  # a folder is known by its files, wherever they lie
