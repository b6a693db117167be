"""Attention over pages from the machine's C compiler, against the formula in float64."""

import math
import stat
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from soft_reasoning.engines import huggingface, native
from soft_reasoning.engines.allocation import is_out_of_memory
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.pages import PagedBlock, Pages, Pool, Reading
from soft_reasoning.types import UserError
from tests.engines.models import needs_compiler, tiny


class Batch:
    """Random tokens, each with keys of its own, over ``levels`` of shared prefixes.

    Own: rows of one token each behind earlier ones (``steps`` 1, a decode step), or of up to ``steps`` at
    once (a prompt), filled up with tokens that nothing reads.
    """

    def __init__(self, seed, rows, heads, repeat, width, value_width, window, softcap, levels, steps):
        generator = torch.Generator().manual_seed(seed)
        self.heads, self.repeat, self.window, self.softcap = heads, repeat, window, softcap
        self.steps, self.pool = steps, Pool()

        def normal(*shape):
            return torch.randn(*shape, generator=generator)

        def number(low, high):
            return int(torch.randint(low, high + 1, (), generator=generator))

        self.q = normal(rows * steps, heads * repeat, width)
        self.blocks, self.groups, start = [], [], 0
        for _ in range(levels):
            lengths = [number(1, 70) for _ in range(number(1, 3))]
            groups = [number(-1, len(lengths) - 1) for _ in range(rows)]
            if max(groups) >= 0:
                block = PagedBlock.new(self.pool, lengths, [start] * len(lengths))
                keys = [(normal(n, heads, width), normal(n, heads, value_width)) for n in lengths]
                self.blocks.append((block, keys))
                self.groups.append(groups)
                start += max(lengths)
        self.start, self.counts = start, [number(1, 80 if steps == 1 else steps) for _ in range(rows)]
        self.keys = [(normal(n, heads, width), normal(n, heads, value_width)) for n in self.counts]
        for block, keys in self.blocks:
            for pages, (k, v) in zip(block.pages, keys, strict=True):
                self.write(pages, k, v)

    def write(self, pages, k, v):
        layer = self.pool.layer(0, self.heads, k.shape[2], v.shape[2])
        positions = pages.start + torch.arange(len(k))
        native.paged_attention().keep(layer, Reading([pages], [range(len(k))]), k, v, positions)

    def attend(self, rows=None, filling=0):
        """Output (rows, steps, heads * repeat, dv) and log-sum-exp of ``rows`` alone, with ``filling`` tokens
        that nothing is read for in front of them."""
        rows = list(range(len(self.counts))) if rows is None else rows
        tokens = filling + len(rows) * self.steps
        q, k, v = (torch.full((tokens, *x.shape[1:]), torch.nan) for x in (self.q, *self.keys[0]))
        own, positions = [], torch.zeros(tokens, dtype=torch.long)
        read = []
        for i, r in enumerate(rows):
            n, first = self.counts[r], filling + i * self.steps
            own.append(Pages(self.pool, self.start))
            own[-1].reserve(n)
            new = n if self.steps > 1 else 1
            if self.steps == 1 and n > 1:
                self.write(own[-1], *(x[: n - 1] for x in self.keys[r]))
            here = slice(first, first + new)
            q[here] = self.q[r * self.steps : r * self.steps + new]
            k[here], v[here] = (x[n - new :] for x in self.keys[r])
            positions[here] = self.start + n - new + torch.arange(new)
            read.append(list(range(first, first + new)))
        shared = [
            reading for (block, _), groups in zip(self.blocks, self.groups, strict=True)
            if (reading := Reading.of(block, [groups[r] for r in rows], read))
        ]  # fmt: skip
        layer = self.pool.layer(0, self.heads, k.shape[2], v.shape[2])
        out, sums, powers = native.paged_attention().attend(
            layer, Reading(own, read), shared, q, k, v, positions, self.window, self.softcap
        )
        lse = sums.double().log() + powers * math.log(2)
        return [x[filling:].unflatten(0, (len(rows), self.steps)) for x in (out, lse)]

    def expected(self, row, step):
        """For the row's ``step``-th token of this pass."""
        n = self.counts[row] if self.steps == 1 else step + 1
        at = self.start + n - 1
        keys, values = ([x[:n]] for x in self.keys[row])
        places = [self.start + torch.arange(n)]
        for (block, kept), groups in zip(self.blocks, self.groups, strict=True):
            if (g := groups[row]) >= 0:
                keys.append(kept[g][0])
                values.append(kept[g][1])
                places.append(block.pages[g].start + torch.arange(len(kept[g][0])))
        keys, values = (
            torch.cat(x).transpose(0, 1).double().repeat_interleave(self.repeat, 0) for x in (keys, values)
        )
        scores = (keys @ self.q[row * self.steps + step].double().unsqueeze(-1)).squeeze(-1)
        if self.softcap:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        scores = scores.masked_fill(at - torch.cat(places) >= (self.window or 10**9), -torch.inf)
        return (scores.softmax(-1).unsqueeze(1) @ values).squeeze(1), scores.logsumexp(-1)

    @property
    def tokens(self):
        """Row and step of those that are real."""
        return [(r, t) for r, n in enumerate(self.counts) for t in range(1 if self.steps == 1 else n)]


def batch(
    seed=0, rows=4, heads=2, repeat=2, width=32, value_width=32, window=None, softcap=None, levels=2, steps=1
):
    return Batch(seed, rows, heads, repeat, width, value_width, window, softcap, levels, steps)


batches = st.builds(
    Batch, seed=st.integers(0, 10**6), rows=st.integers(1, 9), heads=st.integers(1, 3),
    repeat=st.sampled_from([1, 2, 4, 7]), width=st.sampled_from([1, 4, 16, 30, 64, 100]),
    value_width=st.sampled_from([1, 8, 32, 48, 64, 128]),
    window=st.sampled_from([None, 1, 5, 30, 100]), softcap=st.sampled_from([None, 0.5, 30.0]),
    levels=st.integers(0, 3), steps=st.sampled_from([1, 2, 50]),
)  # fmt: skip


def same(batch, out, lse, tolerance=2e-5):
    for row, step in batch.tokens:
        expected, denominator = batch.expected(row, step)
        assert torch.allclose(out[row, step].double(), expected, atol=tolerance, rtol=tolerance)
        assert torch.allclose(lse[row, step], denominator, atol=2e-5, rtol=1e-5)


@needs_compiler
@settings(max_examples=80, deadline=None)
@given(batches)
def test_it_is_one_softmax_over_all_that_a_token_sees(batch):
    same(batch, *batch.attend())


@needs_compiler
@settings(max_examples=60, deadline=None)
@given(batches, st.data())
def test_a_rows_bits_do_not_depend_on_its_neighbours_or_on_threads(batch, data):
    out, lse = batch.attend()
    rows = data.draw(st.permutations(range(len(batch.counts))))
    rows = rows[: data.draw(st.integers(1, len(rows)))]
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
    some = batch(rows=6)
    some.q *= size
    same(some, *some.attend(), tolerance=1e-4 * max(1, size))


@needs_compiler
def test_what_is_no_number_shows_and_stays_in_its_row():
    some = batch(rows=6)
    clean, _ = some.attend()
    some.q[2] = torch.nan
    out, lse = some.attend()
    assert out[2].isnan().all() and lse[2].isnan().all()
    rest = [0, 1, 3, 4, 5]
    assert torch.equal(out[rest], clean[rest])


@needs_compiler
def test_missing_memory_is_told_as_torch_tells_it(monkeypatch):
    """So that the engine halves its batches."""
    some = batch()
    monkeypatch.setattr(
        native.paged_attention(), "_library", SimpleNamespace(attend=lambda *_: 1, keep=lambda *_: None)
    )
    with pytest.raises(RuntimeError) as error:
        some.attend()
    assert is_out_of_memory(error.value)


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """Nothing is compiled yet; the cache is ``tmp_path / "cache"``."""
    native.paged_attention.cache_clear()
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    yield tmp_path
    native.paged_attention.cache_clear()


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
        native.paged_attention.cache_clear()
        assert native.paged_attention() is not None
    [made] = (fresh / "cache" / "soft_reasoning").iterdir()
    assert made.suffix == ".so"
    calls = (fresh / "calls").read_text().splitlines()
    assert len([call for call in calls if "attention.c" in call]) == 1


@needs_compiler
def test_what_the_compiler_does_not_know_is_left_out(fresh, monkeypatch):
    real = native.compiler()
    refuse = 'case "$*" in *-fopenmp*) echo unknown option >&2; exit 1;; esac'
    monkeypatch.setenv("CC", compiler(fresh, f'{refuse}; exec {real} "$@"'))
    assert native.paged_attention() is not None
    some = batch()
    same(some, *some.attend())


@needs_compiler
def test_a_cache_that_cannot_be_written_is_done_without(fresh):
    (fresh / "cache").write_text("in the way")
    assert native.paged_attention() is not None
    assert (fresh / "cache").read_text() == "in the way"


@needs_compiler
def test_a_user_without_a_home_needs_none(fresh, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(native.Path, "home", no_home)
    assert native.paged_attention() is not None


def test_without_a_compiler_torch_does_it_and_true_is_refused(fresh, monkeypatch, caplog):
    monkeypatch.setenv("PATH", "")
    caplog.set_level("INFO")
    assert native.paged_attention() is None and "no C compiler" in caplog.text
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
    assert native.paged_attention() is None
    assert "attends by torch" in caplog.text and "no space left" in caplog.text
    assert not list((fresh / "cache" / "soft_reasoning").glob("*"))
