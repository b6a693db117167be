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
