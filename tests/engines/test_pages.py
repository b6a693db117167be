"""Keys and values in pages: who holds them, and the runs over them."""

import pytest

from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.engines.pages import PAGE, SLAB, OwnPages, PagedBlock, Pages, Pool, Reading
from soft_reasoning.engines.runners import ModelCalls
from soft_reasoning.types import Request
from tests.engines.models import needs_compiler, tiny


def test_pages_go_back_to_the_pool_once_nobody_holds_them():
    pool = Pool()
    block = PagedBlock.new(pool, [40, 7, 64], [0, 0, 5])
    assert [len(pages.ids) for pages in block.pages] == [2, 1, 2] and pool.used == 5
    assert len({page for pages in block.pages for page in pages.ids}) == 5
    chosen = block.select([2, 0])
    assert [pages.start for pages in chosen.pages] == [5, 0] and chosen.positions == 4 * PAGE
    del block
    assert pool.used == 4
    reading = Reading.of(chosen, [1, -1, 1], [[0], [1], [2]])
    del chosen
    assert pool.used == 2 and reading.table.tolist() == [reading.pages[0].ids]
    assert Reading.of(PagedBlock([]), [-1], [[0]]) is None
    del reading
    assert (pool.used, pool.most) == (0, 5)
    row = OwnPages(pool, [100], [PAGE - 1], 100 + 3 * PAGE)
    first = row.pages[0].ids[0]
    for count in range(PAGE - 1, 2 * PAGE + 1):
        row.counts = [count]
        row.grow()
        assert row.reading.table.shape == (1, 4)
        assert row.reading.table[0, : len(row.pages[0].ids)].tolist() == row.pages[0].ids
        assert len(row.pages[0].ids) == count // PAGE + 1
    row.counts = [10 * PAGE]  # over for long; its position stays at the last
    row.keep([0])
    assert row.pages[0].ids[0] == first and pool.used == 3


def test_memory_of_pages_is_added_where_it_is_missing():
    pool = Pool()
    pages = Pages(pool, 0)
    pages.reserve(PAGE)
    layer = pool.layer(3, 2, 4, 8)
    assert pool.page_bytes == 4 * PAGE * 2 * (4 + 8)
    first = layer.slabs
    pages.reserve(PAGE * SLAB + 1)
    assert pool.layer(3, 2, 4, 8).slabs != first
    assert sorted(pages.ids) == list(range(SLAB + 1))


def requests(count, new):
    return [Request((5 + i, *range(6, 46)), max_new_tokens=new, min_new_tokens=new) for i in range(count)]


@needs_compiler
def test_memory_is_used_again_and_given_back_when_it_runs_out():
    engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer())
    engine.generate(requests(30, 2 * PAGE))
    pool = engine._runner._pool
    most, slabs = pool.most, [pool.layer(layer, 2, 16, 16).slabs for layer in range(2)]
    assert most >= 30 * 2
    for _ in range(3):
        engine.begin_run()
        assert pool.most == pool.used == 0
        engine.generate(requests(30, 2 * PAGE))
        assert engine._runner._pool is pool and pool.most == most
        assert [pool.layer(layer, 2, 16, 16).slabs for layer in range(2)] == slabs
    engine._runner.forget()
    assert engine._runner._pool is not pool


@pytest.mark.parametrize("compile", ["auto", False])
def test_prompts_compute_no_more_of_the_last_layer_than_keys_and_values(compile):
    engine = HuggingFaceEngine.from_loaded(tiny("llama"), FakeTokenizer(), compile=compile)
    seen = [0, 0]

    def count(layer, out):
        seen[layer] += out.shape[1]

    for i, layer in enumerate(engine._calls.model.model.layers):
        layer.mlp.register_forward_hook(lambda module, given, out, i=i: count(i, out))
    engine.generate(requests(8, 3))
    assert seen[1] == 8 * 3 and seen[0] >= 8 * (40 + 3)


def test_passes_come_in_few_sizes():
    calls = ModelCalls(tiny("llama"))
    sizes = {count: calls.batch_size(count) for count in range(1, 2049)}
    assert len(set(sizes.values())) == 80
    for count, size in sizes.items():
        assert count <= size < count + max(8, count / 16) and size % 8 == 0 and sizes[size] == size
