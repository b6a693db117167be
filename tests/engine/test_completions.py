"""The store of completions: keys, values, and the file."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from soft_reasoning.engine import completions as module
from soft_reasoning.engine.completions import (
    CompletionStore,
    checksum,
    decode,
    encode,
    engine_identity,
    request_key,
)
from soft_reasoning.engine.fake import FakeEngine
from soft_reasoning.types import Completion, FinishReason, Request, Sampling, TopLogprobs, UserError

ROOT = Path(__file__).parents[2]
SOFT = torch.ones(2, 32)
BASE = Request((5, 6, 7, 8), SOFT, 1, Sampling(0.5), 10, 0, ("x",), seed=3)
CHANGED = {
    "prompt_ids": [(5, 6, 7, 9), (5, 6, 7), (6, 5, 7, 8)],
    "soft": [SOFT.double(), SOFT.half(), torch.ones(1, 32), torch.nextafter(SOFT, 2 * SOFT)],
    "position": [0, 2, None],
    "sampling": [
        Sampling(0.6),
        *(
            replace(BASE.sampling, **change)
            for change in ({"top_k": 2}, {"top_p": 0.5}, {"first_temperature": 0.1}, {"first_top_k": 3})
        ),
    ],
    "max_new_tokens": [9, 11],
    "min_new_tokens": [1],
    "stop": [(), ("x", "y"), ("y",)],
    "thinks": [True],
    "seed": [4],
    "next_logits": [True, (1,), (1, 2)],
    "top_logprobs": [1, 2],
    "hidden_state": [0.5, 1.0],
    "average_from": [],
    "role": [],
    "deadline": [],
    "turn": [],
    "messages": [(("user", "How many?"),), (("user", "How much?"),)],
    "schema": [],
    "schema_from": [],
}
"""By field of a request, values that give it another key. Those without a value are tested apart."""


@pytest.fixture(scope="module")
def engine():
    return FakeEngine()


def key(engine, request, identity=b"engine"):
    return request_key(engine.prepare(request), identity)


def test_every_field_of_a_request_is_in_its_key(engine):
    assert sorted(CHANGED) == sorted(part.name for part in fields(Request))
    requests = [BASE, *(replace(BASE, **{name: v}) for name, values in CHANGED.items() for v in values)]
    # Without soft tokens a position means nothing.
    requests.append(replace(BASE, soft=None))
    # An average needs hidden states.
    requests += [replace(BASE, hidden_state=0.5, average_from=first) for first in (1, 2)]
    # A schema is that of a whole text after plain tokens.
    requests += [Request(BASE.prompt_ids, max_new_tokens=10, schema=s, schema_from=4) for s in ("{}", "true")]
    keys = [key(engine, request) for request in requests]
    assert len({*keys}) == len(keys) and len({*map(len, keys)}) == 1
    assert key(engine, BASE, b"other") not in keys


def test_what_decides_no_token_is_not_in_the_key(engine):
    assert key(engine, replace(BASE, role="verifier", deadline=1.0, turn=3)) == key(engine, BASE)
    assert key(engine, replace(BASE, soft=SOFT.clone().requires_grad_())) == key(engine, BASE)
    last = [key(engine, replace(BASE, position=position)) for position in (4, None)]
    assert last[0] == last[1]
    late = replace(BASE, deadline=1.0)  # vLLM draws other numbers for it
    assert request_key(engine.prepare(late), b"engine", writes_in_turns=True) != key(engine, BASE)
    greedy = replace(BASE, sampling=Sampling())
    assert request_key(engine.prepare(replace(greedy, deadline=1.0)), b"engine", True) == key(engine, greedy)
    assert key(engine, greedy) == key(engine, replace(greedy, seed=9))
    hot = replace(BASE, sampling=Sampling(first_temperature=2.0))
    assert key(engine, hot) != key(engine, replace(hot, seed=9))
    look = replace(BASE, max_new_tokens=0, top_logprobs=1)
    assert key(engine, look) == key(engine, replace(look, seed=9))
    # The context bounds a completion as its limit does.
    assert key(engine, replace(BASE, max_new_tokens=10**6)) == key(
        engine, replace(BASE, max_new_tokens=10**7)
    )


def test_an_engine_is_known_by_all_that_it_is(engine, monkeypatch):
    class Other(FakeEngine):
        pass

    class Words:
        def __getattr__(self, name):
            return getattr(engine.tokenizer, name)

        def decode(self, ids, **options):
            return engine.tokenizer.decode(ids, **options).upper()

    def changed(**attributes):
        other = FakeEngine()
        for name, value in attributes.items():
            setattr(other, name, value)
        return other

    same = engine_identity(engine)
    assert engine_identity(FakeEngine()) == same == engine_identity(changed(settings={"threads": 4}))
    assert engine_identity(changed(settings={"max_batch_rows": 4})) == same
    others = [
        Other(),
        FakeEngine(hidden_size=16),
        changed(settings={"path": "a"}),
        changed(settings={"path": "b"}),
        changed(eos_ids=frozenset([1, 2])),
        changed(tokenizer=Words()),
        changed(device=torch.device("cpu")),
        changed(_lookup=lambda ids: 2 * engine._lookup(ids)),
    ]
    marks = [engine_identity(other) for other in others]
    monkeypatch.setattr("importlib.metadata.version", lambda name: "9.9")
    marks.append(engine_identity(engine))
    assert len({*marks, same}) == len(marks) + 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(), (3,), (129, 65)])
def test_any_value_of_a_tensor_changes_its_checksum(dtype, shape):
    tensor = torch.ones(shape, dtype=dtype)
    seen = {checksum(tensor)}
    for place in {0, tensor.numel() // 2, tensor.numel() - 1}:
        changed = tensor.clone()
        changed.view(-1)[place] = 0
        seen.add(checksum(changed))
    assert len(seen) == 1 + len({0, tensor.numel() // 2, tensor.numel() - 1})
    assert checksum(torch.cat([tensor.view(-1)[:1], tensor.view(-1)])[1:].view(shape)) == checksum(tensor)
    assert len(checksum(torch.empty(0))) == len(checksum(torch.zeros(64 * 8))) == 512


FLOATS = st.floats(width=64)
COMPLETIONS = st.builds(
    Completion,
    st.lists(st.integers(0, 2**40)).map(tuple),
    st.lists(FLOATS).map(tuple),
    st.text(st.characters()),
    st.sampled_from(FinishReason),
    *[st.integers(0, 10**6)] * 2,
    next_logits=st.none() | st.lists(st.floats(width=32)).map(torch.tensor),
    top_logprobs=st.lists(
        st.tuples(st.lists(st.integers(0, 9)).map(tuple), st.lists(FLOATS).map(tuple)).map(
            lambda p: TopLogprobs(*p)
        )
    ).map(tuple),
    hidden_state=st.none() | st.just(torch.arange(6.0).view(2, 3)),
    replayed=st.booleans(),
)


def bits(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.numpy().tobytes()
    return repr(value)  # NaN is not equal to itself


@given(COMPLETIONS)
def test_a_completion_comes_back_bit_by_bit(completion):
    again = decode(encode(completion))
    for part in fields(Completion):  # a new field, too
        assert bits(getattr(again, part.name)) == bits(getattr(completion, part.name)), part.name


def completion(number, size=1):
    noise = torch.rand(size, generator=torch.Generator().manual_seed(number))
    return Completion((number,), (-0.5,), str(noise.tolist()), "eos", 3)


def keys(numbers):
    return [number.to_bytes(20, "big") for number in numbers]


def filled(store, numbers, **options):
    for number, name in zip(numbers, keys(numbers), strict=True):
        store.keep({name: completion(number, **options)})


def test_what_was_kept_is_found_and_nothing_else(tmp_path):
    with closing(CompletionStore(tmp_path / "new" / "a.sqlite", 1.0)) as store:
        filled(store, range(3))
        assert store.find(keys([1, 7])) == {keys([1])[0]: completion(1)}
        assert len(store) == 3 and store.find([]) == {}
    many = keys(range(2000))
    with closing(CompletionStore(tmp_path / "b.sqlite", 1.0)) as store:
        store.keep({name: completion(0) for name in many})
        assert store.find(many).keys() == {*many}


def test_the_oldest_are_deleted_beyond_the_size(tmp_path):
    with closing(CompletionStore(tmp_path / "a.sqlite", 1e-3)) as store:
        filled(store, range(100), size=5000)  # 4 MB
        left = [number for number in range(100) if store.find(keys([number]))]
        assert left == [*range(left[0], 100)] and 10 < len(left) < 40
    assert (tmp_path / "a.sqlite").stat().st_size < 1.2e6


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda path: path.write_bytes(b"no database" * 999), "file is not a database; delete it"),
        (lambda path: path.write_bytes(path.read_bytes()[:4096] + bytes(9000)), "malformed; delete it"),
        (
            lambda path: sqlite3.connect(path).execute("PRAGMA user_version=7"),
            "version 2, got .* of version 7",
        ),
        (lambda path: (path.unlink(), path.parent.rmdir(), path.parent.touch()), "expected a folder, got"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path, harm, message):
    path = tmp_path / "store" / "a.sqlite"
    with closing(CompletionStore(path, 1.0)) as store:
        filled(store, range(20), size=100)
    assert {file.name for file in path.parent.iterdir()} == {"a.sqlite"}
    harm(path)
    with pytest.raises(UserError, match=f"^cache: .*{message}") as error:
        with closing(CompletionStore(path, 1.0)) as store:
            filled(store, range(20, 40))
    assert len(str(error.value).splitlines()) == 1


def test_a_damaged_value_and_a_locked_file_are_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "WAIT", 0.01)
    path = tmp_path / "a.sqlite"
    with closing(CompletionStore(path, 1.0)) as store, closing(sqlite3.connect(path)) as other:
        filled(store, [1])
        other.execute("BEGIN IMMEDIATE")
        assert store.find(keys([1]))  # who reads does not wait
        with pytest.raises(UserError, match="^cache: .* database is locked; wait for the process that"):
            filled(store, [2])
        with pytest.raises(UserError, match="locked"):
            CompletionStore(path, 1.0)
        other.execute("UPDATE completions SET value = x'0102'")
        other.execute("COMMIT")
        with pytest.raises(UserError, match="^cache: .* incorrect header check; delete it"):
            store.find(keys([1]))
        filled(store, [3])


def write(path, first):
    """What each of several processes does: keep and find, over and over."""
    with closing(CompletionStore(Path(path), 1.0)) as store:
        for number in range(50):
            filled(store, [int(first) * 1000 + number, number])
            store.find(keys(range(50)))


@pytest.mark.slow
def test_several_processes_open_and_write_a_new_file_at_once(tmp_path):
    command = [sys.executable, "-m", "tests.engine.test_completions", str(tmp_path / "a.sqlite")]
    writers = [
        subprocess.Popen([*command, str(i)], cwd=ROOT, stderr=subprocess.PIPE, text=True) for i in range(1, 5)
    ]
    for writer in writers:
        assert writer.communicate()[1] == "" and writer.returncode == 0
    with closing(CompletionStore(tmp_path / "a.sqlite", 1.0)) as store:
        assert len(store) == 50 * 5


if __name__ == "__main__":
    write(*sys.argv[1:])
