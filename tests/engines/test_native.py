"""Decode steps' attention from the machine's C compiler, against the formula in float64."""

import stat
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soft_reasoning.engines import huggingface, native
from soft_reasoning.engines.allocation import is_out_of_memory
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.kv import Block, Part
from soft_reasoning.types import UserError
from tests.engines.models import needs_compiler, tiny

CPU = torch.device("cpu")


class Batch:
    """Random rows over ``levels`` of shared prefixes, and what attention may read of them."""

    def __init__(self, seed, rows, heads, repeat, width, value_width, window, levels):
        generator = torch.Generator().manual_seed(seed)
        self.heads, self.repeat, self.window = heads, repeat, window

        def normal(*shape):
            return torch.randn(*shape, generator=generator)

        def number(low, high):
            return int(torch.randint(low, high + 1, (), generator=generator))

        self.room = 40
        self.counts = torch.tensor([number(1, self.room) for _ in range(rows)])
        self.q = normal(rows, heads * repeat, width)
        self.keys, self.values = (
            normal(rows, heads, self.room, width),
            normal(rows, heads, self.room, value_width),
        )
        self.blocks, self.groups, start = [], [], 0
        for _ in range(levels):
            lengths = [number(1, 70) for _ in range(number(1, 3))]
            block = Block(lengths, [start] * len(lengths), tiled=True)
            for i, n in enumerate(lengths):
                block.store(
                    0, torch.tensor([i]), normal(1, heads, n, width), normal(1, heads, n, value_width)
                )
            groups = [number(-1, len(lengths) - 1) for _ in range(rows)]
            if max(groups) >= 0:
                self.blocks.append(block)
                self.groups.append(groups)
                start += max(lengths)
        self.positions = start + self.counts - 1

    def attend(self, rows=None, filling=0):
        """Output (rows, heads * repeat, dv) and log-sum-exp (rows, heads * repeat) of ``rows`` alone, with
        ``filling`` copies of the first behind them."""
        rows = list(range(len(self.q))) if rows is None else rows
        chosen = [(b, [g[r] for r in rows]) for b, g in zip(self.blocks, self.groups, strict=True)]
        parts = [Part(b, g, filling, CPU) for b, g in chosen if max(g) >= 0]
        rows = torch.tensor(rows + rows[:1] * filling)
        q = self.q[rows].reshape(len(rows) * self.heads, self.repeat, -1)
        out, lse = native.step_attention()(
            q,
            self.keys[rows],
            self.values[rows],
            self.counts[rows],
            self.positions[rows],
            parts,
            0,
            self.window,
        )
        shape = len(rows), self.heads * self.repeat
        return out.view(*shape, -1)[: len(rows) - filling], lse.view(*shape)[: len(rows) - filling]

    def expected(self, row):
        n, at = int(self.counts[row]), int(self.positions[row])
        keys, values = [self.keys[row, :, :n]], [self.values[row, :, :n]]
        places = [at - n + 1 + torch.arange(n)]
        for block, groups in zip(self.blocks, self.groups, strict=True):
            if (g := groups[row]) >= 0:
                keys.append(block.transposed(block.keys[0])[g, :, :, : block.lengths[g]].transpose(1, 2))
                values.append(block.values[0][g, :, : block.lengths[g]])
                places.append(block.starts[g] + torch.arange(block.lengths[g]))
        keys, values = (torch.cat(x, 1).double().repeat_interleave(self.repeat, 0) for x in (keys, values))
        scores = (keys @ self.q[row].double().unsqueeze(-1)).squeeze(-1)
        seen = at - torch.cat(places) < (self.window or 10**9)
        scores = scores.masked_fill(~seen, -torch.inf)
        return (scores.softmax(-1).unsqueeze(1) @ values).squeeze(1), scores.logsumexp(-1)


batches = st.builds(
    Batch, seed=st.integers(0, 10**6), rows=st.integers(1, 9), heads=st.integers(1, 3),
    repeat=st.sampled_from([1, 2, 4, 7]), width=st.sampled_from([1, 4, 16, 30, 64, 100]),
    value_width=st.sampled_from([1, 8, 32, 48, 64, 128]),
    window=st.sampled_from([None, 1, 5, 30, 100]), levels=st.integers(0, 3),
)  # fmt: skip


@needs_compiler
@settings(max_examples=60, deadline=None)
@given(batches)
def test_it_is_one_softmax_over_all_that_a_row_sees(batch):
    out, lse = batch.attend()
    for row in range(len(batch.q)):
        expected, denominator = batch.expected(row)
        assert torch.allclose(out[row].double(), expected, atol=2e-5)
        assert torch.allclose(lse[row].double(), denominator, atol=2e-5)


@needs_compiler
@settings(max_examples=60, deadline=None)
@given(batches, st.data())
def test_a_rows_bits_do_not_depend_on_its_neighbours_or_on_threads(batch, data):
    out, lse = batch.attend()
    rows = data.draw(st.permutations(range(len(batch.q))))[: data.draw(st.integers(1, len(batch.q)))]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(data.draw(st.sampled_from([1, 2, 3])))
        some, some_lse = batch.attend(rows, filling=data.draw(st.integers(0, 3)))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(some, out[rows]) and torch.equal(some_lse, lse[rows])


@needs_compiler
@pytest.mark.parametrize("size", [1e-20, 1.0, 30.0, 1e4])
def test_scores_of_any_size(size):
    batch = Batch(0, 6, 2, 2, 32, 32, None, 2)
    batch.q *= size
    out, lse = batch.attend()
    for row in range(6):
        expected, denominator = batch.expected(row)
        assert torch.allclose(out[row].double(), expected, atol=1e-4, rtol=1e-4 * max(1, size))
        assert torch.allclose(lse[row].double(), denominator, rtol=1e-5)


@needs_compiler
def test_missing_memory_is_told_as_torch_tells_it(monkeypatch):
    """So that the engine halves its batches."""
    monkeypatch.setattr(native.step_attention(), "_library", SimpleNamespace(attend_own=lambda *_: 1))
    with pytest.raises(RuntimeError) as error:
        Batch(0, 2, 1, 1, 16, 16, None, 0).attend()
    assert is_out_of_memory(error.value)


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Nothing is compiled yet; the cache is ``tmp_path / "cache"``."""
    native.step_attention.cache_clear()
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path
    native.step_attention.cache_clear()


def compiler(folder, text):
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return str(path)


@needs_compiler
def test_it_is_compiled_once_for_all_processes(fresh, monkeypatch):
    real = native.compiler()
    monkeypatch.setenv("CC", compiler(fresh, f'echo "$@" >> {fresh}/calls; exec {real} "$@"'))
    for _ in range(2):
        native.step_attention.cache_clear()
        assert native.step_attention() is not None
    [made] = (fresh / "cache" / "soft_reasoning").iterdir()
    assert made.suffix == ".so"
    calls = (fresh / "calls").read_text().splitlines()
    assert len([call for call in calls if "attention.c" in call]) == 1


@needs_compiler
def test_what_the_compiler_does_not_know_is_left_out(fresh, monkeypatch):
    real = native.compiler()
    refuse = 'case "$*" in *-fopenmp*) echo unknown option >&2; exit 1;; esac'
    monkeypatch.setenv("CC", compiler(fresh, f'{refuse}; exec {real} "$@"'))
    assert native.step_attention() is not None
    out, _ = (batch := Batch(3, 4, 2, 2, 32, 32, None, 2)).attend()
    assert torch.allclose(out[1].double(), batch.expected(1)[0], atol=2e-5)


@needs_compiler
def test_a_cache_that_cannot_be_written_is_done_without(fresh):
    (fresh / "cache").write_text("in the way")
    assert native.step_attention() is not None
    assert (fresh / "cache").read_text() == "in the way"


@needs_compiler
def test_a_user_without_a_home_needs_none(fresh, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(native.Path, "home", no_home)
    assert native.step_attention() is not None


def test_without_a_compiler_torch_does_it_and_true_is_refused(fresh, monkeypatch, caplog):
    monkeypatch.setenv("PATH", "")
    caplog.set_level("INFO")
    assert native.step_attention() is None and "no C compiler" in caplog.text
    engine = huggingface.HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())
    assert engine.embed([5]).shape == (1, 64)
    if not torch.cuda.is_available():
        with pytest.raises(
            UserError, match="expected a GPU, or float32 and a C compiler, for engine.compile=true"
        ):
            huggingface.HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer(), compile=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is there")
def test_true_is_refused_in_lower_precision():
    with pytest.raises(UserError, match="expected a GPU, or float32"):
        model = tiny("llama").bfloat16()
        huggingface.HuggingFaceEngine.from_loaded(model, FakeTokenizer(), compile=True)


@needs_compiler
def test_a_compiler_that_fails_is_told_with_its_words(fresh, monkeypatch, caplog):
    full = 'case "$*" in *attention.c*) echo no space left >&2; exit 1;; esac'
    monkeypatch.setenv("CC", compiler(fresh, f'{full}; exec {native.compiler()} "$@"'))
    assert native.step_attention() is None
    assert "attend by torch" in caplog.text and "no space left" in caplog.text
    assert not list((fresh / "cache" / "soft_reasoning").glob("*"))
