"""Attention over shared and own keys against plain attention, and which rows and tokens go together."""

import pytest
import torch

from soft_reasoning.engines.decode import packed
from soft_reasoning.engines.fake_tokenizer import FakeTokenizer
from soft_reasoning.engines.huggingface import HuggingFaceEngine
from soft_reasoning.engines.kv import Block, KeptPrefixes, OwnKeys, Part, join
from soft_reasoning.engines.native import paged_attention
from soft_reasoning.engines.pages import OwnPages, PagedBlock, Pool, Reading
from soft_reasoning.engines.passes import Bucket, PagedPass, Prefill, Step
from soft_reasoning.engines.planning import packs
from soft_reasoning.engines.tree import active, tree_attention
from soft_reasoning.types import Request
from tests.engines.models import needs_compiler, tiny

HEADS, REPEAT, WIDTH = 2, 3, 8
CPU = torch.device("cpu")


class Module:
    layer_idx = 0

    class config:
        _attn_implementation = "eager"


def plain(q, k, v, last, *, window=None, softcap=None, sinks=None):
    """One query (Hq, d) at position ``last`` over keys (Hkv, L, d): the textbook's softmax."""
    k, v = k.repeat_interleave(REPEAT, 0), v.repeat_interleave(REPEAT, 0)
    scores = torch.einsum("hd,hld->hl", q, k) * WIDTH**-0.5
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    at = torch.arange(k.shape[1])
    seen = (at <= last) & (at > last - (window or 10**6))
    scores = scores.masked_fill(~seen, -torch.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.view(-1, 1)], 1)
    weights = scores.softmax(-1)[:, : k.shape[1]]
    return torch.einsum("hl,hld->hd", weights, v)


@pytest.mark.parametrize("native", [False, pytest.param(True, marks=needs_compiler)])
@pytest.mark.parametrize("window", [None, 7, 60])
@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}, {"sinks": True}])
def test_three_parts_give_what_one_softmax_over_all_keys_gives(window, options, native):
    """Rows with a head and a prompt, a head alone, a prompt alone and neither; 12 own tokens, then a step."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.randn(*shape, generator=generator)

    lengths = {"head": [40], "prompt": [50, 21]}
    reads = {"head": [0, 0, 0, -1, -1, 0], "prompt": [0, 1, 0, 1, -1, -1]}
    starts = {"head": [0], "prompt": [40, 40]}
    own, rows = 12, len(reads["head"])
    pool, attention = Pool(), paged_attention()
    if native:
        blocks = {name: PagedBlock.new(pool, n, starts[name]) for name, n in lengths.items()}
    else:
        blocks = {name: Block(n, starts[name]) for name, n in lengths.items()}
    kept = {
        name: [(random(HEADS, n, WIDTH), random(HEADS, n, WIDTH)) for n in lengths[name]] for name in blocks
    }
    for name, block in blocks.items():
        for i, (k, v) in enumerate(kept[name]):
            if native:
                places = block.pages[i].start + torch.arange(k.shape[1])
                reading = Reading([block.pages[i]], [range(k.shape[1])])
                layer = pool.layer(0, HEADS, WIDTH, WIDTH)
                attention.keep(layer, reading, k.transpose(0, 1), v.transpose(0, 1), places)
            else:
                block.store(0, torch.tensor([i]), k[None], v[None])
    offsets = [sum(lengths[name][g] for name in blocks if (g := reads[name][r]) >= 0) for r in range(rows)]
    # A prompt lies behind its head; where a row has none, the keys' positions say so all the same.
    offsets = [max(o, 40 + lengths["prompt"][g]) if (g := reads["prompt"][r]) >= 0 else o
               for r, o in enumerate(offsets)]  # fmt: skip
    q, k, v = (random(1, n * HEADS, rows * (own + 1), WIDTH) for n in (REPEAT, 1, 1))
    sinks = random(HEADS * REPEAT) if options.get("sinks") else None
    options = {name: value for name, value in options.items() if name != "sinks"}

    def row_of(x, r, steps=slice(None)):
        return x[0].view(x.shape[1], rows, own + 1, WIDTH)[:, r, steps]

    def positions(first, steps):
        return torch.tensor(offsets).view(-1, 1) + first + torch.arange(steps)

    def passes():
        """One over the first tokens, then one over the last."""
        if native:
            kept = OwnPages(pool, offsets, [own] * rows, 10**3)
            for steps in (own, 1):
                tokens = [range(r * steps, (r + 1) * steps) for r in range(rows)]
                shared = [Reading.of(blocks[name], reads[name], tokens) for name in reads]
                first = positions(own if steps == 1 else 0, steps).flatten()
                yield PagedPass(attention, pool, first, Reading(kept.pages, tokens), shared)
        else:
            kept = OwnKeys([own] * rows, CPU)
            parts = [Part(blocks[name], reads[name], 0, CPU) for name in reads]
            bucket = Bucket(0, rows, own, parts, positions(0, own), max(offsets) + own + 1)
            yield Prefill([bucket], [torch.arange(rows)], kept)
            yield Step(kept, parts, offsets, 10**6)

    before, after = passes()
    packed_q, packed_k, packed_v = (
        torch.cat([row_of(x, r, slice(0, own)) for r in range(rows)], 1)[None] for x in (q, k, v)
    )
    with active(Module.config, before):
        before.update(packed_k, packed_v, 0)
        first, _ = tree_attention(
            Module, packed_q, packed_k, packed_v, None, sliding_window=window, s_aux=sinks, **options
        )
    last_q, last_k, last_v = (
        torch.stack([row_of(x, r, own) for r in range(rows)], 1)[None] for x in (q, k, v)
    )
    with active(Module.config, after):
        after.update(last_k, last_v, 0)
        second, _ = tree_attention(
            Module, last_q, last_k, last_v, None, sliding_window=window, s_aux=sinks, **options
        )
    got = torch.cat([first[0].view(rows, own, -1, WIDTH), second[0].unsqueeze(1)], 1)
    for r in range(rows):
        earlier = []
        for name in ("head", "prompt"):
            if (g := reads[name][r]) >= 0:
                earlier.append(kept[name][g])
            elif name == "head" and reads["prompt"][r] >= 0:
                # No head in front of the prompt: keys that nobody may see stand in for its positions.
                earlier.append((torch.full((HEADS, 40, WIDTH), torch.nan), torch.zeros(HEADS, 40, WIDTH)))
        keys = torch.cat([*(b[0] for b in earlier), row_of(k, r)], 1)
        values = torch.cat([*(b[1] for b in earlier), row_of(v, r)], 1)
        missing = torch.isnan(keys[0, :, 0])
        for t in range(own + 1):
            last = keys.shape[1] - own - 1 + t
            if missing.any():
                expected = plain(
                    row_of(q, r, t), keys[:, ~missing], values[:, ~missing], last - 40,
                    window=window, sinks=sinks, **options,
                )  # fmt: skip
            else:
                expected = plain(row_of(q, r, t), keys, values, last, window=window, sinks=sinks, **options)
            assert torch.allclose(got[r, t], expected, atol=1e-5), (r, t)


@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_masks_of_a_prompt_do_not_grow_with_its_length(family, monkeypatch):
    real, masks = Prefill.own_bias, {}

    def noted(self, *which):
        masks[which] = real(self, *which)
        return masks[which]

    monkeypatch.setattr(Prefill, "own_bias", noted)
    engine = HuggingFaceEngine.from_loaded(tiny(family), FakeTokenizer(), compile=False)
    masks.clear()
    engine.generate([Request(tuple(3 + i % 90 for i in range(500)), max_new_tokens=1)])
    window = getattr(engine.model.config, "sliding_window", None) or 0
    queries, repeat = 64, 2
    assert sum(mask.numel() for mask in masks.values()) <= 3 * repeat * queries * (queries + window)


def test_live_rows_come_first_and_few_move():
    assert packed([0, 1, 2], 4) == [0, 1, 2, 3]
    assert packed([1, 4, 6], 3) == [4, 1, 6]
    assert packed([7], 2) == [7, 1]
    for live in ([0, 2, 3, 9], [5, 6, 7, 8, 9], [0, 9]):
        kept = packed(live, 8)
        assert sorted(kept[: len(live)]) == live
        assert all(old == new or old >= len(live) for new, old in enumerate(kept))


def test_passes_hold_every_row_once_and_their_lengths_depend_on_the_row_alone():
    counts = [5, 300, 0, 17, 16, 40, 299, 8, 9, 1, 2500]
    some = list(packs(counts, 700))
    rows = [r for each in some for _, members in each for r in members]
    assert sorted(rows) == [i for i, n in enumerate(counts) if n]
    for each in some:
        assert sum(n * len(members) for n, members in each) <= 700 or sum(len(m) for _, m in each) == 1
        for n, members in each:
            assert all(counts[r] <= n < counts[r] + 16 for r in members)
            assert [list(packs([counts[r]], 700)) for r in members] == [[[(n, [0])]]] * len(members)


def test_a_row_that_is_over_does_not_run_out_of_positions():
    """One row ends at the end of the context; it stays in the batch until enough others are over."""
    engine = HuggingFaceEngine.from_loaded(tiny("gpt2"), FakeTokenizer())
    requests = [Request((5,) * 508, max_new_tokens=4)]
    requests += [Request((5, 6 + i), max_new_tokens=30, min_new_tokens=30) for i in range(11)]
    together = engine.generate(requests)
    assert [len(c.token_ids) for c in together] == [4] + [30] * 11
    assert together[0].token_ids == engine.generate(requests[:1])[0].token_ids


def test_filling_rows_read_nothing_and_change_nothing():
    block = Block([9, 9], [0, 0])
    block.store(0, torch.arange(2), torch.randn(2, 1, 9, 4), torch.randn(2, 1, 9, 4))
    part = Part(block, [0, 1, 1], 5, CPU)
    take, back, absent = part.indices(1)
    assert part.width == 2 and absent is None
    assert take.tolist() == [0, 0, 1, 2] and back.tolist()[:3] == [0, 2, 3] and len(back) == 8


def stored(*lengths):
    """A block of random prefixes of these lengths."""
    block = Block(lengths, [0] * len(lengths))
    for i, length in enumerate(lengths):
        block.store(0, torch.tensor([i]), torch.randn(1, 2, length, 4), torch.randn(1, 2, length, 4))
    return block


def test_joined_blocks_hold_every_prefix():
    some, more = stored(40, 7, 64), stored(33, 100)
    both = join([some, more])
    assert both.lengths == [40, 7, 64, 33, 100]
    for block, first in ((some, 0), (more, 3)):
        for i, n in enumerate(block.lengths):
            assert torch.equal(both.keys[0][first + i, :, :, :n], block.keys[0][i, :, :, :n])
            assert torch.equal(both.values[0][first + i, :, :n], block.values[0][i, :, :n])
    chosen = both.select([3, 1])
    assert chosen.lengths == [33, 7]
    assert torch.equal(chosen.keys[0], both.keys[0][[3, 1], :, :, :64])


def test_a_part_tells_what_it_copied():
    block = stored(40, 40, 40)
    for groups, copies in (([0, 1], 0), ([1, 2], 0), ([0, 2], 2), ([2, -1, 0, 2], 2)):
        part = Part(block, groups, 0, CPU)
        assert part.copied == 0
        part.keys(0), part.values(0)
        assert part.copied == copies * block.bytes // 3


def test_of_kept_prefixes_those_go_that_were_not_read_for_longest():
    kept, blocks = KeptPrefixes(most=5 * 32), [stored(30, 20), stored(31), stored(32, 32)]
    kept.add(["a", "b"], blocks[0])
    kept.add(["c"], blocks[1])
    [(found, keys)] = kept.find(["b", "z"])
    assert keys == ["b"] and found.lengths == [20]
    assert torch.equal(found.keys[0][0], blocks[0].keys[0][1])
    kept.add(["d", "e"], blocks[2])
    assert kept.held == 5 * 32 and kept.blocks() == [blocks[1], blocks[0], blocks[2]]
    kept.add(["f"], stored(5))
    assert "c" not in kept and all(key in kept for key in "abdef") and kept.held == 5 * 32
    assert [keys for _, keys in kept.find("eabf")] == [["e"], ["a", "b"], ["f"]]
    kept.add(list("ghijkl"), stored(*[40] * 6))  # more than there is room for
    assert "g" not in kept and "a" in kept
    kept.age = 2
    for _ in range(3):
        kept.next_batch()
        kept.find("a")
    assert "a" in kept and not any(key in kept for key in "def") and kept.held == 2 * 32
    kept.clear()
    assert kept.held == 0 and kept.blocks() == [] and kept.find("abdef") == []
